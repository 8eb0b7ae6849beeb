# SPDX-License-Identifier: Apache-2.0
"""Write vectors.json: IP packets with the congestion header, their fields, and the packets after a series of queues.

    .venv/bin/python tests/wire/vectors.py > tests/wire/vectors.json

It shares no code with the tested programs: it places each field as docs/formats.md, section 6, specifies.
"""

from __future__ import annotations

import ipaddress
import json
import struct
import sys
from typing import Any

DATA, ACK, FEEDBACK = 1, 2, 3
NONE, SUM, SUM_SQU, MAX, IND, VECTOR = range(6)
PACKETS, BYTES, NS = range(3)
PORT, SENDER = 6190, 40000
SIZES = {
    **dict.fromkeys(("version", "type", "flags", "kind", "unit", "bits", "hops", "echo_hops"), 1),
    **{"flow": 4, "feedback": 2, "feedback_bits": 1, "reserved": 1},
    **dict.fromkeys(("sequence", "offset", "window", "time", "echo_time"), 8),
    **{"signal": 16, "echo_signal": 16},
}
DATA_FIELDS = {
    "version": 1, "type": DATA, "kind": MAX, "unit": BYTES, "bits": 8, "hops": 3, "flow": 0x01020304,
    "sequence": 0x1112131415161718, "offset": 0x2122232425262728, "time": 0x3132333435363738, "signal": 0x41424344,
}  # fmt: skip
ACK_FIELDS = DATA_FIELDS | {
    "type": ACK, "hops": 5, "echo_hops": 3, "offset": 150_000, "window": 0x8000000000000005, "time": 3_000_000_700,
    "echo_time": 3_000_000_000, "signal": 0x5152535455565758595A5B5C5D5E5F60, "echo_signal": 0x41424344,
}  # fmt: skip
FEEDBACK_FIELDS = {
    "version": 1, "type": FEEDBACK, "flow": 7, "feedback": 42, "feedback_bits": 6, "sequence": 99,
    "time": 2_000_001_234, "echo_time": 2_000_000_000,
}  # fmt: skip
REFLECTED, LAST = 1, 2


COMPACT_DATA_FIELDS = {
    "version": 2, "type": DATA, "kind": MAX, "unit": PACKETS, "bits": 4, "hops": 1, "flow": 0x01020304,
    "sequence": 0x111213141516, "offset": 0x21222324252627, "signal": 9,
}  # fmt: skip
COMPACT_ACK_FIELDS = COMPACT_DATA_FIELDS | {"type": ACK, "offset": 0, "window": 0x80000000000005}
FORWARD = 4


def compact_bits(fields: dict[str, int]) -> int:
    """Bits of the signal in a compact header: a sum has four more than a queue."""
    bits = fields.get("bits", 1)
    return {SUM: bits + 4, MAX: bits, IND: 1}.get(fields.get("kind", 0), 0)


def compact_header(fields: dict[str, int]) -> bytes:
    flags, bits = fields.get("flags", 0), compact_bits(fields)
    size = next(size for size in (0, 1, 2, 4, 8) if 8 * size >= bits)
    first = fields["type"] << 6 | bool(flags & LAST) << 5 | bool(flags & FORWARD) << 4
    first |= bool(fields.get("hops", 0)) << 3 | fields.get("kind", 0)
    second = fields.get("unit", 0) << 6 | fields.get("bits", 1) - 1
    position = fields.get("offset", 0) or fields.get("window", 0)
    numbers = (
        (fields.get("flow", 0), 4),
        (fields.get("sequence", 0), 6),
        (position, 7),
        (fields.get("signal", 0), size),
    )
    return bytes((fields["version"], first, second)) + b"".join(number.to_bytes(n, "big") for number, n in numbers)


def header(fields: dict[str, int]) -> bytes:
    if fields.get("version") == 2:
        return compact_header(fields)
    return b"".join(fields.get(name, 0).to_bytes(size, "big") for name, size in SIZES.items())


def ones_complement_sum(data: bytes) -> int:
    total: int = sum(struct.unpack(f"!{(len(data) + 1) // 2}H", data + bytes(len(data) % 2)))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def packet(payload: bytes, family: int, ports: tuple[int, int] = (SENDER, PORT), checksum: bool = True) -> bytes:
    length = 8 + len(payload)
    udp = struct.pack("!HHH", *ports, length)
    if family == 4:
        source, destination = (ipaddress.ip_address(f"10.0.0.{n}").packed for n in (1, 2))
        ip = struct.pack("!BBHHHBBH", 0x45, 0, 20 + length, 0, 0x4000, 64, 17, 0) + source + destination
        ip = ip[:10] + struct.pack("!H", 0xFFFF - ones_complement_sum(ip)) + ip[12:]
        pseudo = source + destination + struct.pack("!HH", 17, length)
    else:
        source, destination = (ipaddress.ip_address(f"fd00::{n}").packed for n in (1, 2))
        ip = struct.pack("!IHBB", 6 << 28, length, 17, 64) + source + destination
        pseudo = source + destination + struct.pack("!II", length, 17)
    check = (0xFFFF - ones_complement_sum(pseudo + udp + b"\0\0" + payload)) or 0xFFFF
    return ip + udp + struct.pack("!H", check if checksum else 0) + payload


def vector(name: str, family: int, fields: dict[str, int], payload: bytes = b"", verdict: str = "header",
           ports: tuple[int, int] = (SENDER, PORT), keep: int | None = None) -> dict[str, Any]:  # fmt: skip
    """A packet and the parser's verdict on it; `keep` truncates the UDP payload."""
    data = packet((header(fields) + payload)[:keep], family, ports)
    payload_at = 28 if family == 4 else 48
    found: dict[str, Any] = {"name": name, "payload_at": payload_at, "verdict": verdict, "packet": data.hex()}
    if verdict == "header":
        values = {field: fields.get(field, 0) for field in SIZES}
        found["header"] = {k: f"{v:032x}" if SIZES[k] == 16 else v for k, v in values.items()}
    return found


def packets() -> list[dict[str, Any]]:
    reflected = DATA_FIELDS | {"flags": REFLECTED | LAST, "feedback": 63, "feedback_bits": 6}
    back = (PORT, SENDER)
    return [
        vector("data, IPv4", 4, DATA_FIELDS, b"payload"),
        vector("data, IPv6", 6, DATA_FIELDS, b"payload"),
        vector("the last data of a flow, reflected, IPv4", 4, reflected, bytes(1384)),
        vector("acknowledgement, IPv4", 4, ACK_FIELDS, ports=back),
        vector("acknowledgement, IPv6", 6, ACK_FIELDS, ports=back),
        vector("feedback, IPv4", 4, FEEDBACK_FIELDS, ports=back),
        vector("feedback, IPv6", 6, FEEDBACK_FIELDS, ports=back),
        vector("every bit set that may be", 6, {
            **{name: 256**size - 1 for name, size in SIZES.items()},
            **{"version": 1, "type": ACK, "kind": VECTOR, "unit": NS, "bits": 32, "reserved": 0},
        }),
        vector("no signal is requested", 4, {"version": 1, "type": DATA}),
        vector("version 3, longer", 4, DATA_FIELDS | {"version": 3}, bytes(12), "unknown version"),
        vector("version 0", 6, DATA_FIELDS | {"version": 0}, b"", "unknown version"),
        vector("version 3, a single byte", 4, {"version": 3}, b"", "unknown version", keep=1),
        vector("a byte is missing", 4, DATA_FIELDS, b"", "too short", keep=87),
        vector("an empty datagram", 6, {}, b"", "too short", keep=0),
        vector("a type without a meaning", 4, DATA_FIELDS | {"type": 4}, b"", "malformed"),
        vector("a kind without a meaning", 4, DATA_FIELDS | {"kind": 6}, b"", "malformed"),
        vector("a unit without a meaning", 4, DATA_FIELDS | {"unit": 3}, b"", "malformed"),
        vector("a unit without a meaning, and no kind", 4, {"version": 1, "type": DATA, "unit": 3}, b"", "malformed"),
        vector("no bits", 4, DATA_FIELDS | {"bits": 0}, b"", "malformed"),
        vector("33 bits", 6, DATA_FIELDS | {"bits": 33}, b"", "malformed"),
        vector("compact data, 4 bits, IPv4", 4, COMPACT_DATA_FIELDS, b"payload"),
        vector("compact data, 9 bits, IPv6", 6, COMPACT_DATA_FIELDS | {"bits": 9, "signal": 300}, b"payload"),
        vector("compact data, the last, bytes", 4, COMPACT_DATA_FIELDS | {"flags": LAST, "unit": BYTES}, bytes(1451)),
        vector("compact data, IND", 4, COMPACT_DATA_FIELDS | {"kind": IND, "signal": 1}),
        vector("compact data, a sum of 32 bits each", 6, COMPACT_DATA_FIELDS | {
            "kind": SUM, "bits": 32, "signal": 2**36 - 1
        }),
        vector("compact data that asks for no signal", 4, COMPACT_DATA_FIELDS | {"kind": NONE, "hops": 0, "signal": 0}),
        vector("compact acknowledgement, IPv4", 4, COMPACT_ACK_FIELDS, ports=back),
        vector("compact acknowledgement, forward, IPv6", 6, COMPACT_ACK_FIELDS | {"flags": FORWARD}, ports=back),
        vector("a compact header without a byte of its signal", 4, COMPACT_DATA_FIELDS, b"", "too short", keep=20),
        vector("a compact header of one byte", 4, COMPACT_DATA_FIELDS, b"", "too short", keep=1),
        vector("compact feedback", 4, COMPACT_DATA_FIELDS | {"type": FEEDBACK}, b"", "malformed"),
        vector("a compact header without a type", 4, COMPACT_DATA_FIELDS | {"type": 0}, b"", "malformed"),
        vector("a compact sum of squares", 4, COMPACT_DATA_FIELDS | {"kind": SUM_SQU, "signal": 0}, b"", "malformed"),
        vector("a compact vector", 4, COMPACT_DATA_FIELDS | {"kind": VECTOR, "signal": 0}, b"", "malformed"),
        vector("a unit without a meaning, compact", 6, COMPACT_DATA_FIELDS | {"unit": 3}, b"", "malformed"),
    ]  # fmt: skip


def path(name: str, family: int, kind: int, parts: list[int], before: int = 0, hops: int = 0,
        checksum: bool = True, bits: int = 32, fields: dict[str, int] = DATA_FIELDS) -> dict[str, Any]:  # fmt: skip
    """A packet before and after a series of queues of the lengths `parts`."""
    start = fields | {"kind": kind, "bits": bits, "hops": hops, "signal": before}
    maximum = 2**128 - 1 if fields["version"] == 1 else 2 ** compact_bits(start) - 1
    signal = before
    for part in parts:
        signal = {
            NONE: signal,
            SUM: min(maximum, signal + part),
            SUM_SQU: min(maximum, signal + part * part),
            MAX: max(signal, part),
            IND: max(signal, part),
            VECTOR: (signal * 2**bits + min(part, 2**bits - 1)) % 2**128,
        }[kind]
    end = start | {"signal": signal, "hops": min(255, hops + len(parts) * (kind != NONE))}
    return {
        "name": name,
        "payload_at": 28 if family == 4 else 48,
        "parts": parts,
        "before": packet(header(start) + b"odd", family, checksum=checksum).hex(),
        "after": packet(header(end) + b"odd", family, checksum=checksum).hex(),
    }


def paths() -> list[dict[str, Any]]:
    full = 2**32 - 1
    return [
        path("SUM", 4, SUM, [0, 1, 1500, full]),
        path("MAX", 6, MAX, [0, 1500, 7]),
        path("IND", 4, IND, [0, 1, 0]),
        path("VECTOR, 8 bits a queue", 4, VECTOR, [7, 0, 255, 256, 1], bits=8),
        path("VECTOR, 32 bits a queue: the last four", 6, VECTOR, [1, 2, 3, full, full + 1, 5]),
        path("VECTOR, 7 bits a queue", 6, VECTOR, [*range(100, 120)], bits=7),
        path("VECTOR, 1 bit a queue", 4, VECTOR, [0, 1, 2] * 50, bits=1, hops=200),
        path("no signal is requested", 4, NONE, [5, 6]),
        path("squares of 16 full queues, in bytes: 68 bits", 4, SUM_SQU, [full] * 16),
        path("squares of 16 full queues, in bytes: 68 bits, IPv6", 6, SUM_SQU, [full] * 16),
        path("a carry into the upper half", 4, SUM, [1], before=2**64 - 1),
        path("a sum is never more than 128 bits have", 4, SUM, [full], before=2**128 - 2),
        path("the squares of the largest numbers, neither", 6, SUM_SQU, [2**64 - 1] * 2),
        path("hops end at 255", 4, SUM, [1, 1], hops=254),
        path("without a checksum", 4, SUM, [12345], checksum=False),
        path("a checksum that is 0 is sent as 0xffff", 4, SUM, [ZERO]),
        path("and that one changes, too", 4, SUM, [1], before=ZERO, hops=1),
        path("compact MAX", 4, MAX, [3, 15, 7], bits=4, fields=COMPACT_DATA_FIELDS),
        path("compact MAX, in an acknowledgement", 6, MAX, [3, 15, 7], bits=4, fields=COMPACT_ACK_FIELDS),
        path("compact MAX, 16 bits", 4, MAX, [1, 65535], bits=16, fields=COMPACT_DATA_FIELDS),
        path("compact SUM", 4, SUM, [15] * 16, bits=4, fields=COMPACT_DATA_FIELDS),
        path("a compact sum has room for 16 full queues", 6, SUM, [15] * 18, bits=4, fields=COMPACT_DATA_FIELDS),
        path("compact IND", 4, IND, [0, 1, 0], bits=1, fields=COMPACT_DATA_FIELDS),
        path("compact, nothing is asked for", 4, NONE, [5, 6], fields=COMPACT_DATA_FIELDS),
        path("compact, without a checksum", 4, MAX, [5], bits=4, fields=COMPACT_DATA_FIELDS, checksum=False),
    ]


def _part_for_zero() -> int:
    """The length of a queue for which the packet's checksum is 0."""
    for part in range(1 << 17):
        start = DATA_FIELDS | {"kind": SUM, "bits": 32, "hops": 1, "signal": part}
        if packet(header(start) + b"odd", 4)[26:28] == b"\xff\xff":
            return part
    raise AssertionError


ZERO = _part_for_zero()

if __name__ == "__main__":
    json.dump({"packets": packets(), "paths": paths()}, sys.stdout, indent=1)
    sys.stdout.write("\n")
