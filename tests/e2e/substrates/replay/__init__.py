# SPDX-License-Identifier: Apache-2.0
"""A substrate that brings nothing to life: it replays what a run with `--keep` recorded."""

NAME = "replay"
