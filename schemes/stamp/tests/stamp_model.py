# SPDX-License-Identifier: Apache-2.0
"""A second implementation of stamp in exact fractions: bins by definition, queues from arrivals and departures."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from qbed_testing.congestion import COMPACT, Flag, Kind, Type, Unit
from qbed_testing.datagrams import CapturedDatagram

FRAME = 1514


@dataclass(frozen=True)
class Port:
    """A queue's parameters; `buffer` and `threshold` in packets."""

    rate_bps: int
    buffer: int = 200
    threshold: int = 65
    at_enqueue: bool = False
    count_itself: bool = False
    exponent: int = 1
    fine_at_full: bool = False
    middle: bool = False
    reverse: bool = True

    def full(self, unit: int) -> int:
        length = self.buffer * FRAME
        return {Unit.PACKETS: self.buffer, Unit.BYTES: length, Unit.NS: length * 8 * 10**9 // self.rate_bps}[Unit(unit)]

    def edges(self, unit: int, bits: int) -> list[int]:
        """The lower bound of every bin, followed by a value above all lengths."""
        n, full = 2**bits, self.full(unit)
        shares = [Fraction(i, n) ** self.exponent for i in range(n)]
        if self.fine_at_full:
            shares = [1 - Fraction(n - i, n) ** self.exponent for i in range(n)]
        return [*(ceil(share * full) for share in shares), full + 1]

    def quantized(self, unit: int, bits: int, length: int) -> int:
        full = self.full(unit)
        length = min(length, full)
        if bits > 16:
            assert full < 2**bits and self.exponent == 1, "the model's lists would be too long"
            return length
        edges = self.edges(unit, bits)
        lower, upper = max(edge for edge in edges if edge <= length), min(edge for edge in edges if edge > length)
        return (lower + upper - 1) // 2 if self.middle else lower

    def part(self, sent: CapturedDatagram, waiting: list[CapturedDatagram], sojourn_ns: int) -> int | None:
        """The value added for a packet, or None."""
        header = sent.header
        if header.kind == Kind.NONE or header.type == Type.FEEDBACK:
            return None
        forward = header.version == COMPACT and header.flags & Flag.FORWARD
        if header.type == Type.ACK and (forward or not self.reverse):
            return None
        counted = [*waiting, sent] if self.count_itself else waiting
        if header.kind == Kind.IND:
            return int(len(counted) > self.threshold)
        queue_bytes = sum(packet.frame_length for packet in counted)
        counted_bytes = sent.frame_length if self.count_itself else 0
        time = sojourn_ns + counted_bytes * 8 * 10**9 // self.rate_bps
        if self.at_enqueue:
            time = queue_bytes * 8 * 10**9 // self.rate_bps
        lengths = {Unit.PACKETS: len(counted), Unit.BYTES: queue_bytes, Unit.NS: time}
        if header.kind == Kind.VECTOR:
            return lengths[Unit(header.unit)]
        if header.version == COMPACT:
            bins = 1 << header.bits
            return min(lengths[Unit(header.unit)] * bins // self.full(header.unit), bins - 1)
        return self.quantized(header.unit, header.bits, lengths[Unit(header.unit)])


def folded(kind: int, bits: int, signal: int, part: int) -> int:
    if kind == Kind.VECTOR:
        return ((signal << bits) + min(part, (1 << bits) - 1)) % (1 << 128)
    if kind == Kind.SUM:
        return min(signal + part, 2**128 - 1)
    if kind == Kind.SUM_SQU:
        return min(signal + part**2, 2**128 - 1)
    return max(signal, part)


def expected(
    port: Port, received: list[CapturedDatagram], forwarded: list[CapturedDatagram], first_out: bool = True
) -> list[CapturedDatagram]:
    """The packets as they are sent, computed from the packets `received` with their times and the times at which they
    were `forwarded`. `first_out`: if two events have the same time, the departure comes first.
    """
    tie = int(first_out)
    assert [packet.header.sequence for packet in received] == [packet.header.sequence for packet in forwarded]
    found = []
    for number, (entered, left) in enumerate(zip(received, forwarded, strict=True)):
        if port.at_enqueue:
            waiting = [
                packet
                for packet, sent in zip(received[:number], forwarded, strict=False)
                if sent.time_ns >= entered.time_ns + tie
            ]
        else:
            waiting = [packet for packet in received[number + 1 :] if packet.time_ns < left.time_ns + 1 - tie]
        header = entered.header
        part = port.part(entered, waiting, left.time_ns - entered.time_ns)
        if part is not None:
            signal = folded(header.kind, header.bits, header.signal, part)
            header = header._replace(signal=signal, hops=min(255, header.hops + 1))
        found.append(left._replace(payload=header.pack() + entered.payload[header.length :]))
    return found
