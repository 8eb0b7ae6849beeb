# SPDX-License-Identifier: Apache-2.0
"""Whatever a plan says, a real guest carries it out or refuses it in a sentence: a fuzzer of tests/fuzz for a while."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "fuzz"))
import plans

SECONDS, PLANS = 300.0, 40
"""The same plans in every run: `make fuzz` looks for more."""


def test_a_guest_survives_its_plan(tmp_path: Path) -> None:
    books, found = plans.fuzz(SECONDS, 1, tmp_path, PLANS)
    assert found == []
    assert books["refused"] and books["complete"], books
