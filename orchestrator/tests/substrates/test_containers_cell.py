# SPDX-License-Identifier: Apache-2.0
"""Cells in containers, with nodes that are threads: from deployment to results, and what is left when things fail."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from campaigns import write_lab
from fake_nodes import FakeContainerlab, clab
from synthetic import flow_sample

from qbed.campaign.file import load_campaign
from qbed.campaign.matrix import build_matrix
from qbed.cells.exchanges import exchanges
from qbed.cells.probes import Probes
from qbed.network.load import load_lab
from qbed.plan.compile import compile_lab
from qbed.runs.worker import MAX_RUNS, Outcome, Task, Worker
from qbed.storage.run_folder import RunFolder
from qbed.substrates import Limits, SubstrateError
from qbed.substrates.containers import cell, containerlab
from qbed.substrates.containers.cell import cell_name
from qbed.substrates.containers.engine import EngineError
from qbed.substrates.containers.folder import NODES
from qbed.substrates.containers.gather import gather
from qbed.substrates.containers.labs import read_record, records
from qbed.substrates.containers.placement import Placement
from qbed.substrates.merge import merged_flows
from qbed.substrates.sessions import state_folder
from qbed.telemetry.exchanges import DTYPE, EXCHANGES
from qbed.telemetry.exchanges import NEVER as UNENDED
from qbed.telemetry.probes import FILE, NEVER, PROBE_DTYPE
from qbed.telemetry.records import RecordError, read_counters

__all__ = ["clab"]
DILATION = 3


def run(folder: Path, *, keep: bool = False, dilation: int = DILATION) -> tuple[Outcome, RunFolder]:
    lab = write_lab(folder / "lab")
    matrix = build_matrix(load_campaign(lab / "campaign.yml")[0], "quick")
    task = Task(folder / "run", Limits(60, 60), keep, "containerlab", dilation, lab=lab / "lab.yml", matrix=matrix)
    store = RunFolder(folder / "run")
    store.claim({"matrix": json.loads(json.dumps(matrix.describe()))})
    return Worker(task).run(0), store


def row(store: RunFolder) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((store.cells / "000000" / "cell.json").read_bytes())
    return value


def test_a_cell_in_containers_leaves_what_a_virtual_one_leaves(clab: FakeContainerlab, tmp_path: Path) -> None:
    outcome, store = run(tmp_path, keep=True)
    assert (outcome.status, outcome.error) == ("complete", None)
    found = row(store)
    assert (found["flows"], found["flows_complete"], found["received_bytes"]) == (2, 2, 200_000)
    work = store.cells / "000000" / "work"
    wall = json.loads((work / "out/wall.json").read_text())
    assert (wall["substrate"], wall["dilation"], wall["host_kernel"]) == ("containerlab", DILATION, [])
    assert set(wall["nodes"]) == {"h1", "h2", "h3", "h4", "s1", "s2"}
    counters = read_counters(work / "out/counters.json")
    assert all(queue.kind == "pfifo" for queue in counters.queues)
    assert all(node["Ip"] for node in counters.nodes)
    assert clab.calls == ["deploy", "destroy"]
    assert not records() and not list(state_folder().iterdir())
    assert sorted(path.name for path in (work / "nodes/h1").iterdir()) == ["out", "place.json", "plan.json"]


def test_all_nodes_start_at_one_origin_and_the_epoch_is_not_past(
    clab: FakeContainerlab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    destroy = clab.destroy

    def look(topology: Path) -> None:
        seen.extend(node for nodes in clab.deployed.values() for node in nodes)
        destroy(topology)

    monkeypatch.setattr(containerlab, "destroy", look)
    begun = time.monotonic_ns()
    run(tmp_path)
    (origin,) = {node.went["origin_ns"] for node in seen}
    assert {node.went["mode"] for node in seen} == {"cell"}
    epoch = origin + seen[0].plan.epoch_ns * DILATION
    lead_ns = cell.LEAD_NS + cell.LEAD_PER_NODE_NS * len(seen)
    assert begun + lead_ns < epoch < time.monotonic_ns() + lead_ns
    assert origin < begun  # 2 s of set-up, dilated, are longer than the nodes need


def test_a_flows_two_records_become_one(tmp_path: Path) -> None:
    plan = compile_lab(load_lab(write_lab(tmp_path / "lab")))
    parts = [tmp_path / node.name for node in plan.nodes]
    ends = {"src": 0, "dst": 2, "transport": "rate", "error": None}
    sized, endless = {"flow": 0, "size_bytes": 10} | ends, {"flow": 1, "size_bytes": None} | ends
    rows: dict[int, list[dict[str, Any]]] = {
        0: [
            sized | {"status": "running", "end_ns": None, "received_bytes": 0},
            endless | {"status": "running", "end_ns": None, "received_bytes": 0},
        ],
        2: [
            sized | {"status": "complete", "end_ns": 5, "received_bytes": 10, "segments_received": 1},
            endless | {"status": "running", "end_ns": 7, "received_bytes": 9, "segments_received": 1},
        ],
    }
    for node, part in enumerate(parts):
        part.mkdir()
        (part / "flows.ndjson").write_text("".join(json.dumps(row) + "\n" for row in rows.get(node, [])))
    first, other = merged_flows(plan, parts, range(len(parts)))
    assert (first["status"], first["end_ns"], first["received_bytes"], first["segments_received"]) == (
        "complete",
        5,
        10,
        1,
    )
    # Its sender has not stopped: what came last so far is no end.
    assert (other["status"], other["end_ns"], other["received_bytes"]) == ("running", None, 9)


CLOSED = """\
name: closed
topology: {star: {hosts: 3}}
links: {default: {rate: 1 Gbit/s, delay: 5 us}}
switches: {default: {scheme: droptail, buffer: 128 KB}}
workload:
  - probes: {pairs: [[h1, h3], [h2, h3]], interval: 1 ms}
  - requests: {clients: [h1, h2], servers: h3, request: 100 B, response: 1 KB}
duration: 10 ms
"""


def parts(folder: Path, written: dict[str, dict[str, bytes]]) -> list[Path]:
    """Output folders of some nodes by their names; all others have none."""
    (folder / "lab").mkdir()
    (folder / "lab/lab.yml").write_text(CLOSED)
    plan = compile_lab(load_lab(folder / "lab"))
    for node in plan.nodes:
        out = folder / NODES / node.name / "out"
        out.mkdir(parents=True, exist_ok=True)
        (out / "done.json").write_text(json.dumps({"status": "complete", "end_ns": 10}))
        for name, content in written.get(node.name, {}).items():
            (out / name).write_bytes(content)
    gather(folder, plan, Placement((), 1))
    return [folder / "out" / name for name in (FILE, EXCHANGES)]


def test_samples_of_flows_are_in_the_order_of_time(tmp_path: Path) -> None:
    first, second, third, fourth = (flow_sample("tcp_info", flow, at) for flow, at in ((0, 1), (1, 1), (0, 2), (1, 2)))
    parts(tmp_path, {"h1": {"flow_samples.bin": first + third}, "h2": {"flow_samples.bin": second + fourth}})
    assert (tmp_path / "out/flow_samples.bin").read_bytes() == first + second + third + fourth


def probe(flow: int, number: int, returned_ns: int) -> bytes:
    times = (number, number + 1, number + 1, returned_ns) if returned_ns != NEVER else (number, NEVER, NEVER, NEVER)
    return np.array([(flow, number, *times)], PROBE_DTYPE).tobytes()


def exchange(client: int, number: int, end_ns: int) -> bytes:
    record = np.zeros(1, DTYPE)
    for name, value in {"workload": 1, "session": client, "client": client, "server": 2, "exchange": number}.items():
        record[name] = value
    record["connected_ns"] = record["first_byte_ns"] = UNENDED
    record["end_ns"] = end_ns
    return record.tobytes()


def test_probes_and_exchanges_of_all_nodes_are_in_the_order_of_their_ends(tmp_path: Path) -> None:
    flow = {
        FILE: probe(0, 0, 100) + probe(0, 2, 300) + probe(0, 1, NEVER) + probe(0, 3, NEVER),
        EXCHANGES: exchange(0, 0, 50) + exchange(0, 1, 90) + exchange(0, 2, UNENDED),
    }
    other = {FILE: probe(1, 0, 200), EXCHANGES: exchange(1, 0, 50) + exchange(1, 1, 60)}
    probed, exchange_file = parts(tmp_path, {"h1": flow, "h2": other})
    flows = {number: {"label": "p", "src": f"h{number + 1}", "dst": "h3", "workload": 0} for number in (0, 1)}
    rows = [row for table in Probes(flows).batches(probed) for row in table.to_pylist()]
    assert [(row["flow"], row["probe"], row["lost"]) for row in rows] == [
        *((0, 0, False), (1, 0, False), (0, 2, False)),
        *((0, 1, True), (0, 3, None)),
    ]
    plan = compile_lab(load_lab(tmp_path / "lab"))
    rows = [row for table in exchanges(plan, exchange_file) for row in table.to_pylist()]
    assert [(row["client"], row["exchange"], row["status"]) for row in rows] == [
        *(("h1", 0, "complete"), ("h2", 0, "complete"), ("h2", 1, "complete"), ("h1", 1, "complete")),
        ("h1", 2, "running"),
    ]


def test_a_part_without_records_and_one_that_is_cut_off(tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    probed, exchange_file = parts(tmp_path / "none", {"h1": {FILE: b""}})
    assert probed.read_bytes() == b"" and not exchange_file.exists(), "only what a node wrote is there"
    (tmp_path / "cut").mkdir()
    with pytest.raises(RecordError, match=r"exchanges\.bin ends within a record"):
        parts(tmp_path / "cut", {"h1": {EXCHANGES: exchange(0, 0, 5)}, "h2": {EXCHANGES: exchange(1, 0, 5)[:-1]}})


@pytest.mark.parametrize("name", ["taps.bin", FILE, EXCHANGES])
def test_special_files_of_a_node_are_not_waited_for(tmp_path: Path, name: str) -> None:
    out = tmp_path / NODES / "h1" / "out"
    out.mkdir(parents=True)
    os.mkfifo(out / name)
    with pytest.raises(OSError, match="it is no regular file") as error:
        parts(tmp_path, {})
    assert error.value.filename == str(out / name)


@pytest.mark.parametrize(
    "behaviour, message",
    [
        ("fail", "node s1: no such qdisc"),
        ("vanish", "the container of s1 has ended \\(Exited \\(1\\)\\); it said last:\n    \\| its last word"),
    ],
)
def test_a_broken_node_fails_the_cell_and_nothing_is_left(
    clab: FakeContainerlab, tmp_path: Path, behaviour: str, message: str
) -> None:
    clab.behaviour["s1"] = behaviour
    outcome, store = run(tmp_path)
    assert outcome.status == "failed" and not outcome.fatal
    assert re.search(message, outcome.error or "")
    assert (store.cells / "000000.failed" / "work").is_dir()
    assert not clab.deployed and not records()


def test_a_silent_node_is_named(clab: FakeContainerlab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cell, "READY_S", 0.3)
    monkeypatch.setattr(cell, "READY_PER_NODE_S", 0.0)
    clab.behaviour["h2"] = "deaf"
    outcome, _ = run(tmp_path)
    assert "1 of 6 nodes are not ready in time: h2 (absent)" in (outcome.error or "")


def test_what_is_half_deployed_is_taken_away(clab: FakeContainerlab, tmp_path: Path) -> None:
    clab.fail = SubstrateError("containerlab deploy has failed")
    outcome, _ = run(tmp_path)
    assert (outcome.status, outcome.fatal) == ("failed", True)
    assert clab.calls == ["deploy", "destroy", "destroy"] or clab.calls == ["deploy", "destroy"]
    assert not clab.deployed and not records()


def test_an_engine_that_dies_leaves_the_record_for_down(
    clab: FakeContainerlab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = clab.destroy

    def die(topology: Path) -> None:
        clab.engine_down = EngineError("Docker is not running")
        real(topology)

    monkeypatch.setattr(containerlab, "destroy", die)
    outcome, _ = run(tmp_path)
    assert outcome.fatal and "Docker is not running" in (outcome.error or "")
    (record,) = records()
    assert record.kind == "cell" and record.nodes == ("h1", "h2", "h3", "h4", "s1", "s2")
    clab.engine_down = None
    monkeypatch.setattr(containerlab, "destroy", real)
    outcome, _ = run(tmp_path)  # the next run finds what the crash left, and clears it away
    assert outcome.status == "complete"
    assert not records() and not clab.deployed


@pytest.mark.parametrize(
    "behaviour, reason",
    [
        ("late", "deadlines of h1 ran late"),
        ("drop", "h1:eth0 dropped 7 frames outside the plan"),
        ("offload", "h1:eth0 has offloads on: tso"),
        ("silent", "h1 reported no timing"),
    ],
)
def test_a_run_that_was_not_faithful_is_invalid(
    clab: FakeContainerlab, tmp_path: Path, behaviour: str, reason: str
) -> None:
    clab.behaviour["h1"] = behaviour
    outcome, store = run(tmp_path)
    assert outcome.status == "invalid" and reason in (outcome.error or ""), outcome
    assert row(store)["contradictions"]


@pytest.mark.parametrize("late, status", [(0, "complete"), (2, "complete"), (3, "invalid")])
def test_a_cell_for_which_the_machine_was_late_is_run_anew(
    clab: FakeContainerlab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: int, status: str
) -> None:
    def deploy(topology: Path, *held: int) -> None:
        clab.behaviour["h1"] = "late" if clab.calls.count("deploy") < late else ""
        clab.deploy(topology, *held)

    monkeypatch.setattr(containerlab, "deploy", deploy)
    outcome, store = run(tmp_path)
    assert (outcome.status, clab.calls) == (status, ["deploy", "destroy"] * min(late + 1, MAX_RUNS))
    warnings = [text for text in row(store)["warnings"] if "does not count" in text]
    assert len(warnings) == min(late, MAX_RUNS - 1)
    assert all(
        f"run {run} of this cell does not count: deadlines of h1" in text for run, text in enumerate(warnings, 1)
    )
    assert list(store.damages(0)) == []
    # A second run of the command tries the failed cell again and leaves complete ones.
    assert store.survey([0]) == ([0] if status == "invalid" else [], [])


def test_a_cell_that_is_invalid_for_another_reason_is_not_run_anew(clab: FakeContainerlab, tmp_path: Path) -> None:
    clab.behaviour |= {"h1": "late", "h2": "offload"}
    outcome, store = run(tmp_path)
    assert (outcome.status, clab.calls) == ("invalid", ["deploy", "destroy"])
    assert len(row(store)["contradictions"]) == 2 and store.survey([0]) == ([], [])


def test_a_missing_image_and_a_taken_name_are_refused_before_anything_is_made(
    clab: FakeContainerlab, tmp_path: Path
) -> None:
    clab.images = {"image-host"}
    outcome, _ = run(tmp_path)
    assert "Docker has no image image-switch: `make images`" in (outcome.error or "")
    clab.images.add("image-switch")
    work = tmp_path / "run/cells/000000.tmp/work"
    name = cell_name(work, compile_lab(load_lab(tmp_path / "lab")))
    clab.foreign = [name]
    outcome, _ = run(tmp_path)
    assert f"the name {name} is taken: 1 containers" in (outcome.error or "")
    assert clab.calls == [] and read_record(name) is None
