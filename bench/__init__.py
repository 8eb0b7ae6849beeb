# SPDX-License-Identifier: Apache-2.0
"""Measurements against peers and limits. `make bench` runs them all; none of them is a test."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))  # qbed_testing
