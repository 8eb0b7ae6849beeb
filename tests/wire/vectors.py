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


def header(fields: dict[str, int]) -> bytes:
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
        vector("version 2, longer", 4, DATA_FIELDS | {"version": 2}, bytes(12), "unknown version"),
        vector("version 0", 6, DATA_FIELDS | {"version": 0}, b"", "unknown version"),
        vector("version 2, a single byte", 4, {"version": 2}, b"", "unknown version", keep=1),
        vector("a byte is missing", 4, DATA_FIELDS, b"", "too short", keep=87),
        vector("an empty datagram", 6, {}, b"", "too short", keep=0),
        vector("a type without a meaning", 4, DATA_FIELDS | {"type": 4}, b"", "malformed"),
        vector("a kind without a meaning", 4, DATA_FIELDS | {"kind": 6}, b"", "malformed"),
        vector("a unit without a meaning", 4, DATA_FIELDS | {"unit": 3}, b"", "malformed"),
        vector("a unit without a meaning, and no kind", 4, {"version": 1, "type": DATA, "unit": 3}, b"", "malformed"),
        vector("no bits", 4, DATA_FIELDS | {"bits": 0}, b"", "malformed"),
        vector("33 bits", 6, DATA_FIELDS | {"bits": 33}, b"", "malformed"),
    ]  # fmt: skip


def path(name: str, family: int, kind: int, parts: list[int], before: int = 0, hops: int = 0,
        checksum: bool = True, bits: int = 32) -> dict[str, Any]:  # fmt: skip
    """A packet before and after a series of queues of the lengths `parts`."""
    maximum = 2**128 - 1
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
    start = DATA_FIELDS | {"kind": kind, "bits": bits, "hops": hops, "signal": before}
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
