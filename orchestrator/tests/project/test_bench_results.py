# SPDX-License-Identifier: Apache-2.0
"""Simulations of `bench/` write their results by the common writer, as benchmarks do."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

from qbed.base.locations import checkout

SMALL = {"seeds_until": {"RUNS": 3}, "false_alarms": {"BLOCK": 10, "BLOCKS": 1}}


@pytest.mark.parametrize("name", sorted(SMALL))
def test_a_simulation_writes_its_rows_and_the_machine(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(checkout()))
    monkeypatch.setattr(importlib.import_module("bench.harness"), "RESULTS", tmp_path / "results")
    simulation = importlib.import_module(f"bench.{name}")
    for constant, value in SMALL[name].items():
        monkeypatch.setattr(simulation, constant, value)
    simulation.main()
    (file,) = (tmp_path / "results").iterdir()
    content = json.loads(file.read_text())
    assert file.name == f"{name}.json" and content["bench"] == name and content["rows"]
    assert {"cpu", "cores", "load", "kernel"} <= set(content["machine"])
