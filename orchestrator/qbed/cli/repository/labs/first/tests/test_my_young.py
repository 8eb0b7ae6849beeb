# SPDX-License-Identifier: Apache-2.0
"""The P4 program `my_young` marks packets of old flows, and its counters are what the queue's tap observed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from qbed.testing import CellOutput, store_tables

PROGRAM = Path(__file__).parents[1] / "my_young.p4"
LAB = f"""
name: young
topology: {{star: {{hosts: 2}}}}
links: {{default: {{rate: 1 Gbit/s, delay: 1 ms}}, h1-s1: {{rate: 100 Mbit/s}}}}
switches:
  default:
    program: {PROGRAM}
    buffer: 100 packets
    tables: {{marking: [{{action: mark_above, params: {{packets: 10, young_packets: YOUNG, idle_us: 1000000}}}}]}}
hosts: {{default: {{tcp: dctcp}}}}
workload: [{{flow: {{from: h2, to: h1, size: 2 MB}}}}]
duration: 1 s
"""


def counters(cell: CellOutput, folder: Path) -> tuple[dict[str, int], int]:
    """The program's counters by name, and the marked packets of the queue towards h1."""
    folder.mkdir()
    row, table = store_tables(cell, folder)
    assert (row["status"], row["contradictions"]) == ("complete", [])
    (marks,) = (queue["marked_packets"] for queue in table("queues") if queue["port"] == "s1>h1")
    return {array["name"]: array["packets"] for array in table("p4_arrays") if array["packets"]}, marks


def test_packets_of_old_flows_are_marked(run_cell: Callable[[str], CellOutput], tmp_path: Path) -> None:
    found, marks = counters(run_cell(LAB.replace("YOUNG", "0")), tmp_path / "old")
    assert found["marked"] == marks > 100 and "spared" not in found


def test_a_flow_that_stays_young_is_not_marked(run_cell: Callable[[str], CellOutput], tmp_path: Path) -> None:
    found, marks = counters(run_cell(LAB.replace("YOUNG", "1000000")), tmp_path / "young")
    assert marks == 0 < found["spared"] and "marked" not in found
