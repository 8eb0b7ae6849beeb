# SPDX-License-Identifier: Apache-2.0
"""QCN in a lab, congestion point and reaction point: feedback reduces rates, which then recover."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from qbed.cells.store_cell import store_cell

US, MS = 10**3, 10**6
LAB = """
name: reaction-point
topology: {dumbbell: {left: 2, right: 2}}
links: {default: {rate: 10 Gbit/s, delay: 5 us}}
switches: {default: {scheme: qcn, buffer: 200 packets, equilibrium: 33 packets}}
hosts: {default: {controller: {name: reaction_point}}}
workload:
  - flow: {from: h1, to: h3, transport: rate}
  - flow: {from: h2, to: h4, transport: rate, start: 1 ms}
observe: {queues: 100 us, flows: 1 ms}
duration: 60 ms
"""


def test_two_flows_fill_a_link_with_a_queue_around_its_equilibrium(
    run_cell: Callable[..., Any], tmp_path: Path
) -> None:
    cell = run_cell(LAB)
    row = store_cell(cell.folder, cell.plan, tmp_path)
    assert (row["status"], row["contradictions"], row["warnings"]) == ("complete", [], [])
    with pa.memory_map(str(tmp_path / "rates.arrow")) as file:
        samples: list[dict[str, Any]] = pa.ipc.open_stream(file).read_all().to_pylist()
    late = [[s for s in samples if s["flow"] == number and s["time_ns"] >= 40 * MS] for number in (0, 1)]
    goodput = [(flow[-1]["acked_bytes"] - flow[0]["acked_bytes"]) * 8e9 / (19 * MS) for flow in late]
    assert sum(goodput) > 0.95 * 10e9 * (1500 - 20 - 8 - 88) / 1514
    for flow in late:
        assert flow[0]["feedbacks"] > 5 and flow[-1]["retransmits"] == 0
        # The queue settles around q_eq: 33 packets are 40 us, in addition to a round trip of 34 us.
        assert 20 * US < sum(sample["rtt_ns"] for sample in flow) / len(flow) - 34 * US < 60 * US
