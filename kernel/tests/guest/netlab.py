# SPDX-License-Identifier: GPL-2.0-only
"""Minimal netlink library of the kernel tests: nodes, qlinks, qdiscs and queue taps.

It runs in PID 1 of a virtual-time kernel. Attribute numbers: kernel/include/uapi/qbed/.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

libc = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNET = 0x40000000
NETLINK_ROUTE, NETLINK_GENERIC = 0, 16
NLM_F_REQUEST, NLM_F_ACK, NLM_F_REPLACE, NLM_F_CREATE = 1, 4, 0x100, 0x400
NLA_F_NESTED = 0x8000


def check(result: int, what: str) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")
    return result


def mount(source: str, target: str, kind: str, data: str | None = None) -> None:
    check(libc.mount(source.encode(), target.encode(), kind.encode(), 0, data.encode() if data else None), target)


def load(path: str, options: str = "") -> None:
    """Load a kernel module."""
    with Path(path).open("rb") as module:
        check(libc.syscall(313, module.fileno(), options.encode(), 0), path)


def unload(name: str) -> None:
    check(libc.syscall(176, name.encode(), 0), name)


def attribute(number: int, value: bytes | str | int, size: int = 4) -> bytes:
    """One netlink attribute; integers are `size` bytes wide."""
    if isinstance(value, int):
        value = value.to_bytes(size, "little")
    elif isinstance(value, str):
        value = value.encode() + b"\0"
    return struct.pack("<HH", 4 + len(value), number) + value + b"\0" * (-len(value) % 4)


def attributes(data: bytes) -> dict[int, bytes]:
    found = {}
    while len(data) >= 4:
        length, number = struct.unpack_from("<HH", data)
        found[number & 0x3FFF] = data[4:length]
        data = data[(length + 3) & ~3 :]
    return found


def parse_address(text: str) -> tuple[int, bytes]:
    """Parse an IP address. Returns its family and its bytes."""
    family = socket.AF_INET6 if ":" in text else socket.AF_INET
    return family, socket.inet_pton(family, text)


class Netlink:
    """A netlink socket of the namespace in which it was opened."""

    def __init__(self, protocol: int = NETLINK_ROUTE) -> None:
        self.socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        self.socket.settimeout(5)  # in virtual time, so that a request without reply does not hang
        self.socket.bind((0, 0))

    def request(self, kind: int, body: bytes, flags: int = 0) -> list[bytes]:
        """Send a request and return the bodies of the replies; an error reply raises OSError."""
        flags |= NLM_F_REQUEST | NLM_F_ACK
        self.socket.send(struct.pack("<IHHII", 16 + len(body), kind, flags, 1, 0) + body)
        replies: list[bytes] = []
        while True:
            data = self.socket.recv(1 << 20)
            while data:
                length, message_type = struct.unpack_from("<IH", data)
                if message_type == 2:
                    error = -struct.unpack_from("<i", data, 16)[0]
                    if error:
                        raise OSError(error, os.strerror(error))
                    return replies
                if message_type == 3:  # the end of a dump
                    return replies
                replies.append(data[16:length])
                data = data[(length + 3) & ~3 :]


class Node:
    """One network namespace."""

    def __init__(self) -> None:
        check(libc.unshare(CLONE_NEWNET), "unshare")
        self.namespace = os.open("/proc/self/ns/net", os.O_RDONLY)
        self.netlink = Netlink()
        self.set("net/ipv6/conf/default/disable_ipv6", "1")  # no packets on the wire but the test's
        self.up("lo")

    def enter(self) -> None:
        check(libc.setns(self.namespace, CLONE_NEWNET), "setns")

    def index(self, interface: str) -> int:
        self.enter()
        return socket.if_nametoindex(interface)

    def up(self, interface: str, up: bool = True) -> None:
        self.netlink.request(16, struct.pack("<BxHiII", 0, 0, self.index(interface), int(up), 1))

    def address(self, interface: str, address: str, prefix: int) -> None:
        family, packed = parse_address(address)
        body = struct.pack("<BBBBI", family, prefix, 2, 0, self.index(interface))  # IFA_F_NODAD
        self.netlink.request(20, body + attribute(2, packed) + attribute(1, packed), NLM_F_CREATE)

    def route(self, to: str, prefix: int, gateway: str) -> None:
        family, packed = parse_address(to)
        body = struct.pack("<BBBBBBBBI", family, prefix, 0, 0, 254, 4, 0, 1, 0)
        body += attribute(1, packed) if prefix else b""
        self.netlink.request(24, body + attribute(5, parse_address(gateway)[1]), NLM_F_CREATE)

    def neighbour(self, interface: str, address: str, mac: bytes) -> None:
        family, packed = parse_address(address)
        body = struct.pack("<BxxxiHBB", family, self.index(interface), 0x80, 0, 0)
        body += attribute(1, packed) + attribute(2, mac)
        self.netlink.request(28, body, NLM_F_CREATE | NLM_F_REPLACE)

    def qdisc(self, interface: str, kind: str, options: bytes = b"") -> None:
        body = struct.pack("<BxxxiIII", 0, self.index(interface), 0, 0xFFFFFFFF, 0)
        body += attribute(1, kind) + (attribute(2, options) if options else b"")
        self.netlink.request(36, body, NLM_F_CREATE | NLM_F_REPLACE)

    def link(self, interface: str) -> dict[int, bytes]:
        reply = self.netlink.request(18, struct.pack("<BxHiII", 0, 0, self.index(interface), 0, 0))
        return attributes(reply[0][16:])

    def qlink(self, interface: str) -> dict[int, int]:
        """The IFLA_QLINK_* attributes of an end."""
        data = attributes(attributes(self.link(interface)[18])[2])
        return {number: int.from_bytes(value, "little") for number, value in data.items()}

    def socket(self, kind: int = socket.SOCK_DGRAM, family: int = socket.AF_INET) -> socket.socket:
        self.enter()
        return socket.socket(family, kind)

    def set(self, key: str, value: str) -> None:
        self.enter()
        with Path(f"/proc/sys/{key}").open("w") as file:
            file.write(value)


def mac(number: int) -> bytes:
    return b"\x02\0" + number.to_bytes(4, "big")


_macs = iter(range(1, 1 << 31))


def link(
    a: Node,
    interface_a: str,
    b: Node,
    interface_b: str,
    rate_bps: int,
    delay_ns: int,
    extra: bytes = b"",
    mtu: int = 1500,
) -> tuple[bytes, bytes]:
    """Create a qlink with both ends up. Returns the two hardware addresses."""
    address_a, address_b = mac(next(_macs)), mac(next(_macs))
    peer = struct.pack("<BxHiII", 0, 0, 0, 1, 1)
    peer += attribute(3, interface_b) + attribute(1, address_b) + attribute(4, mtu) + attribute(28, b.namespace)
    data = attribute(1 | NLA_F_NESTED, peer) + attribute(2, rate_bps, 8) + attribute(3, delay_ns, 8) + extra
    info = attribute(1, "qlink") + attribute(2 | NLA_F_NESTED, data)
    body = struct.pack("<BxHiII", 0, 0, 0, 1, 1) + attribute(3, interface_a) + attribute(1, address_a)
    body += attribute(4, mtu) + attribute(18 | NLA_F_NESTED, info)
    a.netlink.request(16, body, NLM_F_CREATE | 0x200)
    return address_a, address_b


def subnet(
    a: Node, interface_a: str, b: Node, interface_b: str, number: int, macs: tuple[bytes, bytes]
) -> tuple[str, str]:
    """Assign a /31 to a link, with permanent neighbours. Returns the two addresses."""
    base = (10 << 24) + 2 * number
    addresses = [socket.inet_ntoa(struct.pack(">I", base + i)) for i in (0, 1)]
    a.address(interface_a, addresses[0], 31)
    b.address(interface_b, addresses[1], 31)
    a.neighbour(interface_a, addresses[1], macs[1])
    b.neighbour(interface_b, addresses[0], macs[0])
    return addresses[0], addresses[1]


class Tap:
    """Control interface and record stream of qtap."""

    def __init__(self) -> None:
        self.generic = Netlink(NETLINK_GENERIC)
        reply = self.generic.request(16, struct.pack("<BBH", 3, 1, 0) + attribute(2, "qtap"))
        self.family = struct.unpack("<H", attributes(reply[0][4:])[1])[0]
        self.stream = os.open("/dev/qtap", os.O_RDONLY | os.O_NONBLOCK)

    def attach(
        self,
        node: Node,
        interface: str,
        id: int,
        start_ns: int = 0,
        end_ns: int = 0,
        interval_ns: int = 0,
        events: bool = False,
        bin_bytes: int = 1514,
    ) -> None:
        index = node.index(interface)
        body = struct.pack("<BBH", 1, 1, 0) + attribute(1, index) + attribute(2, id) + attribute(3, int(events))
        body += attribute(4, interval_ns, 8) + attribute(6, bin_bytes)
        body += attribute(5, start_ns, 8) if start_ns else b""
        body += attribute(7, end_ns, 8) if end_ns else b""
        node.enter()
        Netlink(NETLINK_GENERIC).request(self.family, body)

    def command(self, number: int) -> None:
        self.generic.request(self.family, struct.pack("<BBH", number, 1, 0))

    def read(self) -> bytes:
        parts = []
        while True:
            try:
                parts.append(os.read(self.stream, 1 << 20))
            except BlockingIOError:
                return b"".join(parts)

    def flush(self) -> list[Record]:
        self.command(2)
        return list(records(self.read()))

    def detach(self) -> None:
        self.command(3)


SAMPLE = (
    "interval_ns",
    "byte_ns",
    "packet_ns",
    "dequeued_bytes",
    "min_bytes",
    "max_bytes",
    "min_packets",
    "max_packets",
    "enqueued",
    "dequeued",
    "dropped",
    "marked",
)
EVENT = (
    "op",
    "ecn",
    "family",
    "protocol",
    "bytes",
    "queue_bytes",
    "queue_packets",
    "packet",
    "sport",
    "dport",
    "tcp_seq",
    "tcp_ack",
    "payload",
    "tcp_flags",
)
SUMMARY = (
    "duration_ns",
    "byte_ns",
    "packet_ns",
    "max_bytes",
    "max_packets",
    "offered_packets",
    "offered_bytes",
    "sent_packets",
    "sent_bytes",
    "dropped_packets",
    "dropped_bytes",
    "marked_packets",
    "queue_packets",
    "queue_bytes",
    "start_queue_packets",
    "start_queue_bytes",
)


class Record(dict[str, int]):
    """One record of the tap stream; `kind` is sample, event, summary or histogram."""

    kind = ""
    bins: tuple[int, ...] = ()


def samples(id: int, time_ns: int, body: tuple[int, ...]) -> Iterator[Record]:
    """Yield a sample and those of the steady intervals that follow."""
    *first, steady, level_bytes, level_packets, _ = body
    interval = first[0]
    constant = [interval, level_bytes * interval, level_packets * interval, 0]
    constant += [level_bytes, level_bytes, level_packets, level_packets, 0, 0, 0, 0]
    for number in range(steady + 1):
        record = Record(zip(SAMPLE, constant if number else first, strict=True))
        record.kind = "sample"
        record["id"], record["time_ns"] = id, time_ns + number * interval
        yield record


def records(data: bytes) -> Iterator[Record]:
    offset = 0
    while offset < len(data):
        kind, length, id, time_ns = struct.unpack_from("<HHIq", data, offset)
        body = data[offset + 16 : offset + length]
        offset += length
        if kind == 1:
            yield from samples(id, time_ns, struct.unpack("<QQQQ12I", body))
            continue
        elif kind == 2:
            record = Record(zip(EVENT, struct.unpack_from("<BBBBIIIQHHIIHB", body), strict=True))
        elif kind == 3:
            record = Record(zip(SUMMARY, struct.unpack("<16Q", body), strict=True))
        else:
            bin_bytes, bins = struct.unpack_from("<II", body)
            record = Record(bin_bytes=bin_bytes)
            record.bins = struct.unpack_from(f"<{bins}Q", body, 8)
        record.kind = ("", "", "event", "summary", "histogram")[kind]
        record["id"], record["time_ns"] = id, time_ns
        yield record
