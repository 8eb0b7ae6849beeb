# SPDX-License-Identifier: Apache-2.0
"""Timely in a lab: two flows share the link, and parameters reach the kernel."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from qbed.cells.store_cell import store_cell

MS = 10**6
PAYLOAD_SHARE = (1500 - 20 - 8 - 88) / 1514
"""The payload's share of a link's rate, after the headers of Ethernet, IP, UDP and the congestion header."""
LAB = """
name: timely
topology: {dumbbell: {left: 2, right: 2}}
links: {default: {rate: 10 Gbit/s, delay: 5 us}}
switches: {default: {scheme: stamp, buffer: 200 packets}}
hosts: {default: {controller: {name: timely, min_rtt: 36 us, MORE}}}
workload:
  - flow: {from: h1, to: h3, transport: rate}
  - flow: {from: h2, to: h4, transport: rate, start: 1 ms}
observe: {queues: 100 us, flows: 1 ms}
duration: 60 ms
"""


def rates(cell: Any, folder: Path) -> list[dict[str, Any]]:
    row = store_cell(cell.folder, cell.plan, folder)
    assert (row["status"], row["contradictions"], row["warnings"]) == ("complete", [], [])
    with pa.memory_map(str(folder / "rates.arrow")) as file:
        found: list[dict[str, Any]] = pa.ipc.open_stream(file).read_all().to_pylist()
    return found


@pytest.mark.parametrize("signal", ["rtt", "max", "max, unit: time", "sum, unit: bytes, bits: 8"])
def test_two_flows_fill_and_share_a_link(run_cell: Callable[..., Any], tmp_path: Path, signal: str) -> None:
    samples = rates(run_cell(LAB.replace("MORE", f"signal: {signal}")), tmp_path)
    late = [[s for s in samples if s["flow"] == number and s["time_ns"] >= 40 * MS] for number in (0, 1)]
    goodput = [(flow[-1]["acked_bytes"] - flow[0]["acked_bytes"]) * 8e9 / (19 * MS) for flow in late]
    assert sum(goodput) > 0.9 * 10e9 * PAYLOAD_SHARE
    assert max(goodput) < 1.3 * min(goodput)
    # Two flows at line rate may overflow the buffer once; afterwards the queue stays below the upper threshold.
    for flow in late:
        assert flow[0]["retransmits"] == flow[-1]["retransmits"]
        assert max(sample["rtt_ns"] for sample in flow) < (36 + 180) * 1000
        assert {sample["signal"] is None for sample in flow} == {signal == "rtt"}


def test_bounds_and_steps_are_those_of_the_lab(run_cell: Callable[..., Any], tmp_path: Path) -> None:
    more = "start_rate: 1 Gbit/s, max_rate: 1.2 Gbit/s, delta: 1 Mbit/s, segment: 30 KB"
    samples = [s for s in rates(run_cell(LAB.replace("MORE", more)), tmp_path) if s["flow"] == 0]
    assert samples[0]["rate_bps"] == 10**9 and samples[-1]["rate_bps"] == 1.2 * 10**9
    assert {sample["rate_bps"] % 10**6 for sample in samples} == {0}
    # Without queueing, each event adds one step: 1 Gbit/s is four segments of 30,000 bytes per millisecond.
    assert 3 <= (samples[2]["rate_bps"] - samples[1]["rate_bps"]) // 10**6 <= 5
    assert samples[-1]["retransmits"] == 0
