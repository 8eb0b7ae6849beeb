# SPDX-License-Identifier: Apache-2.0
"""A short run of the fuzzer tests/fuzz/plans.py: a guest runs a damaged plan or refuses it with a message."""

from __future__ import annotations

from pathlib import Path

from fuzz import plans

SECONDS, PLANS = 300.0, 40
"""Each run tries equal plans; `make fuzz` tries others."""


def test_a_guest_runs_or_refuses_a_damaged_plan(tmp_path: Path) -> None:
    outcomes, found = plans.fuzz(SECONDS, 1, tmp_path, PLANS)
    assert found == []
    assert outcomes["refused"] and outcomes["complete"], outcomes
