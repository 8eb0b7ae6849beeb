# SPDX-License-Identifier: Apache-2.0
"""Numbers are read out of lines as a parser of JSON reads them, whatever the lines are."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qbed.telemetry.flow_lines import _by_commas, numbers

NAMES = ("flow", "time_ns", "bps")
whole = st.integers(0, 10**15)
usual = st.fixed_dictionaries(
    {"flow": st.integers(0, 99), "time_ns": whole, "cwnd": st.none() | whole, "bps": st.none() | whole}
    | {"state": st.sampled_from(["open", "loss"])}
)
strange = st.dictionaries(
    st.sampled_from([*NAMES, "a,b", "ä"]), st.none() | whole | st.integers(-9, -1) | st.floats(-1e9, 1e9)
).map(lambda more: {"flow": 1, "time_ns": 2, "bps": 3, **more})
wordy = st.text(max_size=8).map(lambda text: {"flow": 1, "state": text, "time_ns": 2, "bps": 3})


def said(rows: list[dict[str, Any]], name: str) -> list[float]:
    return [np.nan if row[name] is None else float(row[name]) for row in rows]


@given(
    st.lists(usual, min_size=1, max_size=20) | st.lists(usual | strange | wordy, min_size=1, max_size=6), st.booleans()
)
@settings(max_examples=300, deadline=None, derandomize=True, database=None)
def test_numbers_are_those_of_json(rows: list[dict[str, Any]], compact: bool) -> None:
    separators = (",", ":") if compact else None
    lines = "\n".join(json.dumps(row, separators=separators, ensure_ascii=False) for row in rows).encode()
    for name, of in zip(NAMES, numbers(lines, NAMES), strict=True):
        expected = said(rows, name)
        assert np.allclose(of().astype(float), expected, rtol=1e-15, equal_nan=True), name
        assert np.allclose(of(np.array([len(rows) - 1])).astype(float), expected[-1:], rtol=1e-15, equal_nan=True)


def test_what_the_agent_writes_needs_no_parser() -> None:
    row = {"flow": 12, "time_ns": 1_000_000, "cwnd": None, "bps": 10**9, "state": "open"}
    lines = b"\n".join(json.dumps(row | {"flow": n}, separators=(",", ":")).encode() for n in range(5))
    found = _by_commas(lines, NAMES)
    assert found is not None and found[0]().tolist() == [0, 1, 2, 3, 4] and found[0]().dtype.kind == "i"
    assert _by_commas(lines + b'\n{"flow":1,"time_ns":2}', NAMES) is None


@pytest.mark.parametrize("lines", [b"[1]", b"{", b"nothing", b"", b"[" * 100_000])
def test_what_is_no_line_is_said(lines: bytes) -> None:
    with pytest.raises(ValueError):
        numbers(lines, NAMES)
