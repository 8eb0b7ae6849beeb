# SPDX-License-Identifier: Apache-2.0
"""Probes and classes: what a lab file may say of them, what the plan has, and how records become rows."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qbed.base.errors import LabError
from qbed.cells.probes import Probes
from qbed.config.source import parse
from qbed.network.load import lab_from_source
from qbed.plan.compile import compile_lab
from qbed.plan.model import Plan
from qbed.plan.workload import Flows
from qbed.telemetry.probes import NEVER, PROBE_DTYPE, read_probes
from qbed.telemetry.records import RecordError

LAB = """name: probes
topology: {star: {hosts: 3}}
links: {default: {rate: 1 Gbit/s, delay: 10 us}}
hosts: {default: {tcp: cubic}}
duration: 10 s
workload:
  - """


def compiled(workload: str) -> Plan:
    lab = LAB.replace("tcp: cubic", "tcp: cubic, controller: timely") if "transport: rate" in workload else LAB
    return compile_lab(lab_from_source(parse(lab + workload, file="lab.yml")))


def test_the_plan_has_probes_as_flows_of_a_separate_transport() -> None:
    text = "probes: {from: h1..h2, to: h3, interval: 20 ms, size: 100 B, spread: 20 ms, dscp: EF, label: ping}"
    plan = compiled(text)
    (probes,) = plan.workloads
    assert isinstance(probes, Flows) and Plan.loads(plan.dumps()) == plan
    names = [[plan.nodes[node].name for node in pair] for pair in probes.pairs]
    assert names == [["h1", "h3"], ["h2", "h3"]]
    assert (probes.transport, probes.interval_ns, probes.packet_bytes) == ("probe", 20_000_000, 100)
    assert (probes.spread_ns, probes.size_bytes, probes.dscp, probes.label) == (20_000_000, None, 46, "ping")


@pytest.mark.parametrize(("dscp", "number"), [("CS0", 0), ("LE", 1), ("CS1", 8), ("AF41", 34), ("EF", 46), ("63", 63)])
def test_a_class_is_a_name_or_a_number(dscp: str, number: int) -> None:
    for workload in ("flow: {from: h1, to: h2, ", "arrivals: {interval: 1 ms, size: 1 KB, "):
        assert compiled(f"{workload}dscp: {dscp}}}").workloads[0].dscp == number


def test_a_plan_without_classes_and_probes_leaves_them_out() -> None:
    for text in ("flow: {from: h1, to: h2}", "arrivals: {interval: 1 ms, size: 1 KB}"):
        dumped = compiled(text).dumps()
        assert '"port"' in dumped and '"dscp"' not in dumped and '"interval_ns": null' not in dumped


BAD = [
    ("probes: {from: h1, to: h2}", "lab.yml:7:13: workload[0].probes.interval: this field is missing"),
    ("probes: {interval: 1 ms}", "lab.yml:7:13: workload[0].probes: expected `pairs`, or `from` and `to`"),
    ("probes: {to: h2, interval: 1 ms}", "lab.yml:7:13: workload[0].probes: expected `pairs`, or `from` and `to`"),
    ("flows: {from: h1, pairing: random}", "lab.yml:7:12: workload[0].flows: expected `pairs`, or `from` and `to`"),
    ("flows: {pairs: [[h1, h2]], to: h3}", "lab.yml:7:12: workload[0].flows: expected `pairs`, or `from` and `to`"),
    ("probes: {from: h1, to: h9, interval: 1 ms}", "workload[0].probes.to: no host is called `h9`"),
    ("probes: {from: h1, to: h1, interval: 1 ms}", "workload[0].probes: `h1` cannot send to itself"),
    ("probes: {from: h1, to: h2, interval: 0 ms}", "probes.interval: expected at least 1 ns, got `0 ns`"),
    ("probes: {from: h1, to: h2, interval: 1}", "expected a duration such as `5 us`, got `1`"),
    ("probes: {from: h1, to: h2, interval: 1 ms, size: 31 B}", "probes.size: expected at least 32 B, got `31 B`"),
    ("probes: {from: h1, to: h2, interval: 10 ns}", "interval: 1000000000 probes up to here; expected at most 10"),
    ("probes: {from: h1, to: h2, interval: 1 ms, spraed: 1 ms}", "unknown field; did you mean `spread`?"),
    ("flow: {from: h1, to: h2, dscp: EG}", "lab.yml:7:36: workload[0].flow.dscp: expected a class such as `EF`"),
    ("flow: {from: h1, to: h2, dscp: AF44}", "got `AF44`; did you mean `AF4"),
    ("flow: {from: h1, to: h2, dscp: 64}", "or a number from 0 to 63, got `64`"),
    ("flow: {from: h1, to: h2, dscp: -1}", "got `-1`"),
    ("flow: {from: h1, to: h2, dscp: on}", "got `on`"),
    ("flow: {from: h1, to: h2, transport: rate, dscp: EF}", "workload[0].flow.dscp: the transport `rate` has no class"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), BAD, ids=[text for text, _ in BAD])
def test_a_mistake_has_one_clear_message(text: str, message: str) -> None:
    with pytest.raises(LabError) as error:
        compiled(text)
    assert message in "\n".join(error.value.messages)
    assert len(error.value.messages) == 1


Probe = tuple[int, int, int, int, int]
"""Flow, number, when it was sent, the way there, the way back; -1: it is not back."""
FLOWS = {3: {"label": "a", "src": "h1", "dst": "h2", "workload": 0, "dscp": 46}}
FLOWS[8] = {"label": "b", "src": "h2", "dst": "h1", "workload": 1, "dscp": None}


def records(probes: list[Probe]) -> bytes:
    rows = np.zeros(len(probes), PROBE_DTYPE)
    for row, (flow, number, sent, forward_ns, back) in zip(rows, probes, strict=True):
        times = (NEVER,) * 3 if back < 0 else (sent + forward_ns, sent + forward_ns + 1, sent + forward_ns + 1 + back)
        row["flow"], row["number"], row["sent_ns"] = flow, number, sent
        row["received_ns"], row["replied_ns"], row["returned_ns"] = times
    return rows.tobytes()


def table(folder: Path, data: bytes) -> list[dict[str, Any]]:
    (folder / "probes.bin").write_bytes(data)
    batches = Probes(FLOWS).batches(folder / "probes.bin")
    return [row for batch in batches for row in batch.to_pylist()]


def test_rows_say_both_ways_and_what_is_lost(tmp_path: Path) -> None:
    back = [(3, 0, 0, 5, 7), (8, 0, 1, 2, 2), (3, 1, 10, 9, 7), (3, 4, 40, 6, 7)]
    found = table(tmp_path, records([*back, (3, 2, 20, 0, -1), (3, 5, 50, 0, -1), (8, 1, 60, 0, -1)]))
    assert found[0] == {
        "flow": 3, "workload": 0, "label": "a", "src": "h1", "dst": "h2", "dscp": 46, "probe": 0, "sent_ns": 0,
        "rtt_ns": 13, "forward_ns": 5, "reverse_ns": 7, "ipdv_ns": None, "lost": False,
    }  # fmt: skip
    assert [row["ipdv_ns"] for row in found] == [None, None, 4, None, None, None, None]
    # Number 2 was sent before one that is back; numbers 5 and 1 may be under way.
    assert [row["lost"] for row in found] == [False] * 4 + [True, None, None]
    assert [row["rtt_ns"] for row in found[4:]] == [None] * 3


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.tuples(st.sampled_from([3, 8]), st.integers(0, 99), st.integers(0, 10**9)), max_size=60),
    st.integers(1, 7),
)
def test_however_it_is_read_each_probe_is_one_row(
    tmp_path_factory: pytest.TempPathFactory, drawn: list[tuple[int, int, int]], chunk: int
) -> None:
    sent = {(flow, number): (flow, number, 100 * number, forward_ns, 5) for flow, number, forward_ns in drawn}
    probes = sorted(sent.values(), key=lambda probe: probe[2])
    complete = table(tmp_path_factory.mktemp("whole"), records(probes))
    made, pieces = Probes(FLOWS), read_probes(io.BytesIO(records(probes)), chunk)
    assert [row for piece in pieces for row in made._table(piece).to_pylist()] == complete
    assert [(row["flow"], row["probe"], row["forward_ns"]) for row in complete] == [(p[0], p[1], p[3]) for p in probes]
    for row in complete:
        before = sent.get((row["flow"], row["probe"] - 1))
        assert row["ipdv_ns"] == (None if before is None else row["forward_ns"] - before[3])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (records([(3, 0, 0, 1, 1)])[:-1], "probes.bin: the last record has 39 of 40 bytes"),
        (records([(9, 0, 0, 1, 1)]), "probes.bin: flow 9 is no probe"),
        (records([(2**32 - 1, 0, 0, 1, 1)]), "flow 4294967295 is no probe"),
    ],
)
def test_damaged_records_are_refused(tmp_path: Path, data: bytes, message: str) -> None:
    with pytest.raises(RecordError, match=message):
        table(tmp_path, data)


def test_records_of_no_flow_are_refused(tmp_path: Path) -> None:
    (tmp_path / "probes.bin").write_bytes(records([(0, 0, 0, 1, 1)]))
    with pytest.raises(RecordError, match="flow 0 is no probe"):
        list(Probes({}).batches(tmp_path / "probes.bin"))
