# SPDX-License-Identifier: Apache-2.0
"""The virtual substrate: a lab is one User-Mode Linux process in time-travel mode."""

NAME = "virtual"
"""The value of `--on`."""
