# SPDX-License-Identifier: Apache-2.0
"""The expected behaviour of rpm, computed from captures: CoDel's decisions, and the acknowledgements that carry them.

CoDel is implemented in the kernel's fixed-point arithmetic (net/codel_impl.h; RFC 8289, 5), for a queue of
ECN-capable packets that never overflows: every decision is a mark and nothing is dropped.
"""

from __future__ import annotations

import struct
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from qbed_testing.pcap import Packet

ETHERNET = 14
FIN, SYN, RST, ACK, ECE, CWR = 0x01, 0x02, 0x04, 0x10, 0x40, 0x80
CE = 3


class Segment(NamedTuple):
    """A TCP segment in a captured frame."""

    time_ns: int
    frame_bytes: int
    ecn: int
    flow: tuple[bytes, bytes, int, int]
    """Source, destination, and their ports."""
    sequence: int
    acknowledged: int
    flags: int
    payload: int
    ip_checksum_holds: bool
    tcp_checksum_holds: bool | None
    """None: the capture is shorter than the packet."""

    @property
    def back(self) -> tuple[bytes, bytes, int, int]:
        """The flow of the opposite direction."""
        source, destination, source_port, destination_port = self.flow
        return destination, source, destination_port, source_port

    @property
    def identity(self) -> tuple[object, ...]:
        """The fields that a switch does not modify."""
        return self.flow, self.sequence, self.acknowledged, self.flags & ~ECE, self.payload


def ones_complement_holds(data: bytes) -> bool:
    """Check a checksum (RFC 1071): the sum over data that contains it is 0xffff."""
    words = struct.unpack(f"!{(len(data) + 1) // 2}H", data + bytes(len(data) % 2))
    total: int = sum(words)
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total == 0xFFFF


def tcp_segment(packet: Packet) -> Segment | None:
    """Parse the TCP segment in a frame without VLAN tags or IPv6 extension headers."""
    ip = packet.data[ETHERNET:]
    if ip[0] >> 4 == 4:
        header, protocol, end = (ip[0] & 15) * 4, ip[9], struct.unpack_from("!H", ip, 2)[0]
        ecn, source, destination = ip[1] & 3, ip[12:16], ip[16:20]
    else:
        header, protocol, end = 40, ip[6], 40 + struct.unpack_from("!H", ip, 4)[0]
        ecn, source, destination = ip[1] >> 4 & 3, ip[8:24], ip[24:40]
    if protocol != 6:
        return None
    tcp = ip[header:end]
    ports = struct.unpack_from("!HH", tcp)
    sequence, acknowledged, offset, flags = struct.unpack_from("!IIBB", tcp, 4)
    pseudo = source + destination + struct.pack("!II", end - header, 6)
    return Segment(
        packet.time_ns,
        packet.length,
        ecn,
        (source, destination, *ports),
        sequence,
        acknowledged,
        flags,
        end - header - (offset >> 4) * 4,
        header == 40 or ones_complement_holds(ip[:header]),
        ones_complement_holds(pseudo + tcp) if len(ip) >= end else None,
    )


def segments(packets: Iterable[Packet]) -> Iterator[Segment]:
    """Yield the TCP segments among packets."""
    return (found for found in map(tcp_segment, packets) if found)


@dataclass
class CoDel:
    """CoDel (RFC 8289) as implemented in Linux. Internal times are in units of its clock."""

    target_ns: int
    interval_ns: int
    epoch_ns: int
    """The captures' time origin on the kernel's clock, which affects rounding."""
    unit_ns: int = 1024
    mtu: int = 1514
    first_above: int = 0
    dropping: bool = False
    drop_next: int = 0
    count: int = 0
    last_count: int = 0
    inverse_root: int = 0

    def _clock(self, time_ns: int) -> int:
        return (self.epoch_ns + time_ns) // self.unit_ns

    def _newton(self) -> None:
        root = self.inverse_root << 16
        value = ((3 << 32) - self.count * (root * root >> 32)) >> 2
        self.inverse_root = (value * root >> 31) >> 16

    def _law(self, time: int) -> int:
        return time + (self.interval_ns // self.unit_ns * (self.inverse_root << 16) >> 32)

    def _above(self, waited: int, backlog: int, now: int) -> bool:
        if waited < self.target_ns // self.unit_ns or backlog <= self.mtu:
            self.first_above = 0
            return False
        if not self.first_above:
            self.first_above = now + self.interval_ns // self.unit_ns
            return False
        return now > self.first_above

    def dequeue(self, now_ns: int, enqueued_ns: int, backlog: int) -> bool:
        """Return whether the packet is marked. `backlog`: bytes that remain in the queue"""
        now = self._clock(now_ns)
        above = self._above(now - self._clock(enqueued_ns), backlog, now)
        if self.dropping:
            if not above:
                self.dropping = False
            elif now >= self.drop_next:
                self.count += 1
                self._newton()
                self.drop_next = self._law(self.drop_next)
                return True
            return False
        if not above:
            return False
        self.dropping = True
        delta = self.count - self.last_count
        if delta > 1 and now - self.drop_next < 16 * (self.interval_ns // self.unit_ns):
            self.count = delta
            self._newton()
        else:
            self.count, self.inverse_root = 1, 0xFFFF
        self.last_count = self.count
        self.drop_next = self._law(now)
        return True


@dataclass
class Expected:
    """The expected results for the traffic at a port."""

    decisions: list[Segment] = field(default_factory=list)
    echoes: list[tuple[Segment, bool]] = field(default_factory=list)
    """Every acknowledgement as received, and whether the switch must set ECE in it."""
    waited_ns: int = 0
    pending: int = 0


def expect(codel: CoDel, arriving: Iterable[Segment], port: Iterable[Segment], *, per_port: bool = False) -> Expected:
    """Replay a port. `arriving`: packets that enter its queue; `port`: packets sent and received on it, in order"""
    port = list(port)
    position = {segment.identity: number for number, segment in reversed(list(enumerate(port)))}
    queue = deque(sorted(arriving, key=lambda segment: (segment.time_ns, position.get(segment.identity, len(port)))))
    expected = Expected()
    registers: dict[object, deque[int]] = defaultdict(deque)
    for segment in port:
        if queue and segment.identity == queue[0].identity:
            enqueued = queue.popleft()
            backlog = sum(waiting.frame_bytes for waiting in queue if waiting.time_ns <= segment.time_ns)
            if codel.dequeue(segment.time_ns, enqueued.time_ns, backlog):
                expected.decisions.append(enqueued)
                registers["port" if per_port else segment.flow].append(segment.time_ns)
            continue
        register = registers["port" if per_port else segment.back]
        carries = bool(register) and bool(segment.flags & ACK) and not segment.flags & (SYN | RST)
        if carries:
            expected.waited_ns += segment.time_ns - register.popleft()
        expected.echoes.append((segment, carries))
    expected.pending = sum(len(register) for register in registers.values())
    return expected
