# SPDX-License-Identifier: Apache-2.0
"""ABQ packet by packet: arrivals and departures at a switch, compared with a second implementation of the paper."""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from abq_model import COUNTED, Model

from qbed.cells.plausibility import QueueSummary, examine
from qbed.plan.ports import port_names
from qbed.schemes.declaration import registry
from qbed.telemetry.taps import SUMMARY_FIELDS, Run, read_taps
from qbed.testing import CellOutput

from qbed_testing.pcap import has_valid_checksum, read_pcap

FIN, SYN, RST, ACK, ECE = 1, 2, 4, 16, 64
FRAME = 1514

LAB = """
name: abq
addressing: {addressing}
topology: {{star: {{hosts: 13}}}}
links: {{default: {{rate: 1 Gbit/s, delay: 40 us}}, h1-s1: {{delay: 43217 ns}}}}
switches: {{default: {{scheme: abq, buffer: 128 KB, {settings}}}}}
hosts: {{default: {{tcp: dctcp, rto_min: 10 ms}}}}
workload:
  - incast: {{senders: 12, receiver: h1, size: 64 KB, start: 1 ms, spread: 100 us}}
  - flow: {{from: h1, to: h2, size: 30 KB, start: 1500 us}}
observe: {{queues: every packet}}
capture: [s1>h1, s1>h2, s1>h3]
duration: {duration}
"""


class Segment(NamedTuple):
    """The fields of a TCP segment that captures and taps both record."""

    destination: str
    ports: tuple[int, int]
    seq: int
    ack: int
    flags: int
    payload: int

    @property
    def is_pure_ack(self) -> bool:
        return bool(self.flags & ACK) and not self.flags & (SYN | FIN | RST) and not self.payload

    def with_ece(self, ece: bool) -> Segment:
        return self._replace(flags=self.flags | ECE) if ece else self


def parse(frame: bytes) -> tuple[str, Segment, int]:
    """Parse a frame. Returns the source address, the segment and the length of the TCP header."""
    if frame[12:14] == b"\x08\x00":
        ip, length = 14 + 4 * (frame[14] & 15), struct.unpack_from("!H", frame, 16)[0] - 4 * (frame[14] & 15)
        source, destination = (str(ipaddress.ip_address(frame[i : i + 4])) for i in (26, 30))
    else:
        ip, length = 54, struct.unpack_from("!H", frame, 18)[0]
        source, destination = (str(ipaddress.ip_address(frame[i : i + 16])) for i in (22, 38))
    sport, dport, seq, ack, offset, flags = struct.unpack_from("!HHIIBB", frame, ip)
    header = 4 * (offset >> 4)
    return source, Segment(destination, (sport, dport), seq, ack, flags, length - header), header


def address(raw: Any, family: int) -> str:
    return str(ipaddress.ip_address(bytes(raw)[: 4 if family == 4 else 16]))


def events(cell: CellOutput) -> Any:
    """The events of all queues, in order of time."""
    with (cell.out / "taps.bin").open("rb") as stream:
        runs = [
            b.records for b in read_taps(stream, len(cell.plan.queues)) if isinstance(b, Run) and b.kind == "events"
        ]
    return np.concatenate(runs)


def arrivals(cell: CellOutput, receiver: str) -> list[tuple[int, Segment, int]]:
    """The segments that the switch received from h1: time, segment, length of the TCP header."""
    found = []
    for packet in read_pcap(cell.out / f"{cell.plan.queues[cell.queue('s1>h1')].name.replace(':', '-')}.pcap"):
        source, segment, header = parse(packet.data)
        if source == receiver:
            found.append((packet.time_ns, segment, header))
    return found


def departures(cell: CellOutput, all_events: Any, receiver: str, hosts: int = 13) -> list[tuple[int, Segment]]:
    """The segments of `receiver` that the switch forwarded, at the time of their enqueue at the next port."""
    outs = [cell.queue(f"s1>h{number}") for number in range(2, hosts + 1)]
    found = []
    for event in all_events[np.isin(all_events["id"], outs) & (all_events["op"] == 1) & (all_events["protocol"] == 6)]:
        family = int(event["family"])
        if address(event["saddr"], family) == receiver:
            names = ("tcp_seq", "tcp_ack", "tcp_flags", "payload")
            segment = Segment(
                address(event["daddr"], family),
                (int(event["sport"]), int(event["dport"])),
                *(int(event[name]) for name in names),
            )
            found.append((int(event["time_ns"]), segment))
    return found


def steps(
    all_events: Any, queue: int, unit: str, received: list[tuple[int, Segment, int]]
) -> list[tuple[int, str, Any]]:
    """Merge the queue's changes and the arrivals; at the same instant the changes come first."""
    port_events = all_events[(all_events["id"] == queue) & (all_events["op"] != 4)]
    changes = [(int(event["time_ns"]), "queue", int(event[f"queue_{unit}"])) for event in port_events]
    arrived = [(time, "ack" if segment.is_pure_ack else "segment", segment) for time, segment, _ in received]
    return sorted([*changes, *arrived], key=lambda step: step[0])


CASES = {
    "the paper's": ("threshold: 20 packets, ecn_threshold: 40 packets", {}),
    "IPv6": ("threshold: 20 packets, ecn_threshold: 40 packets", {"addressing": "ipv6"}),
    "in bytes": ("threshold: 30 KB, ecn_threshold: 60 KB", {"unit": "bytes", "threshold": 30_000}),
    "little room": ("threshold: 74 packets, ecn_threshold: 80 packets", {"threshold": 74}),  # X = 84 - 74
    "a full input queue": ("threshold: 20 packets, hold_limit: 3 packets", {"hold_limit": 3}),
    "two at a time": ("threshold: 20 packets, release: count, release_count: 2 packets", {"count": 2}),
    "above drop-tail": ("threshold: 20 packets, above: droptail", {}),
    "above CoDel": ("threshold: 20 packets, above: codel, target: 100 us, interval: 500 us, ecn: off", {}),
}


@pytest.mark.parametrize(("settings", "case"), CASES.values(), ids=CASES.keys())
def test_each_ack_leaves_as_the_paper_specifies(
    run_cell: Callable[..., CellOutput], settings: str, case: dict[str, Any]
) -> None:
    unit = case.get("unit", "packets")
    addressing = case.get("addressing", "ipv4")
    cell = run_cell(LAB.format(settings=settings, addressing=addressing, duration="200 ms"))
    assert all(flow["status"] == "complete" for flow in cell.flows())
    receiver = cell.flows()[0]["dst_address"]
    queue = cell.queue("s1>h1")
    all_events = events(cell)
    received, forwarded = arrivals(cell, receiver), departures(cell, all_events, receiver)
    assert len(received) == len(forwarded)

    # All segments other than pure acknowledgements pass immediately and unmodified.
    others = [(time, segment) for time, segment, _ in received if not segment.is_pure_ack]
    assert others == [(time, segment) for time, segment in forwarded if not segment.is_pure_ack]
    kinds = [segment for _, segment in others]
    assert any(s.flags & SYN for s in kinds) and any(s.flags & FIN for s in kinds) and any(s.payload for s in kinds)

    # Acknowledgements leave in the order, at the times and with the ECE that the model predicts.
    limit, mtu = (128_000, FRAME) if unit == "bytes" else (128_000 // FRAME, 1)
    parameters = (case.get("threshold", 20), limit, mtu, case.get("hold_limit", 1000), case.get("count"))
    model, other = Model(*parameters), Model(*parameters)
    merged = steps(all_events, queue, unit, received)
    model.run(merged)
    other.run(sorted(merged, key=lambda step: (step[0], step[1] == "queue")))
    assert model.released == other.released, "the result depends on the order within an instant: choose other delays"
    assert not model.held
    assert [(time, ack.with_ece(ece)) for ack, time, ece in model.released] == [
        e for e in forwarded if e[1].is_pure_ack
    ]

    found = registry()["abq"].decode(bytes.fromhex(cell.counters().queues[queue].xstats))
    assert {name: found[name] for name in COUNTED} == model.finish(200_000_000)
    assert (found["state"], found["held_ipv4"], found["held_ipv6"]) == (0, 0, 0)
    corrected = sum(ece and not ack.flags & ECE for ack, _, ece in model.released)
    assert found["corrected"] == corrected

    # The case is meaningful: many ACKs were held, in both states.
    assert found["holds"] > 80 and corrected > 30 and found["entries_cs"] > 0 and found["max_held"] > 2
    assert found["entries_lcs"] > 0
    assert (found["overflow"] > 0) == ("hold_limit" in case)
    assert found["overtaken"] > 0 or case.get("threshold") == 74
    if cell.counters().queues[queue].drops:
        assert any(header > 32 for _, segment, header in received if segment.is_pure_ack), (
            "no acknowledgement had SACK blocks"
        )


@pytest.mark.parametrize("addressing", ["ipv4", "ipv6"])
def test_checksums_are_valid_after_the_correction(run_cell: Callable[..., CellOutput], addressing: str) -> None:
    cell = run_cell(LAB.format(settings="threshold: 20 packets", addressing=addressing, duration="50 ms"))
    receiver = cell.flows()[0]["dst_address"]
    complete = echoed = 0
    for port in ("s1>h2", "s1>h3"):
        name = cell.plan.queues[cell.queue(port)].name.replace(":", "-")
        for packet in read_pcap(cell.out / f"{name}.pcap"):
            source, segment, _ = parse(packet.data)
            if source == receiver and len(packet.data) == packet.length:
                assert has_valid_checksum(packet.data), segment
                complete += 1
                echoed += bool(segment.flags & ECE) and segment.is_pure_ack
    assert complete > 20 and echoed > 10


@pytest.mark.parametrize("addressing", ["ipv4", "ipv6"])
def test_held_acks_at_the_end_are_accounted(run_cell: Callable[..., CellOutput], addressing: str) -> None:
    cell = run_cell(LAB.format(settings="threshold: 20 packets", addressing=addressing, duration="1700 us"))
    taps = [cell.taps(port)["summary"] for port in port_names(cell.plan)]
    summaries = {i: QueueSummary(**{name: int(tap[name]) for name in SUMMARY_FIELDS}) for i, tap in enumerate(taps)}
    counters = cell.counters()
    queue = counters.queues[cell.queue("s1>h1")]
    found = registry()["abq"].decode(bytes.fromhex(queue.xstats))
    assert found[f"held_{addressing}"] > 5
    assert (
        found["holds"]
        == found["released"] + found["overflow"] + found["overtaken"] + found["held_ipv4"] + found["held_ipv6"]
    )
    assert examine(cell.plan, summaries, counters).contradictions == []
    without_statistics = counters.model_copy(
        update={"queues": [q.model_copy(update={"xstats": ""}) for q in counters.queues]}
    )
    assert "packets received are unaccounted for" in "".join(
        examine(cell.plan, summaries, without_statistics).contradictions
    )
