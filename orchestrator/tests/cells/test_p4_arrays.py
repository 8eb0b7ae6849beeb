# SPDX-License-Identifier: Apache-2.0
"""The rows of `p4_arrays`, and warnings about elements without a row."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

from qbed.cells.rows import table_of_rows
from qbed.cells.switches import array_rows, warnings
from qbed.telemetry.records import Counters

PLAN: Any = SimpleNamespace(
    nodes=[
        SimpleNamespace(name="h1", pipeline=None),
        SimpleNamespace(name="s1", pipeline=SimpleNamespace(program="mine")),
    ]
)


def counters(*arrays: dict[str, Any]) -> Counters:
    switch = {"shell": {}, "totals": {}, "drops": {}, "counters": {}, "registers": {}, "arrays": arrays}
    return Counters.model_validate({"time_ns": 0, "links": [], "queues": [], "switches": {"s1": switch}})


def array(kind: str, elements: list[list[int]], nonzero: int | None) -> dict[str, Any]:
    return {"kind": kind, "name": kind[:3], "size": 9, "nonzero": nonzero, "elements": elements}


def test_elements_of_counters_and_registers_are_rows() -> None:
    found = counters(
        array("counter", [[0, 2, 120], [7, 1, 0]], 2),
        array("register", [[3, 1 << 63]], 1),
        array("register", [], None),
        array("meter", [[2, 5, 0, 1]], 1),
    )
    rows = table_of_rows("p4_arrays", array_rows(PLAN, found), "counters.json").to_pylist()
    colors = ("green_packets", "yellow_packets", "red_packets")
    absent = dict.fromkeys(("packets", "bytes", "value", *colors))
    common = {"node": "s1", "p4_program": "mine", **absent}
    assert rows == [
        {**common, "name": "cou", "index": 0, "packets": 2, "bytes": 120},
        {**common, "name": "cou", "index": 7, "packets": 1, "bytes": 0},
        {**common, "name": "reg", "index": 3, "value": 1 << 63},
        {**common, "name": "met", "index": 2, **dict(zip(colors, (5, 0, 1), strict=True))},
    ]
    assert [*warnings(found)] == []


def test_elements_without_a_row_are_a_warning() -> None:
    found = counters(array("register", [[3, 1], [4, 1]], 900))
    assert [*warnings(found)] == [
        "switch s1: 900 elements of the register reg are not zero; the table p4_arrays has the first 2"
    ]


def test_arrays_beyond_the_limit_of_a_cell_are_one_warning() -> None:
    beyond = array("register", [], None) | {"over_limit": True}
    assert [*warnings(counters(beyond, array("register", [], None), beyond))] == [
        "2 large arrays of P4 programs are not in the table p4_arrays, the first reg of s1"
    ]
    assert [*warnings(counters(beyond), of_schemes={"s1"})] == []


def test_an_array_of_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValidationError, match="'counter', 'register' or 'meter'"):
        counters(array("hash", [], 0))
