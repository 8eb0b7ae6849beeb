# SPDX-License-Identifier: Apache-2.0
"""The table entries of rpm's P4 program follow from the parameters of its ports."""

from __future__ import annotations

from typing import Any

import pytest

from qbed.p4.entry import Port
from qbed.p4.scheme_entries import port_entries, switch_entries
from qbed.schemes.declaration import registry

LAWS = [
    ("codel", {}, ["law", "at_egress"], {}),
    ("codel-tofino", {}, ["tofino_law", "at_egress"], {}),
    ("step", {"threshold": 9}, ["at_ingress", "step"], {"buffer": 1000, "threshold": 9}),
    ("linear", {"threshold": 9, "eta": 5e-7}, ["at_ingress", "linear"], {"threshold": 9, "eta": 500_000}),
    ("red", {"min": 5, "max": 15, "probability": 0.1}, ["at_ingress", "red"], {"slope": 10**10, "wlog": 9}),
    ("red", {"min": 5, "max": 5}, ["at_ingress", "red"], {"min": 5, "max": 5, "slope": 0}),
]


@pytest.mark.parametrize(("decides", "given", "actions", "arguments"), LAWS)
def test_a_port_has_its_law(decides: str, given: dict[str, Any], actions: list[str], arguments: dict[str, int]) -> None:
    values = registry()["rpm"].defaults() | {"decides": decides} | given
    entries = list(port_entries("rpm", Port(3, 10**9, 1514), values))
    assert [entry.table for entry in entries] == ["codel", "decides"]
    assert [entry.action for entry in entries] == actions
    assert all(entry.key == {"port": 3} for entry in entries)
    assert arguments.items() <= entries[1].arguments.items()


@pytest.mark.parametrize(("counter", "action"), [("count", "registers"), ("bit", "bits")])
def test_registers_count_or_are_bits(counter: str, action: str) -> None:
    (entry,) = switch_entries("rpm", [registry()["rpm"].defaults() | {"counter": counter}], None)
    assert (entry.table, entry.action) == ("rpm", action)
