# SPDX-License-Identifier: Apache-2.0
"""The transport `rate`: pacing to the nanosecond, retransmission, counters, and equal results in each run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from qbed.testing import store_tables

RunCell = Callable[..., Any]
DUMBBELL = """
name: rate
topology: {dumbbell: {left: 2, right: 2}}
links: {default: {rate: 10 Gbit/s, delay: 5 us}}
switches: {default: {scheme: droptail, buffer: BUFFER}}
hosts: {default: {controller: {name: fixed, rate: RATE}}, h2: {controller: {rate: 3 Gbit/s}}}
addressing: FAMILY
workload:
WORKLOAD
observe: {queues: 100 us, flows: 1 ms}
duration: 20 ms
"""


def dumbbell(workload: str, rate: str = "4 Gbit/s", family: str = "ipv4", buffer: str = "128 KB") -> str:
    return (
        DUMBBELL.replace("BUFFER", buffer)
        .replace("FAMILY", family)
        .replace("RATE", rate)
        .replace("WORKLOAD", "".join(f"  - {line}\n" for line in workload.splitlines()))
    )


HEADERS = {"ipv4": 20 + 8 + 88, "ipv6": 40 + 8 + 88, "ipv4, compact": 20 + 8 + 20, "ipv6, compact": 40 + 8 + 20}
HOP_NS = 1514 * 8 / 10 + 5_000
PACKETS = 700


@pytest.mark.parametrize("headers", HEADERS)
def test_completion_times_equal_the_computed_times(run_cell: RunCell, tmp_path: Path, headers: str) -> None:
    size = PACKETS * (1500 - HEADERS[headers])
    family, _, compact = headers.partition(", ")
    # The flows are sequential, so no packet is queued.
    workload = f"flow: {{from: h1, to: h3, size: {size} B, transport: rate}}\n"
    workload += f"flow: {{from: h2, to: h4, size: {size} B, transport: rate, start: 5 ms}}"
    rate = f"4 Gbit/s, header: {compact or 'full'}"
    cell = run_cell(dumbbell(workload, rate=rate, family=family))
    row, table = store_tables(cell, tmp_path)
    assert (row["status"], row["contradictions"], row["warnings"]) == ("complete", [], [])
    flows = table("flows")
    for flow, rate_bps in zip(flows, (4 * 10**9, 3 * 10**9), strict=True):
        assert abs(flow["fct_ns"] - (PACKETS - 1) * 1500 * 8e9 / rate_bps - 3 * HOP_NS) <= 2
        assert abs(flow["ideal_fct_ns"] - (PACKETS - 1) * 1514 * 0.8 - 3 * HOP_NS) <= 1
    known = ("status", "transport", "congestion_control", "dst_port", "received_bytes", "sent_bytes")
    for flow in flows:
        assert [flow[name] for name in known] == ["complete", "rate", "fixed", 6190, size, size]
        assert (flow["segments_sent"], flow["segments_received"], flow["retransmits"]) == (PACKETS, PACKETS, 0)
    rates = table("rates")
    assert [(r["flow"], r["time_ns"]) for r in rates] == [(0, 0), (0, 10**6), (0, 2 * 10**6)] + [
        (1, ms * 10**6) for ms in (5, 6, 7)
    ]
    assert {(r["flow"], r["rate_bps"], r["signal"]) for r in rates} == {(0, 4 * 10**9, None), (1, 3 * 10**9, None)}
    # Before the sample at 1 ms, at 4 Gbit/s: a packet every 3 us from 0 on; one more leaves at 1 ms.
    assert rates[1]["sent_bytes"] // cell.plan.workloads[0].payload_bytes in (334, 335)


def test_lost_packets_are_retransmitted(run_cell: RunCell, tmp_path: Path) -> None:
    workload = "flows: {pairs: [[h1, h3], [h2, h4]], size: 1 MB, transport: rate}"
    cell = run_cell(dumbbell(workload, rate="9 Gbit/s", buffer="20 packets"))
    row, table = store_tables(cell, tmp_path)
    assert (row["status"], row["flows_complete"]) == ("complete", 2)
    lost = [flow["segments_sent"] - flow["segments_received"] for flow in table("flows")]
    assert sum(lost) == row["dropped_packets"] > 50
    assert [flow["retransmits"] for flow in table("flows")] >= lost
    assert row["bottleneck"] == "s1>s2"


SHARED = """
name: shared
topology: {dumbbell: {left: 2, right: 2}}
links: {default: {rate: 10 Gbit/s, delay: 5 us}}
switches: {default: {scheme: stamp, buffer: 200 packets}, s1>s2: {SCHEME}}
hosts: {default: {controller: {CONTROLLER}, reflect: REFLECT}}
workload: [{flows: {pairs: [[h1, h3], [h2, h4]], transport: rate}}]
observe: {queues: summary, flows: 100 us}
duration: 20 ms
"""


def shared(controller: str, scheme: str = "scheme: stamp", reflect: str = "0") -> str:
    return SHARED.replace("CONTROLLER", controller).replace("SCHEME", scheme).replace("REFLECT", reflect)


@pytest.mark.parametrize(
    ("kind", "bits", "maximum"), [("max", 32, None), ("max", 2, 200), ("sum", 32, None), ("ind", 32, 1)]
)
def test_a_stamped_signal_reaches_the_controller(
    run_cell: RunCell, tmp_path: Path, kind: str, bits: int, maximum: int | None
) -> None:
    row, table = store_tables(run_cell(shared(f"name: timely, signal: {kind}, bits: {bits}")), tmp_path)
    assert (row["status"], row["contradictions"], row["warnings"]) == ("complete", [], [])
    signals = {sample["signal"] for sample in table("rates")}
    (queue,) = (queue for queue in table("queues") if queue["port"] == "s1>s2")
    assert len(signals) > 1 and max(signals) <= (maximum or queue["max_packets"])
    if bits == 2:  # the minimum of each bin for a queue of 200 packets in 2 bits
        assert signals <= {0, 50, 100, 150}
    # The other queues on the path are shorter.
    assert queue["xstats"] and dict(queue["xstats"])["stamped"] == queue["sent_packets"]
    assert 2e9 < row["goodput_bps"] < 10e9


def test_feedback_reaches_the_reaction_point(run_cell: RunCell, tmp_path: Path) -> None:
    text = shared("name: reaction_point", scheme="scheme: qcn, buffer: 100 packets", reflect="2.5 %")
    row, table = store_tables(run_cell(text), tmp_path)
    assert (row["status"], row["contradictions"], row["warnings"]) == ("complete", [], [])
    last = {sample["flow"]: sample for sample in table("rates")}
    assert all(sample["feedbacks"] > 10 and sample["rate_bps"] < 10**10 for sample in last.values())
    assert all(sample["signal"] is None for sample in last.values())
    assert 2e9 < row["goodput_bps"] < 10e9


def test_a_flow_without_a_size_ends_at_its_stop(run_cell: RunCell) -> None:
    workload = "flow: {from: h1, to: h3, size: unlimited, stop: 6 ms, start: 4 ms, transport: rate}\n"
    workload += "flow: {from: h1, to: h4, transport: rate}\n"
    workload += "flow: {from: h2, to: h4, size: 100 MB, stop: 5 ms, transport: rate}"
    stopped, endless, cut = run_cell(dumbbell(workload)).flows()
    # A packet every 3 us from 4 ms until before 6 ms.
    assert (stopped["status"], stopped["segments_sent"]) == ("complete", 667)
    assert 6_000_000 < stopped["end_ns"] < 6_100_000
    assert (endless["status"], endless["end_ns"]) == ("running", None)
    assert (cut["status"], cut["end_ns"]) == ("running", None)
    assert cut["received_bytes"] == 1250 * 1384


def test_a_flow_that_cannot_start_fails_alone(run_cell: RunCell) -> None:
    workload = "flows: {pairs: [[h1, h3], [h2, h4]], size: 1 MB, transport: rate, start: 2 ms}"
    cell = run_cell(dumbbell(workload) + "events: [{at: 1 ms, link: h1-s1, state: down}]\n")
    failed, complete = cell.flows()
    assert (failed["status"], failed["received_bytes"], failed["segments_sent"]) == ("failed", 0, 0)
    assert failed["error"].startswith("flow 0: qrate: Network is unreachable")
    assert (complete["status"], complete["received_bytes"]) == ("complete", 1_000_000)


def test_runs_with_all_transports_are_equal_files(run_cell: RunCell) -> None:
    workload = (
        "arrivals: {from: h1..h2, to: h3..h4, interval: 100 us, size: {uniform: [1 KB, 100 KB]}, transport: rate}\n"
        "flow: {from: h3, to: h1, size: 500 KB}\nudp: {from: h2, to: h4, rate: 1 Gbit/s}\n"
        "flow: {from: h2, to: h4, size: 300 KB, transport: rate, label: to the same port}"
    )
    first, second, other = (run_cell(dumbbell(workload, rate="9 Gbit/s", family="both"), seed) for seed in (7, 7, 8))
    assert "flow_samples.bin" in first.digest() and first.digest() == second.digest()
    assert first.digest()["flows.ndjson"] != other.digest()["flows.ndjson"]
    by_rate = [flow for flow in first.flows() if flow["transport"] == "rate"]
    assert len(by_rate) > 100
    assert len({(flow["src"], flow["src_port"]) for flow in by_rate}) == len(by_rate)
    assert all(flow["status"] == "complete" for flow in by_rate if flow["start_ns"] < 15_000_000)
