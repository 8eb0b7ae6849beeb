# SPDX-License-Identifier: Apache-2.0
"""The laws of rpm other than Linux's CoDel, in the kernel and in P4: each decision follows from the tap's events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rpm_model import ACK, CE, ECE, SYN, Segment, segments

from qbed.testing import CellOutput, store_tables

from qbed_testing.pcap import read_pcap

LAB = """
name: rpm
topology: {{dumbbell: {{left: 2, right: 2}}}}
links: {{default: {{rate: 10 Gbit/s, delay: 5 us}}, bottleneck: {{rate: 1 Gbit/s}}}}
switches:
  default: {{scheme: droptail, buffer: 10 MB}}
  s1: {{kind: {kind}, scheme: rpm, buffer: 10000 packets, {law}}}
hosts: {{default: {{tcp: {tcp}, ecn: {ecn}, queue: 10000 packets}}}}
workload:
  - flows: {{from: h1..h2, to: h3..h4, size: {size}, start: 1 ms, spread: 300 us}}
capture: ["s1>s2", "h1>s1", "h2>s1"]
observe: {{ports: {{"s1>s2": every packet}}}}
duration: 200 ms
"""
ENQUEUE, DEQUEUE, MARK, SIGNAL = 1, 2, 4, 5
KINDS = pytest.mark.parametrize("kind", ["linux", "bmv2"])


def lab(law: str, kind: str = "linux", tcp: str = "dctcp", ecn: str = "on", size: str = "4 MB") -> str:
    return LAB.format(law=law, kind=kind, tcp=tcp, ecn=ecn, size=size)


def port_events(cell: CellOutput) -> list[Any]:
    """The tap's events of the bottleneck, of data and of the segments that open a connection."""
    return list(np.concatenate(cell.taps("s1>s2")["events"]))


def signalled(cell: CellOutput) -> set[int]:
    return {int(event["packet"]) for event in port_events(cell) if event["op"] in (MARK, SIGNAL)}


def statistics(cell: CellOutput, folder: Path) -> dict[str, int]:
    """The statistics of the bottleneck, whose counters are consistent."""
    row, table = store_tables(cell, folder)
    assert row["status"] == "complete"
    (queue,) = (queue for queue in table("queues") if queue["port"] == "s1>s2")
    found = dict(queue["xstats"])
    names = ("forward_marks", "ce_arrived", "reverse_marks", "ece_already_set", "cleared", "merged", "pending")
    assert found["marked"] == sum(found.get(name, 0) for name in names)
    return found


def is_ecn_capable(event: Any) -> bool:
    return bool(event["ecn"] != 0)


def above(cell: CellOutput, threshold: int) -> list[Any]:
    """The packets that found a longer queue than the threshold, as they were enqueued."""
    return [e for e in port_events(cell) if e["op"] == ENQUEUE and e["queue_packets"] - 1 > threshold]


def check_decisions(cell: CellOutput, kind: str, found: dict[str, int], expected: set[int]) -> None:
    """In P4 the tap cannot see a decision that changes no packet in the queue, so the numbers are compared."""
    assert found["marked"] == len(expected) > 20
    if kind == "linux":
        assert signalled(cell) == expected


@KINDS
def test_a_step_decides_about_packets_that_find_a_longer_queue(
    run_cell: Callable[..., CellOutput], tmp_path: Path, kind: str
) -> None:
    cell = run_cell(lab("decides: step, threshold: 20 packets", kind))
    expected = {int(event["packet"]) for event in above(cell, 20) if is_ecn_capable(event)}
    found = statistics(cell, tmp_path)
    check_decisions(cell, kind, found, expected)
    assert found["forward_marks"] == found["dropped"] == 0


@dataclass
class TofinoCodel:
    """The law of p4-codel's targets/tofino with roots in 16 bits: times are integers of any unit."""

    target: int
    interval: int
    due: int = 0
    count: int = 0
    above: bool = False
    root: int = 0

    def dequeue(self, now: int, waited: int) -> bool:
        if waited < self.target:
            self.above = False
            return False
        if not self.above:
            self.above, self.due, self.count, self.root = True, now + self.interval, 1, 0xFFFF
            return False
        if now <= self.due:
            return False
        self.count += 1
        for _ in range(4):
            root = self.root << 16
            self.root = ((3 << 32) - self.count * (root * root >> 32) >> 2) * root >> 47
        self.due += self.interval * self.root >> 16
        return True


@pytest.mark.parametrize(("kind", "unit_ns"), [("linux", 1024), ("bmv2", 1000)])
def test_codel_tofino_decides_as_a_second_implementation(
    run_cell: Callable[..., CellOutput], tmp_path: Path, kind: str, unit_ns: int
) -> None:
    cell = run_cell(lab("decides: codel-tofino, target: 100 us, interval: 1 ms", kind, tcp="cubic", size="10 MB"))
    codel = TofinoCodel(100_000 // unit_ns, 1_000_000 // unit_ns)
    enqueued: dict[int, int] = {}
    expected: list[int] = []
    excursions = 0
    for event in port_events(cell):
        now = (cell.plan.epoch_ns + int(event["time_ns"])) // unit_ns
        packet = int(event["packet"])
        if event["op"] == ENQUEUE:
            enqueued[packet] = now
        elif event["op"] == DEQUEUE:
            was_above = codel.above
            if codel.dequeue(now, now - enqueued[packet]):
                expected.append(packet)
            excursions += codel.above and not was_above
    assert excursions > 1, "the lab has no second excursion"
    found = statistics(cell, tmp_path)
    if kind == "linux":
        assert sorted(signalled(cell)) == expected
    assert found["marked"] == len(expected) > 10


@KINDS
def test_a_linear_law_decides_with_eta_for_each_packet_above_the_threshold(
    run_cell: Callable[..., CellOutput], tmp_path: Path, kind: str
) -> None:
    text = lab("decides: linear, threshold: 10 packets, eta: 0.0005", kind, tcp="cubic", size="10 MB")
    cell = run_cell(text)
    likelihoods = [min(1, 0.0005 * (int(e["queue_packets"]) - 11)) for e in above(cell, 10) if is_ecn_capable(e)]
    found = statistics(cell, tmp_path)
    deviation = sqrt(sum(p * (1 - p) for p in likelihoods))
    assert abs(found["marked"] - sum(likelihoods)) < 4 * deviation
    assert found["marked"] > 20
    if kind == "linux":
        assert signalled(cell) <= {int(event["packet"]) for event in above(cell, 10)}
        assert run_cell(text).digest() == cell.digest()
        assert run_cell(text, seed=2).digest() != cell.digest()


@KINDS
def test_red_decides_by_the_average(run_cell: Callable[..., CellOutput], tmp_path: Path, kind: str) -> None:
    """Not below min, always from max on, and between them with marks at most 1 / p_b apart."""
    law = "decides: red, min: 10 packets, max: 30 packets, probability: 10 %, wlog: 6"
    cell = run_cell(lab(law, kind, size="10 MB"))
    average = 0.0
    above_min = above_max = 0
    allowed: set[int] = set()
    demanded: set[int] = set()
    for event in port_events(cell):
        if event["op"] != ENQUEUE:
            continue
        average += (int(event["queue_packets"]) - 1 - average) / 64
        assert is_ecn_capable(event) or average < 10, "the law drops a packet"
        if average >= 9.9:
            allowed.add(int(event["packet"]))
            above_min += average >= 10.1
        if average >= 30.1:
            demanded.add(int(event["packet"]))
            above_max += 1
    found = statistics(cell, tmp_path)
    assert above_min - above_max > 100, "the average is rarely between the thresholds"
    assert above_max < found["marked"] <= len(allowed)
    # between the thresholds, at most one in ten packets but for the distance's uniform distribution, so one in 5.5
    assert found["marked"] - above_max < (above_min - above_max) / 4
    if kind == "linux":
        assert demanded <= signalled(cell) <= allowed


def acknowledgements(cell: CellOutput, port: str) -> list[Segment]:
    """The segments of receivers in a port's capture."""
    queue = cell.plan.queues[cell.queue(port)]
    packets = read_pcap(cell.out / f"{cell.plan.nodes[queue.node].name}-{queue.interface}.pcap")
    ports = {workload.port for workload in cell.plan.workloads}
    return [segment for segment in segments(packets) if segment.flow[2] in ports and segment.flags & ACK]


def carried(cell: CellOutput, *, one_bit: bool) -> tuple[list[tuple[object, ...]], int]:
    """The acknowledgements that carry decisions made at enqueue, and the number of decisions that are merged."""
    timeline: list[tuple[int, int, Any]] = [(s.time_ns, 1, s) for s in acknowledgements(cell, "s1>s2")]
    timeline += [(int(event["time_ns"]), 0, event) for event in above(cell, 20) if is_ecn_capable(event)]
    pending: Counter[tuple[int, ...]] = Counter()
    found, merged = [], 0
    for _, is_ack, item in sorted(timeline, key=lambda entry: entry[:2]):
        if not is_ack:
            flow = int(item["sport"]), int(item["dport"])
            merged += one_bit and pending[flow] > 0
            pending[flow] = 1 if one_bit else pending[flow] + 1
        elif pending[item.back[2:]] and not item.flags & SYN:
            pending[item.back[2:]] -= 1
            found.append(item.identity)
    return found, merged


def echoed(cell: CellOutput) -> list[tuple[object, ...]]:
    """The acknowledgements with ECE that the senders receive."""
    found = [*acknowledgements(cell, "h1>s1"), *acknowledgements(cell, "h2>s1")]
    return [segment.identity for segment in found if segment.flags & ECE and not segment.flags & SYN]


@KINDS
@pytest.mark.parametrize("counter", ["count", "bit"])
def test_a_signal_does_not_wait_in_the_queue(
    run_cell: Callable[..., CellOutput], tmp_path: Path, kind: str, counter: str
) -> None:
    """The acknowledgement behind the arrival carries it, or, with one bit a flow, all decisions since the last."""
    cell = run_cell(lab(f"decides: step, threshold: 20 packets, counter: {counter}", kind))
    expected, merged = carried(cell, one_bit=counter == "bit")
    assert sorted(echoed(cell)) == sorted(expected)
    found = statistics(cell, tmp_path)
    assert found["reverse_marks"] == len(expected) > 20
    assert found.get("merged", 0) == merged
    assert (merged > 20) == (counter == "bit")


@KINDS
@pytest.mark.parametrize(
    "law",
    [
        "decides: step, threshold: 20 packets",
        "decides: red",
        "decides: linear, threshold: 10 packets, eta: 0.001",
        "decides: codel-tofino, target: 100 us, interval: 1 ms",
    ],
)
def test_packets_that_are_not_ecn_capable_are_dropped(
    run_cell: Callable[..., CellOutput], tmp_path: Path, kind: str, law: str
) -> None:
    cell = run_cell(lab(law, kind, tcp="cubic", ecn="off"))
    found = statistics(cell, tmp_path)
    assert found["dropped"] > 5
    assert found["marked"] == 0
    assert not signalled(cell)
    assert not [event for event in port_events(cell) if event["ecn"] == CE]
