# SPDX-License-Identifier: Apache-2.0
"""Events change links, queues and hosts at their nanosecond; jitter delays and reorders frames."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qbed.testing import CellOutput, store_tables

from qbed_testing.pcap import read_pcap

FRAME = 1042  # 1000 bytes of payload
NS = FRAME * 8  # at 1 Gbit/s
WIRE = """
name: wire
topology: {star: {hosts: 2}}
links: {default: {rate: 10 Gbit/s, delay: 5 us}, "s1>h2": {rate: 1 Gbit/s, delay: 100 us}}
switches: {default: {scheme: droptail, buffer: 50 packets}}
workload: [udp: {from: h1, to: h2, rate: 2 Gbit/s, packet: 1000 B}]
events:
  - {at: 3000001 ns, link: s1>h2, rate: 100 Mbit/s}
  - {at: 5 ms, link: s1>h2, rate: 1 Gbit/s}
  - {at: 7 ms, link: s1>h2, delay: 130 us}
  - {at: 9 ms, link: s1>h2, delay: 50 us}
  - {at: 11 ms, link: s1>h2, loss: 50 %}
capture: [h2>s1]
duration: 13 ms
"""


def test_events_change_a_links_rate_delay_and_loss(run_cell: Callable[[str], CellOutput], tmp_path: Path) -> None:
    cell = run_cell(WIRE)
    row, _ = store_tables(cell, tmp_path)
    assert (row["status"], row["contradictions"]) == ("complete", [])
    arrivals = np.array([p.time_ns for p in read_pcap(cell.out / "h2-eth0.pcap") if p.udp_payload == 1000])
    left = arrivals - 100_000  # departure times while the delay is 100 us
    gaps = np.diff(left)

    def within(begin: int, end: int) -> Any:
        return gaps[(left[:-1] > begin) & (left[1:] < end)]

    assert set(within(200_000, 3_000_001)) == {NS}
    assert set(within(3_000_001, 5_000_000)) == {10 * NS}
    # the frame in transmission continues at the new rate
    before = left[left <= 3_000_001][-1]
    rest = NS - (3_000_001 - before)
    assert left[left > 3_000_001][0] == 3_000_001 + 10 * rest
    before = left[left <= 5_000_000][-1]
    assert left[left > 5_000_000][0] == 5_000_000 + (10 * NS - (5_000_000 - before)) // 10
    # a longer delay causes one gap of 30 us more; with a shorter one, frames do not overtake
    assert sorted(set(within(5_100_000, 8_900_000)))[-1] == NS + 30_000
    assert np.diff(arrivals).min() >= 0
    late = arrivals[(arrivals > 9_200_000) & (arrivals < 11_000_000)]
    assert set(np.diff(late)) == {NS}
    lost = cell.counters().links
    ends = [end.lost for pair in lost for end in (pair.a, pair.b)]
    assert sum(ends) == max(ends) and 0.3 < max(ends) / (2_000_000 / NS) < 0.7


QUEUE_AND_HOST = """
name: queue-and-host
topology: {dumbbell: {left: 2, right: 2}}
links: {default: {rate: 1 Gbit/s, delay: 5 us}, s1-s2: {rate: 500 Mbit/s}}
switches: {default: {scheme: ecn, buffer: 200 packets, threshold: 40 packets}}
hosts: {default: {tcp: dctcp}, h2: {tcp: cubic, ecn: "off"}}
workload:
  - flow: {from: h1, to: h3, size: unlimited}
  - flow: {from: h2, to: h4, size: 100 KB, start: 1 ms}
  - flow: {from: h2, to: h4, size: 100 KB, start: 30 ms}
events:
  - {at: 20 ms, queue: "s1>s*", set: {threshold: 5 packets}}
  - {at: 20 ms, host: h2, tcp: reno}
observe: {windows: {before: {from: 10 ms, until: 20 ms}, behind: {from: 40 ms}}}
duration: 60 ms
"""


def test_events_change_a_queues_threshold_and_a_hosts_congestion_control(
    run_cell: Callable[[str], CellOutput], tmp_path: Path
) -> None:
    cell = run_cell(QUEUE_AND_HOST)
    row, table = store_tables(cell, tmp_path)
    assert (row["status"], row["contradictions"]) == ("complete", [])
    queue = {found["span"]: found for found in table("queue_windows") if found["port"] == "s1>s2"}
    assert queue["before"]["mean_packets"] > 2 * queue["behind"]["mean_packets"]
    assert queue["behind"]["max_packets"] < 40 and queue["behind"]["marked_packets"] > 0, queue
    flows = table("flows")
    assert [flow["congestion_control"] for flow in flows] == ["dctcp", "cubic", "reno"]
    assert [flow["status"] for flow in flows] == ["running", "complete", "complete"]


SWITCH_TO_DCTCP = """
name: dctcp
topology: {star: {hosts: 3}}
links: {default: {rate: 1 Gbit/s, delay: 20 us}}
switches: {default: {scheme: ecn, buffer: 256 KB, threshold: 10 packets}}
hosts: {default: {tcp: cubic}}
workload:
  - flow: {from: h1, to: h3, stop: 40 ms, label: established}
  - flow: {from: h2, to: h3, start: 10 ms, stop: 40 ms, label: at once}
  - flow: {from: h2, to: h3, start: 20 ms, stop: 40 ms, label: later}
  - flow: {from: h1, to: h3, start: 20 ms, stop: 40 ms, tcp: reno, label: overridden}
events: [{at: 10 ms, host: "h*", tcp: dctcp}]
duration: 50 ms
"""


def test_hosts_and_their_receivers_change_to_dctcp(run_cell: Callable[[str], CellOutput], tmp_path: Path) -> None:
    """The SYN and the listening socket's congestion control decide about ECN."""
    cell = run_cell(SWITCH_TO_DCTCP)
    row, table = store_tables(cell, tmp_path)
    assert (row["status"], row["contradictions"]) == ("complete", [])
    found = {flow["label"]: (flow["congestion_control"], flow["ce_marks"] > 0) for flow in table("flows")}
    assert found["later"] == ("dctcp", True), "the receiver's listening socket has DCTCP, too"
    without_ecn = ("dctcp-reno", False)  # Linux's DCTCP on connections without ECN
    assert (found["established"], found["at once"]) == (without_ecn, without_ecn)
    assert found["overridden"] == ("reno", False)


JITTER = """
name: jitter
topology: {star: {hosts: 2}}
links: {default: {rate: 1 Gbit/s, delay: 50 us}, "h1>s1": {jitter: 200 us, reordering: "REORDERING"}}
switches: {default: {scheme: droptail, buffer: 1000 packets}}
workload: [udp: {from: h1, to: h2, rate: 100 Mbit/s, packet: 1000 B, size: 1 MB}]
observe: {ports: {"s1>h2": every packet}}
capture: [h1>s1, s1>h1]
duration: 100 ms
"""


@pytest.mark.parametrize("reordering", ["on", "off"])
def test_jitter_is_bounded_and_reorders_only_if_allowed(
    run_cell: Callable[[str], CellOutput], tmp_path: Path, reordering: str
) -> None:
    cell = run_cell(JITTER.replace("REORDERING", reordering))
    row, _ = store_tables(cell, tmp_path)
    assert (row["status"], row["contradictions"]) == ("complete", [])
    sent, arrived = (
        {p.data[18:20]: p.time_ns for p in read_pcap(cell.out / f"{name}.pcap") if p.udp_payload == 1000}
        for name in ("h1-eth0", "s1-eth0")
    )
    assert len(sent) == len(arrived) == 1000
    took = np.array([arrived[number] - sent[number] for number in sent]) - NS - 50_000
    assert took.min() >= 0 and took.max() <= 200_000 and took.mean() > 80_000
    order = [number for number, _ in sorted(arrived.items(), key=lambda item: item[1])]
    assert (order == list(sent)) == (reordering == "off")


def test_two_runs_with_jitter_are_equal(run_cell: Callable[[str], CellOutput]) -> None:
    first, second = (run_cell(JITTER.replace("REORDERING", "on")) for _ in range(2))
    assert first.digest() == second.digest()
