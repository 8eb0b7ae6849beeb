# SPDX-License-Identifier: GPL-2.0-only
"""Prints tests/wire/vectors.json as a C header for test_signal_header.c."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

FORMS = {
    "header": "QSIGNAL_WELL_FORMED",
    "unknown version": "QSIGNAL_UNKNOWN_VERSION",
    "too short": "QSIGNAL_TOO_SHORT",
    "malformed": "QSIGNAL_MALFORMED",
}


def c_bytes(data: bytes) -> str:
    return f"(const u8 []) {{ {', '.join(map(str, data))} }}, {len(data)}"


def c_field(name: str, value: int | str) -> str:
    if isinstance(value, str):
        return f"{{ __builtin_bswap64(0x{value[:16]}ull), __builtin_bswap64(0x{value[16:]}ull) }}"
    bits = {"flow": 32, "feedback": 16, **dict.fromkeys(("sequence", "offset", "window", "time", "echo_time"), 64)}
    return f"__builtin_bswap{bits[name]}({value}ull)" if name in bits else str(value)


def lines(path: Path) -> Iterator[str]:
    vectors = json.loads(path.read_text())
    yield "static const struct packet_vector packet_vectors[] = {"
    for vector in vectors["packets"]:
        header = ", ".join(f".{name} = {c_field(name, value)}" for name, value in vector.get("header", {}).items())
        packet = c_bytes(bytes.fromhex(vector["packet"]))
        form = FORMS[vector["verdict"]]
        yield f'\t{{ "{vector["name"]}", {packet}, {vector["payload_at"]}, {form}, {{ {header} }} }},'
    yield "};"
    yield "static const struct path_vector path_vectors[] = {"
    for vector in vectors["paths"]:
        parts = ", ".join(f"{part}ull" for part in vector["parts"])
        before, after = (c_bytes(bytes.fromhex(vector[when])) for when in ("before", "after"))
        parts = f"(const u64 []) {{ {parts} }}, {len(vector['parts'])}"
        yield f'\t{{ "{vector["name"]}", {before}, {after}, {vector["payload_at"]}, {parts} }},'
    yield "};"


if __name__ == "__main__":
    print("\n".join(lines(Path(sys.argv[1]))))
