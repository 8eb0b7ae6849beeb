# SPDX-License-Identifier: Apache-2.0
"""Reads nanosecond pcap files, for tests."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import NamedTuple

MAGIC_NS = 0xA1B23C4D


class Packet(NamedTuple):
    """One captured frame; `time_ns` counts from the lab's epoch."""

    time_ns: int
    length: int
    data: bytes

    @property
    def udp_payload(self) -> int | None:
        """The UDP payload's length, None for anything but IPv4 UDP."""
        if self.data[12:14] != b"\x08\x00" or self.data[23] != 17:
            return None
        return int(struct.unpack_from("!H", self.data, 38)[0]) - 8

    @property
    def source(self) -> bytes:
        return self.data[26:30]


def read_pcap(path: Path) -> list[Packet]:
    raw = path.read_bytes()
    magic = struct.unpack_from("<I", raw)[0]
    assert magic == MAGIC_NS, f"{path} is not a nanosecond pcap: {magic:#x}"
    at, packets = 24, []
    while at < len(raw):
        seconds, ns, kept, length = struct.unpack_from("<IIII", raw, at)
        packets.append(Packet(seconds * 1_000_000_000 + ns, length, raw[at + 16 : at + 16 + kept]))
        at += 16 + kept
    return packets


def segment_of(frame: bytes) -> tuple[bytes, int, bytes]:
    """The addresses, protocol and segment (header and data) of a whole frame of TCP or UDP."""
    ip = frame[14:]
    version = ip[0] >> 4
    length, protocol = (ip[0] % 16 * 4, ip[9]) if version == 4 else (40, ip[6])
    end = int.from_bytes(ip[2:4]) if version == 4 else 40 + int.from_bytes(ip[4:6])
    assert protocol in (6, 17) and end <= len(ip), "not a whole frame of TCP or UDP"
    return ip[12:20] if version == 4 else ip[8:40], protocol, ip[length:end]


def checksum_is_right(frame: bytes) -> bool:
    """Of TCP or UDP: the one that covers the payload (RFC 1071)."""
    addresses, protocol, segment = segment_of(frame)
    data = addresses + struct.pack(">II", len(segment), protocol) + segment + b"\0" * (len(segment) % 2)
    return not sum(struct.unpack(f">{len(data) // 2}H", data)) % 0xFFFF


def tcp_payload(frame: bytes) -> bytes:
    """Of a whole frame of TCP."""
    _, _, segment = segment_of(frame)
    return segment[segment[12] // 16 * 4 :]
