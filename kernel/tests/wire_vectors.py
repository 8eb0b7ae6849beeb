# SPDX-License-Identifier: GPL-2.0-only
"""tests/wire/vectors.json as C, for test_signal_header.c: prints a header."""

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


def octets(data: bytes) -> str:
    return f"(const u8 []) {{ {', '.join(map(str, data))} }}, {len(data)}"


def value(name: str, said: int | str) -> str:
    if isinstance(said, str):
        return f"{{ __builtin_bswap64(0x{said[:16]}ull), __builtin_bswap64(0x{said[16:]}ull) }}"
    bits = {"flow": 32, "feedback": 16, **dict.fromkeys(("sequence", "offset", "window", "time", "echo_time"), 64)}
    return f"__builtin_bswap{bits[name]}({said}ull)" if name in bits else str(said)


def lines(path: Path) -> Iterator[str]:
    vectors = json.loads(path.read_text())
    yield "static const struct packet_vector packet_vectors[] = {"
    for one in vectors["packets"]:
        header = ", ".join(f".{name} = {value(name, said)}" for name, said in one.get("header", {}).items())
        packet = octets(bytes.fromhex(one["packet"]))
        yield f'\t{{ "{one["name"]}", {packet}, {one["payload_at"]}, {FORMS[one["verdict"]]}, {{ {header} }} }},'
    yield "};"
    yield "static const struct way_vector way_vectors[] = {"
    for one in vectors["ways"]:
        parts = ", ".join(f"{part}ull" for part in one["parts"])
        before, after = (octets(bytes.fromhex(one[when])) for when in ("before", "after"))
        parts = f"(const u64 []) {{ {parts} }}, {len(one['parts'])}"
        yield f'\t{{ "{one["name"]}", {before}, {after}, {one["payload_at"]}, {parts} }},'
    yield "};"


if __name__ == "__main__":
    print("\n".join(lines(Path(sys.argv[1]))))
