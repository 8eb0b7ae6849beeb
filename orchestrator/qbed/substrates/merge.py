# SPDX-License-Identifier: Apache-2.0
"""Merges the results of several agents into one folder, as if one agent had written it: those of the nodes of a lab in
containers, or of the parts of a divided one in virtual time (docs/formats.md).
"""

from __future__ import annotations

import heapq
import json
import shutil
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from qbed.base.files import open_regular
from qbed.base.json_files import Row
from qbed.plan.model import End, Plan
from qbed.telemetry import flow_samples, probes
from qbed.telemetry.exchanges import EXCHANGES, read_exchanges
from qbed.telemetry.records import RAW_FILES, read_rows

RECEIVER_FIELDS = ("end_ns", "received_bytes", "segments_received")
"""The fields of a flow that its receiver measures."""
ROUTES, PROGRAMS, COUNTERS = "routes.ndjson", "programs.ndjson", "counters.json"
WINDOWS, STATISTICS = "windows.ndjson", "statistics.ndjson"

CHUNK_RECORDS = 1 << 16


def merge(out: Path, plan: Plan, agents: Sequence[Path], agent_of: Sequence[int]) -> None:
    """Merge the result files of `agents`, folders, into `out`, except for counters. `agent_of`: by node."""
    write_rows(out / "flows.ndjson", merged_flows(plan, agents, agent_of))
    if plan.windows:
        rows = (read_rows(agent / WINDOWS) for agent in agents)
        write_rows(out / WINDOWS, heapq.merge(*rows, key=lambda row: (row["time_ns"], row["flow"])))
    if plan.statistics_interval_ns:
        rows = (read_rows(agent / STATISTICS) for agent in agents)
        write_rows(out / STATISTICS, heapq.merge(*rows, key=lambda row: (row["time_ns"], row["queue"])))
    if any((agent / ROUTES).exists() for agent in agents):
        rows = (read_rows(agent / ROUTES) for agent in agents)
        write_rows(out / ROUTES, heapq.merge(*rows, key=lambda row: row["time_ns"]))
    if plan.launches:
        rows = (read_rows(agent / PROGRAMS) for agent in agents)
        write_rows(out / PROGRAMS, heapq.merge(*rows, key=lambda row: row["launch"]))
    _join(out / "taps.bin", agents)
    _order(out / flow_samples.FILE, agents, _flow_samples, ("time_ns", "id"))
    _order(out / probes.FILE, agents, _probes, ("returned_ns",))
    _order(out / EXCHANGES, agents, read_exchanges, ("end_ns",))
    for agent in agents:
        for pattern in RAW_FILES:
            for file in agent.glob(pattern):
                shutil.copyfile(file, out / file.name)


def merged_flows(plan: Plan, agents: Sequence[Path], agent_of: Sequence[int]) -> Iterator[Row]:
    """One row a flow, in the order of their numbers: the sender's, with what only the receiver knows from its row."""
    rows = heapq.merge(
        *(_flows(number, agent) for number, agent in enumerate(agents)), key=lambda item: item[1]["flow"]
    )
    pending: dict[str, Row] = {}
    for number, row in rows:
        if pending and next(iter(pending.values()))["flow"] != row["flow"]:
            yield _one_flow(pending)
            pending = {}
        if agent_of[row["src"]] == agent_of[row["dst"]]:
            yield row
        else:
            pending["sender" if agent_of[row["src"]] == number else "receiver"] = row
    if pending:
        yield _one_flow(pending)


def _flows(number: int, agent: Path) -> Iterator[tuple[int, Row]]:
    return ((number, row) for row in read_rows(agent / "flows.ndjson"))


def _one_flow(rows: dict[str, Row]) -> Row:
    """A flow with a size is complete when its receiver has the last byte, any other when its sender has stopped."""
    if "sender" not in rows:
        return rows["receiver"] | {"status": "failed", "error": "its sender has no record of it"}
    sender, receiver = rows["sender"], rows.get("receiver", {"end_ns": None, "received_bytes": 0, "status": "running"})
    merged = sender | {name: receiver[name] for name in RECEIVER_FIELDS if name in receiver}
    if sender["status"] != "failed" and receiver["status"] == "failed":
        return merged | {"status": "failed", "error": receiver.get("error")}
    if sender["status"] != "failed" and sender["size_bytes"] is not None and sender["transport"] != "udp":
        merged["status"] = "running" if merged["end_ns"] is None else "complete"
    # The receiver of a flow without a size cannot tell the last byte so far from the last one.
    return merged | {"end_ns": None} if merged["status"] == "running" else merged


def merged_counters(
    plan: Plan, counted: Sequence[Row], agent_of: Sequence[int], host_kernel: Collection[int] = ()
) -> Row:
    """The counters of agents: each end of a link, each queue and each stack from the agent of its node.

    A container's guest also has the far end of each of its links. What it counts there counts only where that far
    end's node is on the machine's kernel: then the planned queue is there (docs/formats.md section 5).
    """

    def keeper(end: End, peer: End) -> Row:
        return counted[agent_of[peer.node if end.node in host_kernel else end.node]]

    links: list[Row] = []
    queues: list[Row] = [{"kind": "none"} for _ in plan.queues]
    for index, link in enumerate(plan.links):
        pair = {}
        for side, end, peer in (("a", link.a, link.b), ("b", link.b, link.a)):
            kept = keeper(end, peer)
            pair[side] = kept["links"][index][side] if kept else {}
            queues[end.queue] = kept["queues"][end.queue] if kept else {"kind": "none"}
        links.append(pair)
    return {
        "time_ns": max((agent.get("time_ns", 0) for agent in counted), default=0),
        "links": links,
        "queues": queues,
        "nodes": [counted[agent]["nodes"][node] if counted[agent] else {} for node, agent in enumerate(agent_of)],
        "switches": {name: switch for agent in counted for name, switch in agent.get("switches", {}).items()},
    }


def read_json(path: Path) -> Row:
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _join(target: Path, agents: Sequence[Path]) -> None:
    """The agents' files of that name, one after the other."""
    with target.open("wb") as into:
        for agent in agents:
            if (agent / target.name).exists():
                with open_regular(agent / target.name) as stream:
                    shutil.copyfileobj(stream, into)


def _order(
    target: Path,
    agents: Sequence[Path],
    read: Callable[[Path], Iterator[npt.NDArray[np.void]]],
    fields: tuple[str, ...],
) -> None:
    """The agents' records of that name, if there are any, sorted by `fields`; those without the first one come last."""
    files = [agent / target.name for agent in agents if (agent / target.name).exists()]
    if batches := [batch for file in files for batch in read(file)]:
        records = np.concatenate(batches)
        del batches
        order = np.lexsort(
            (*(records[name] for name in reversed(fields)), records[fields[0]] == np.iinfo(np.int64).min)
        )
        with target.open("wb") as into:
            for begin in range(0, len(order), CHUNK_RECORDS):
                into.write(records[order[begin : begin + CHUNK_RECORDS]].data)
    elif files:
        target.touch()


def _flow_samples(path: Path) -> Iterator[npt.NDArray[np.void]]:
    return (records.view(flow_samples.ANY_DTYPE) for _, records in flow_samples.read_flow_samples(path))


def _probes(path: Path) -> Iterator[npt.NDArray[np.void]]:
    with open_regular(path) as stream:
        yield from probes.read_probes(stream)


def write_rows(path: Path, rows: Iterator[Row]) -> None:
    with path.open("w") as stream:
        for row in rows:
            stream.write(json.dumps(row) + "\n")
