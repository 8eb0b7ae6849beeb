# SPDX-License-Identifier: Apache-2.0
"""Switches in P4: what they dropped is stored by reason, and a fault of a program is a warning of the cell."""

from typing import Any

from campaigns import LAB

from qbed.cells import switches
from qbed.config.source import parse
from qbed.network.load import lab_from_source
from qbed.plan.compile import compile_lab
from qbed.telemetry.records import Counters, SwitchCounters


def counted(**changes: Any) -> Counters:
    nothing: dict[str, Any] = {"shell": {}, "totals": {}, "drops": {}, "counters": {}, "registers": {}}
    switch = SwitchCounters.model_validate(nothing | changes)
    return Counters(time_ns=0, links=[], queues=[], switches={"s1": switch})


def test_drops_are_stored_by_reason() -> None:
    plan = compile_lab(lab_from_source(parse(LAB, file="lab.yml"), {"switches.default.kind": "bmv2"}))
    counters = counted(
        shell={"received": 20, "sent": 3, "too_many_rounds": 12, "refused": 4, "runt": 0},
        totals={"ingress": 20},
        drops={"table ipv4_routes, action no_route": 1},
    )
    (row,) = switches.rows(plan, counters)
    assert row["node"] == "s1" and row["received_packets"] == 20 and row["sent_packets"] == 3
    assert row["drops"] == [("table ipv4_routes, action no_route", 1), ("too_many_rounds", 12)]


def test_faults_of_a_program_are_warnings() -> None:
    counters = counted(
        shell={"too_many_rounds": 12, "runt": 2, "no_memory": 0},
        totals={"asserts_failed": 3},
        drops={"an action that looped too often": 5, "table t, action drop": 7},
    )
    assert list(switches.warnings(counters)) == [
        "switch s1 dropped 12 packets (too_many_rounds): its program resubmits, recirculates or clones packets"
        " without end",
        "switch s1 dropped 5 packets (an action that looped too often): an action of its program does not end",
        "switch s1: asserts of its program failed 3 times; the packets were processed further",
    ]
    assert list(switches.warnings(counted(totals={"asserts_failed": 0}))) == []
