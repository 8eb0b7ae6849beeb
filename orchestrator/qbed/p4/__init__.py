# SPDX-License-Identifier: Apache-2.0
"""P4 switches: table entries and recirculation ports of schemes' programs."""
