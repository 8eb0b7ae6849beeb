# SPDX-License-Identifier: Apache-2.0
"""The congestion headers (docs/formats.md section 6), which hosts and switches exchange as a UDP payload."""

from __future__ import annotations

import struct
from enum import IntEnum, IntFlag
from typing import NamedTuple

from qbed.base.errors import QbedError

PORT = 6190
VERSION = 1
COMPACT = 2
COMPACT_BYTES = 20
"""Length of a compact header without its signal."""
MAX_BITS = 32
_LAYOUT = struct.Struct("!8BIHBB9Q")  # the two signals are two words each
HEADER_BYTES = 88
assert _LAYOUT.size == HEADER_BYTES
_WORD = (1 << 64) - 1


class Type(IntEnum):
    DATA = 1
    ACK = 2
    FEEDBACK = 3


class Kind(IntEnum):
    """The signal that a packet requests."""

    NONE = 0
    SUM = 1
    SUM_SQU = 2
    MAX = 3
    IND = 4
    VECTOR = 5


class Unit(IntEnum):
    PACKETS = 0
    BYTES = 1
    NS = 2


class Flag(IntFlag):
    REFLECTED = 1
    """A congestion point has sent feedback for this packet."""
    LAST = 2
    """This data packet carries the end of the flow."""
    FORWARD = 4
    """Compact header: switches leave the acknowledgement's signal alone."""


class HeaderError(QbedError):
    """Raised if a payload is no congestion header. `verdict`: `unknown version`, `too short` or `malformed`."""

    def __init__(self, verdict: str, message: str) -> None:
        super().__init__(message)
        self.verdict = verdict


class Header(NamedTuple):
    """The header's fields in wire order."""

    version: int = VERSION
    type: int = Type.DATA
    flags: int = 0
    kind: int = Kind.NONE
    unit: int = Unit.PACKETS
    bits: int = MAX_BITS
    hops: int = 0
    echo_hops: int = 0
    flow: int = 0
    feedback: int = 0
    feedback_bits: int = 0
    reserved: int = 0
    sequence: int = 0
    offset: int = 0
    window: int = 0
    time: int = 0
    echo_time: int = 0
    signal: int = 0
    echo_signal: int = 0

    @property
    def signal_bits(self) -> int:
        """Bits of a compact header's signal."""
        return {Kind.SUM: self.bits + 4, Kind.MAX: self.bits, Kind.IND: 1}.get(Kind(self.kind), 0)

    @property
    def length(self) -> int:
        """Length on the wire."""
        if self.version == VERSION:
            return HEADER_BYTES
        return COMPACT_BYTES + next(size for size in (0, 1, 2, 4, 8) if 8 * size >= self.signal_bits)

    def pack(self) -> bytes:
        """Encode the header."""
        if self.version == COMPACT:
            return self._pack_compact()
        signals = [word for value in self[-2:] for word in (value >> 64, value & _WORD)]
        return _LAYOUT.pack(*self[:-2], *signals)

    def _pack_compact(self) -> bytes:
        flags = bool(self.flags & Flag.LAST) << 5 | bool(self.flags & Flag.FORWARD) << 4 | bool(self.hops) << 3
        position = self.window if self.type == Type.ACK else self.offset
        signal = min(self.signal, (1 << self.signal_bits) - 1)
        numbers = ((self.flow, 4), (self.sequence, 6), (position, 7), (signal, self.length - COMPACT_BYTES))
        start = bytes((self.version, self.type << 6 | flags | self.kind, self.unit << 6 | self.bits - 1))
        return start + b"".join(value.to_bytes(size, "big") for value, size in numbers)


def parse(payload: bytes) -> Header:
    """Parse the header at the start of a UDP payload. Raise `HeaderError` if a switch may not add to it."""
    if payload and payload[0] == COMPACT:
        return _parse_compact(payload)
    if payload and payload[0] != VERSION:
        raise HeaderError("unknown version", f"a congestion header of version {payload[0]}: expected {VERSION}")
    if len(payload) < HEADER_BYTES:
        raise HeaderError("too short", f"a congestion header of {len(payload)} bytes: expected {HEADER_BYTES}")
    *fields, high, low, echo_high, echo_low = _LAYOUT.unpack_from(payload)
    header = Header._make((*fields, high << 64 | low, echo_high << 64 | echo_low))
    for name, known in (("type", Type), ("kind", Kind), ("unit", Unit)):
        if getattr(header, name) not in {member.value for member in known}:
            raise HeaderError("malformed", f"a congestion header whose {name} is {getattr(header, name)}")
    if header.kind != Kind.NONE and not 1 <= header.bits <= MAX_BITS:
        raise HeaderError("malformed", f"a congestion header with {header.bits} bits")
    return header


def _parse_compact(payload: bytes) -> Header:
    if len(payload) < COMPACT_BYTES:
        raise HeaderError("too short", f"a compact header of {len(payload)} bytes")
    first, second = payload[1:3]
    header = Header(
        version=COMPACT,
        type=first >> 6,
        flags=bool(first & 0x20) * Flag.LAST | bool(first & 0x10) * Flag.FORWARD,
        kind=first & 7,
        unit=second >> 6,
        bits=(second & 31) + 1,
        hops=first >> 3 & 1,
        flow=int.from_bytes(payload[3:7], "big"),
        sequence=int.from_bytes(payload[7:13], "big"),
    )
    if header.type not in (Type.DATA, Type.ACK) or header.unit > Unit.NS:
        raise HeaderError("malformed", f"a compact header of type {header.type} in unit {header.unit}")
    if header.kind not in (Kind.NONE, Kind.SUM, Kind.MAX, Kind.IND):
        raise HeaderError("malformed", f"a compact header of kind {header.kind}")
    if len(payload) < header.length:
        raise HeaderError("too short", f"a compact header of {len(payload)} bytes: expected {header.length}")
    position, signal = (int.from_bytes(payload[start:end], "big") for start, end in ((13, 20), (20, header.length)))
    field = "window" if header.type == Type.ACK else "offset"
    return header._replace(signal=signal, **{field: position})
