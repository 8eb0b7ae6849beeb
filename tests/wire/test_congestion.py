# SPDX-License-Identifier: Apache-2.0
"""The congestion header as Python reads and writes it, against the vectors that C and Rust are tested with, too."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qbed_testing.congestion import Header, HeaderError, Kind, Type, Unit, parse

FOLDER = Path(__file__).parent
VECTORS = json.loads((FOLDER / "vectors.json").read_text())


def test_the_vectors_are_what_their_script_writes() -> None:
    script = [sys.executable, str(FOLDER / "vectors.py")]
    written = subprocess.run(script, capture_output=True, text=True, check=True).stdout
    assert written == (FOLDER / "vectors.json").read_text()


@pytest.mark.parametrize("vector", VECTORS["packets"], ids=lambda vector: vector["name"])
def test_packets_say_what_they_say(vector: dict[str, Any]) -> None:
    payload = bytes.fromhex(vector["packet"])[vector["payload_at"] :]
    if vector["verdict"] != "header":
        with pytest.raises(HeaderError) as error:
            parse(payload)
        assert error.value.verdict == vector["verdict"]
        return
    header = parse(payload)
    expected = {name: int(value, 16) if isinstance(value, str) else value for name, value in vector["header"].items()}
    assert header._asdict() == expected
    assert header.pack() == payload[: header.length]


@pytest.mark.parametrize("path", VECTORS["paths"], ids=lambda path: path["name"])
def test_packets_on_their_way_are_headers(path: dict[str, Any]) -> None:
    before, after = (parse(bytes.fromhex(path[when])[path["payload_at"] :]) for when in ("before", "after"))
    assert after._replace(signal=before.signal, hops=before.hops) == before


def word(bits: int) -> st.SearchStrategy[int]:
    return st.integers(0, 2**bits - 1)


@settings(deadline=None)
@given(
    *(st.sampled_from(known) for known in (Type, Kind, Unit)),
    st.integers(1, 32),
    st.tuples(word(8), word(8), word(8), word(32), word(16), word(8)),
    st.tuples(*(word(64) for _ in range(5))),
    st.tuples(word(128), word(128)),
)
def test_what_is_packed_is_parsed(
    type: Type, kind: Kind, unit: Unit, bits: int, small: tuple[int, ...], wide: tuple[int, ...], signals: Any
) -> None:
    flags, hops, echo_hops, flow, feedback, feedback_bits = small
    head = (1, type, flags, kind, unit, bits, hops, echo_hops, flow, feedback, feedback_bits, 0)
    header = Header(*head, *wide, *signals)
    assert parse(header.pack()) == header
