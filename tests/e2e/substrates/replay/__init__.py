# SPDX-License-Identifier: Apache-2.0
"""A substrate that replays the cells of a run with `--keep`."""

NAME = "replay"
