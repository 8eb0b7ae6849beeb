# SPDX-License-Identifier: Apache-2.0
"""dualpi2 with TCP: classification, the delay of each queue, and agreement of its statistics with the tap."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from qbed.testing import CellOutput, run_lab, store_tables

LAB = """
name: dualpi2
topology: {dumbbell: {left: 2, right: 2}}
links:
  default: {rate: 1 Gbit/s, delay: 100 us}
  bottleneck: {rate: 40 Mbit/s, delay: 2 ms}
switches:
  default: {scheme: droptail}
  "s1>s2": {scheme: dualpi2, buffer: 200 packets}
hosts:
  default: {tcp: cubic}
  h2: {tcp: dctcp_ect1}
  h4: {tcp: dctcp_ect1}
addressing: both
workload:
  - flows: {from: h1, to: h3, size: unlimited, label: classic}
  - flows: {from: h2, to: h4, size: unlimited, label: l4s}
  - flows: {from: h2, to: h4, size: unlimited, label: l4s-6, family: 6}
events: [{at: 2 s, queue: s1>s2, set: {target: 5 ms, buffer: 12 packets}}]
observe:
  sojourn: true
  statistics: 10 ms
  windows: {before: {from: 1 s, until: 2 s}, after: {from: 2.2 s}}
duration: 3 s
"""
Tables = Callable[[str], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[dict[str, Any], Tables]]:
    folder = tmp_path_factory.mktemp("dualpi2")
    output: CellOutput = run_lab(folder / "cell", LAB, 1)
    (folder / "tables").mkdir()
    yield store_tables(output, folder / "tables")


def test_statistics_agree_with_the_tap(cell: tuple[dict[str, Any], Tables]) -> None:
    row, table = cell
    assert (row["status"], row["contradictions"]) == ("complete", [])
    (queue,) = (found for found in table("queues") if found["port"] == "s1>s2")
    statistics = dict(queue["xstats"])
    assert queue["discipline"] == "dualpi2"
    marked = statistics["marked_classic"] + statistics["marked_by_ramp"] + statistics["marked_by_coupling"]
    assert marked == queue["marked_packets"] > 0
    dropped = statistics["dropped_classic"] + statistics["dropped_l4s"] + statistics["overlimit"]
    assert dropped == queue["dropped_packets"] and statistics["dropped_classic"] > 0 and statistics["overlimit"] > 0
    entered = statistics["enqueued_classic"] + statistics["enqueued_l4s"] + statistics["overlimit"]
    assert entered == queue["sent_packets"] + queue["dropped_packets"] + queue["queue_packets"]
    series = [found["value"] for found in table("statistics") if found["statistic"] == "probability"]
    assert len(series) > 100 and all(0 <= value < 1e9 for value in series)


def test_scalable_connections_send_ect1(cell: tuple[dict[str, Any], Tables]) -> None:
    """All packets in both directions, IPv4 and IPv6, except each SYN, which the kernel decides."""
    _, table = cell
    for port in ("s1>s2", "s2>s1"):
        packets: dict[str, int] = {}
        for found in table("sojourns"):
            if found["port"] == port:
                packets[found["ecn"]] = packets.get(found["ecn"], 0) + found["packets"]
        assert packets["ect0"] == 2 and packets["ect1"] > 1000 and packets["not-ect"] > 1000, packets
    flows = {found["label"]: found for found in table("flows")}
    assert {flow["label"]: flow["ecn"] for flow in flows.values()} == {"classic": False, "l4s": True, "l4s-6": True}
    assert flows["l4s"]["ce_marks"] > 0 and flows["l4s-6"]["ce_marks"] > 0


def test_each_queue_has_its_delay(cell: tuple[dict[str, Any], Tables]) -> None:
    """The classic queue has the target delay, until an event lowers both; the L4S queue stays below its ramp."""
    _, table = cell
    mean_ms = {
        (found["span"], found["ecn"]): found["mean_ns"] / 1e6
        for found in table("sojourn_windows")
        if found["port"] == "s1>s2" and found["dscp"] == 0
    }
    assert 10 < mean_ms["before", "not-ect"] < 20
    assert 1 < mean_ms["after", "not-ect"] < 0.75 * mean_ms["before", "not-ect"]
    assert mean_ms["before", "ect1"] < 1.2 and mean_ms["after", "ect1"] < 1.2


FLOOD = """\
#!/usr/bin/env python3
import socket, time
sock = socket.socket(type=socket.SOCK_DGRAM)
sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 1)  # ECT(1)
due = time.monotonic()
end = due + 2.5
while due < end:
    sock.sendto(bytes(1400), ("h4", 9))
    due += 200e-6
    time.sleep(max(0, due - time.monotonic()))
"""


def test_unresponsive_l4s_traffic_is_dropped_to_the_target(run_cell: Callable[..., CellOutput], tmp_path: Path) -> None:
    """58 Mbit/s of ECT(1) into 40, and nothing in the classic queue: RFC 9332, A.2, line 2a of dualpi2_update()."""
    (tmp_path / "cell-0").mkdir()
    (tmp_path / "cell-0" / "flood.py").write_text(FLOOD)
    head, _ = LAB.split("addressing:")
    cell = run_cell(f"""{head.replace("200 packets", "1000 packets")}
workload: []
programs: [{{on: h2, run: ./flood.py, label: flood, status: any}}]
observe: {{sojourn: true, windows: {{steady: {{from: 1.5 s, until: 2.5 s}}}}}}
duration: 2.6 s
""")
    row, table = store_tables(cell, tmp_path / "cell-0")
    assert (row["status"], row["contradictions"]) == ("complete", [])
    (queue,) = (found for found in table("queues") if found["port"] == "s1>s2")
    statistics = dict(queue["xstats"])
    assert statistics["dropped_l4s"] > 1000 and statistics["overlimit"] == 0
    (sojourn_ms,) = (
        found["mean_ns"] / 1e6
        for found in table("sojourn_windows")
        if (found["port"], found["span"], found["ecn"]) in {("s1>s2", "steady", "ce"), ("s1>s2", "steady", "ect1")}
        and found["packets"] > 1000
    )
    assert 10 < sojourn_ms < 20
