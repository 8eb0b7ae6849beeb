# SPDX-License-Identifier: Apache-2.0
"""Packets and the lines of STF files. It shares no code with the tested programs."""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from wire import vectors as wire

UDP, TCP, ICMP = 17, 6, 1
A, B, ELSEWHERE = "10.0.1.1", "10.0.2.1", "10.9.9.9"
A6, B6 = "fd00:1::1", "fd00:2::1"
ROUTER = 0x020000000000
"""The MAC address of port 0; port N adds N, and its neighbour 0x100 + N."""
LICENCE = "# SPDX-License-Identifier: Apache-2.0\n# Written by tests/p4/stf.py.\n"


def number(address: str) -> str:
    return f"0x{ipaddress.ip_address(address).packed.hex()}"


@dataclass(frozen=True)
class Packet:
    """An IP packet in a frame; the fields are written as given."""

    source: str = A
    destination: str = B
    protocol: int = UDP
    transport: bytes = b""
    hops: int = 64
    dsfield: int = 0
    options: bytes = b""
    extensions: tuple[tuple[int, bytes], ...] = ()
    vlans: tuple[int, ...] = ()
    fragment: int = 0
    identification: int = 7
    damage: int = 0
    """Added to the checksum of IPv4."""
    ethernet: bytes = field(default=bytes(6) + bytes.fromhex("020000000a0a"))

    def ip(self) -> bytes:
        source, destination = (ipaddress.ip_address(x) for x in (self.source, self.destination))
        if source.version == 4:
            words = 5 + len(self.options) // 4
            total = 4 * words + len(self.transport)
            start = struct.pack(
                "!BBHHHBB",
                0x40 | words,
                self.dsfield,
                total,
                self.identification,
                self.fragment,
                self.hops,
                self.protocol,
            )
            rest = source.packed + destination.packed + self.options
            check = 0xFFFF - wire.ones_complement_sum(start + rest) + self.damage
            return start + struct.pack("!H", check) + rest + self.transport
        content = self.transport
        following = self.protocol
        for extension, inside in reversed(self.extensions):
            content = bytes([following, (len(inside) + 2) // 8 - 1]) + inside + content
            following = extension
        start = struct.pack("!IHBB", 6 << 28 | self.dsfield << 20, len(content), following, self.hops)
        return start + source.packed + destination.packed + content

    def frame(self) -> bytes:
        kind = 0x0800 if ipaddress.ip_address(self.source).version == 4 else 0x86DD
        tags = b"".join(struct.pack("!HH", 0x8100, tag) for tag in self.vlans)
        return self.ethernet + tags + struct.pack("!H", kind) + self.ip()

    def routed(self, port: int, **changes: object) -> Packet:
        ethernet = (ROUTER + 0x100 + port).to_bytes(6, "big") + (ROUTER + port).to_bytes(6, "big")
        return replace(self, ethernet=ethernet, hops=self.hops - 1, **changes)  # type: ignore[arg-type]

    def back(self) -> Packet:
        ports = self.transport[2:4] + self.transport[:2]
        return replace(self, source=self.destination, destination=self.source, transport=ports + self.transport[4:])


def udp(source: int, destination: int, payload: bytes = b"payload") -> bytes:
    """A UDP datagram without a checksum."""
    return struct.pack("!HHHH", source, destination, 8 + len(payload), 0) + payload


def tcp(source: int, destination: int, flags: int = 0x10, payload: bytes = b"") -> bytes:
    return struct.pack("!HHIIBBHHH", source, destination, 1, 2, 0x50, flags, 100, 0x1234, 0) + payload


def passes(packet: Packet, port: int, comment: str, **changes: object) -> str:
    return (
        f"# {comment}\npacket 1 {packet.frame().hex()}\nexpect {port} {packet.routed(port, **changes).frame().hex()}$\n"
    )


def dropped(frame: bytes, comment: str) -> str:
    return f"# {comment}: dropped\npacket 1 {frame.hex()}\n"


def route(prefix: str, first: int, count: int = 1, shift: int = 0) -> str:
    network = ipaddress.ip_network(prefix)
    return (
        f"add ipv{network.version}_routes destination:{number(str(network.network_address))}/{network.prefixlen} "
        f"route(first:{first}, count:{count}, shift_by:{shift})\n"
    )


def next_hop(hop: int) -> str:
    return (
        f"add next_hops hop:{hop} send(port:{hop}, source:0x{ROUTER + hop:012x}, "
        f"destination:0x{ROUTER + 0x100 + hop:012x})\n"
    )


def routes() -> Iterator[str]:
    """Routes and next hops, numbered by their ports. Hops 4 to 6 are the paths from A to B, 7 to 9 those back."""
    yield route("10.0.2.0/24", 2)
    yield route("10.0.2.128/25", 3)
    yield route("fd00:2::/64", 2)
    yield route("fd00:2::8000:0:0:0/65", 3)
    yield route("10.1.2.0/24", 4, 3)
    yield route("10.1.1.0/24", 7, 3)
    yield route("fd01:2::/64", 4, 3, 16)
    yield route("fd01:1::/64", 7, 3, 16)
    yield route("10.8.0.0/16", 99)
    yield from (next_hop(hop) for hop in range(2, 10))


def output_port(port: int) -> str:
    return route(f"10.2.{port}.0/24", port) + route(f"fd02:{port:x}::/64", port) + next_hop(port)


def rechecked(packet: Packet) -> Packet:
    """A packet with its UDP checksum recomputed."""
    transport = packet.transport
    addresses = b"".join(ipaddress.ip_address(x).packed for x in (packet.source, packet.destination))
    pseudo = addresses + struct.pack("!HH", UDP, len(transport)) + transport[:6] + bytes(2) + transport[8:]
    check = (0xFFFF - wire.ones_complement_sum(pseudo)) or 0xFFFF
    return replace(packet, transport=transport[:6] + struct.pack("!H", check) + transport[8:])
