# SPDX-License-Identifier: Apache-2.0
"""Which lateness on the wall clock makes a cell invalid."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from campaigns import LAB, write_lab
from synthetic import sample, write_out

from qbed.cells.store_cell import store_cell
from qbed.cells.wall_clock import LATE_SHARE, examine_wall
from qbed.network.load import load_lab
from qbed.plan.communicating_pairs import shortest_rtt_ns
from qbed.plan.compile import compile_lab
from qbed.plan.model import Plan
from qbed.telemetry.taps import TapError
from qbed.telemetry.wall import Late, NodeWall, Wall

DILATION = 100


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return compile_lab(load_lab(write_lab(tmp_path / "lab") / "lab.yml", {}))


def wall(plan: Plan, late_ns: int, host_kernel: list[str]) -> Wall:
    """Every node is faithful but h1, which is late."""
    nodes: dict[str, NodeWall | None] = {node.name: NodeWall(wall_ns=10**9) for node in plan.nodes}
    nodes["h1"] = NodeWall(wall_ns=10**9, late_ns=Late(max=late_ns, p99=late_ns, events=1000))
    return Wall(substrate="containerlab", dilation=DILATION, host_kernel=host_kernel, nodes=nodes)


def test_lateness_is_measured_by_the_shortest_round_trip(plan: Plan) -> None:
    tolerated = int(LATE_SHARE * shortest_rtt_ns(plan) * DILATION)
    assert examine_wall(plan, wall(plan, tolerated, []))[0] == []
    (wrong,) = examine_wall(plan, wall(plan, tolerated + 1000, []))[0]
    assert wrong.startswith("deadlines of h1 ran late by") and "a dilation above 100 would be" in wrong


def test_a_host_on_the_machines_kernel_is_late_without_moving_packets(plan: Plan) -> None:
    late_ns = int(LATE_SHARE * shortest_rtt_ns(plan) * DILATION) + 1000
    wrong, warnings, details = examine_wall(plan, wall(plan, late_ns, ["h1"]))
    assert wrong == [] and details["late_share_of_rtt"] == 0
    assert any(text.startswith("h1, on the machine's kernel, began and sampled flows") for text in warnings)
    assert not any("machine's kernel" in text for text in examine_wall(plan, wall(plan, late_ns // 2, ["h1"]))[1])


def test_a_late_end_has_samples_beyond_the_duration(tmp_path: Path) -> None:
    plan = compile_lab(load_lab(write_lab(tmp_path / "lab", lab=LAB)))
    write_out(plan, tmp_path)
    out = tmp_path / "out"
    steady = plan.max_samples()
    with (out / "taps.bin").open("ab") as taps:
        taps.write(sample(0, 1, 1, steady=steady))
    (out / "done.json").write_text(json.dumps({"status": "complete", "end_ns": 20 * plan.duration_ns}))
    (tmp_path / "tables").mkdir()
    with pytest.raises(TapError, match="has more than"):
        store_cell(tmp_path, plan, tmp_path / "tables")
    (out / "wall.json").write_text(wall(plan, 10**9, []).model_dump_json())
    row = store_cell(tmp_path, plan, tmp_path / "tables")
    assert row["status"] == "invalid" and any("ran late" in text for text in row["contradictions"])
