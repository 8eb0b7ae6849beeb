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
