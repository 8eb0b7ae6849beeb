# SPDX-License-Identifier: Apache-2.0
"""The configuration of BMv2 by P4Runtime, tested with qbed's P4Runtime server, as BMv2's image may be missing."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import finsy as fy
import pytest

from qbed.config.source import parse
from qbed.network.load import lab_from_source
from qbed.plan.compile import compile_lab
from qbed.plan.model import Plan
from qbed.plan.pipeline import Group, P4Program, Pipeline
from qbed.substrates.containers import bmv2
from qbed.substrates.containers.p4runtime import RefusedError, configure

from qbed_testing.p4runtime import read_entities

LAB = """\
name: small
topology: {dumbbell: {left: 2, right: 2}}
links: {default: {rate: 100 Mbit/s, delay: 5 us}}
switches:
  default: {kind: bmv2, scheme: SCHEME, buffer: 100 packets}
  s1: {engine: simple_switch_grpc}
hosts: {default: {controller: {name: timely, signal: sum, bits: 4}}}
workload:
  - flow: {from: h1, to: h3, size: 10 KB, transport: rate}
addressing: both
duration: 100 ms
"""


def compiled(scheme: str) -> Plan:
    return compile_lab(lab_from_source(parse(LAB.replace("SCHEME", scheme), "lab.yml")))


def bmv2_switch(plan: Plan) -> tuple[int, P4Program, Pipeline]:
    """The index, program and pipeline of the plan's only BMv2 switch."""
    (index,) = bmv2.switches(plan)
    pipeline = plan.nodes[index].pipeline
    assert pipeline is not None and plan.nodes[index].name == "s1"
    return index, next(program for program in plan.p4 if program.name == pipeline.program), pipeline


def entities(address: str, *wanted: Any) -> list[Any]:
    """Read entities of a server."""

    async def read() -> list[Any]:
        async with fy.Switch("switch", address) as switch:  # reads the program's P4Info
            return await read_entities(switch, *wanted)

    return asyncio.run(read())


@pytest.mark.parametrize(
    "scheme", ["ecn, threshold: 20 packets", "stamp", "stamp, exponent: 2", "codel", "rpm", "droptail", "qcn"]
)
def test_a_configured_switch_has_the_entries_of_the_plan(address: str, scheme: str) -> None:
    _, program, pipeline = bmv2_switch(compiled(scheme))
    pipeline = pipeline.model_copy(update={"groups": [Group(group=3, ports=[0, 2])]})
    configure(address, program, pipeline)
    entries = entities(address, fy.P4TableEntry())
    keyed = [entry for entry in pipeline.entries if entry.key is not None]
    assert sorted(entry.table_id for entry in entries) == sorted(entry.table.split(".")[-1] for entry in keyed)
    assert ("bins" in {entry.table_id for entry in entries}) is ("exponent" in scheme)
    hops = {entry.action.args["port"] for entry in entries if entry.table_id == "next_hops"}
    assert hops == set(range(len(pipeline.ports)))
    assert (
        sum(entry.table_id == "ipv4_routes" for entry in entries) == 3
    )  # two hosts, and one route to those behind the other switch
    (group,) = entities(address, fy.P4MulticastGroupEntry())
    assert (group.multicast_group_id, sorted(group.replicas)) == (3, [0, 2])
    sessions = entities(address, fy.P4CloneSessionEntry())
    assert {session.session_id: list(session.replicas) for session in sessions} == {
        planned.session: planned.ports for planned in pipeline.sessions
    }
    assert bool(sessions) is (scheme == "qcn")


def test_a_refused_entry_is_reported_by_name(address: str) -> None:
    _, program, pipeline = bmv2_switch(compiled("ecn, threshold: 20 packets"))
    twice = pipeline.model_copy(update={"entries": [*pipeline.entries, pipeline.entries[0]]})
    with pytest.raises(RefusedError, match=r"next_hops \{.hop.: 0\}: ALREADY_EXISTS: "):
        configure(address, program, twice)
    with pytest.raises(RefusedError, match="INVALID_ARGUMENT: "):
        configure(address, program.model_copy(update={"bmv2": "{}"}), pipeline)
    elsewhere = pipeline.model_copy(update={"entries": [replace(pipeline.entries[0], table="no_such")]})
    with pytest.raises(RefusedError, match=r"the program ecn and its P4Info do not belong together: .*no_such"):
        configure(address, program, elsewhere)


def test_a_server_that_does_not_answer_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("qbed.substrates.containers.p4runtime.TIMEOUT_S", 0.5)
    _, program, pipeline = bmv2_switch(compiled("droptail"))
    with pytest.raises(RefusedError, match="UNAVAILABLE: "):
        configure(f"unix:{tmp_path / 'missing.sock'}", program, pipeline)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "silent.sock"))
        silent.listen()
        with pytest.raises(RefusedError, match=r"not answered within|UNAVAILABLE"):
            configure(f"unix:{tmp_path / 'silent.sock'}", program, pipeline)


def test_queue_rates_are_in_largest_packets_and_dilated() -> None:
    plan = compiled("ecn, threshold: 20 packets")
    index, *_ = bmv2_switch(plan)
    # 100 Mbit/s of frames of 1514 bytes
    assert list(bmv2.queues(plan, index, 1))[:2] == ["set_queue_depth 100 0", "set_queue_rate 8256 0"]
    assert list(bmv2.queues(plan, index, 10))[-1] == "set_queue_rate 826 2"
