# SPDX-License-Identifier: Apache-2.0
"""Read nanosecond pcap files and the headers of their frames."""

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
        """The UDP payload's length; None if the frame is not UDP over IPv4."""
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
    offset, packets = 24, []
    while offset < len(raw):
        seconds, ns, kept, length = struct.unpack_from("<IIII", raw, offset)
        packets.append(Packet(seconds * 1_000_000_000 + ns, length, raw[offset + 16 : offset + 16 + kept]))
        offset += 16 + kept
    return packets


def ip_segment(frame: bytes) -> tuple[bytes, int, bytes]:
    """The addresses, the protocol and the segment (header and data) of a complete TCP or UDP frame."""
    ip = frame[14:]
    version = ip[0] >> 4
    length, protocol = (ip[0] % 16 * 4, ip[9]) if version == 4 else (40, ip[6])
    end = int.from_bytes(ip[2:4]) if version == 4 else 40 + int.from_bytes(ip[4:6])
    assert protocol in (6, 17) and end <= len(ip), "expected a complete frame of TCP or UDP"
    return ip[12:20] if version == 4 else ip[8:40], protocol, ip[length:end]


def has_valid_checksum(frame: bytes) -> bool:
    """Whether the checksum of a TCP or UDP frame is valid (RFC 1071)."""
    addresses, protocol, segment = ip_segment(frame)
    data = addresses + struct.pack(">II", len(segment), protocol) + segment + b"\0" * (len(segment) % 2)
    return not sum(struct.unpack(f">{len(data) // 2}H", data)) % 0xFFFF


def tcp_payload(frame: bytes) -> bytes:
    """The payload of a complete TCP frame."""
    _, _, segment = ip_segment(frame)
    return segment[segment[12] // 16 * 4 :]
