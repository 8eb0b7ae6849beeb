# SPDX-License-Identifier: Apache-2.0
"""Merges the results of a cell's nodes into one cell folder, as if one agent had written it (docs/formats.md)."""

from __future__ import annotations

import heapq
import json
import shutil
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from qbed.base.files import open_regular
from qbed.base.json_files import Row
from qbed.plan.model import End, Plan
from qbed.substrates import CellError
from qbed.substrates.containers import NAME
from qbed.substrates.containers.folder import NODES, OUT
from qbed.substrates.containers.placement import Placement
from qbed.telemetry import flow_samples, probes
from qbed.telemetry.console import console_tail
from qbed.telemetry.exchanges import EXCHANGES, read_exchanges
from qbed.telemetry.records import RAW_FILES, read_done, read_rows
from qbed.telemetry.wall import FILE, FRAMES, NODE_FILE

RECEIVER_FIELDS = ("end_ns", "received_bytes", "segments_received")
"""The fields of a flow that its receiver measures."""
SHOWN = 3
ROUTES, PROGRAMS = "routes.ndjson", "programs.ndjson"
WINDOWS, STATISTICS = "windows.ndjson", "statistics.ndjson"

CHUNK_RECORDS = 1 << 16


def gather(folder: Path, plan: Plan, placement: Placement) -> None:
    """Merge `folder/nodes/*/out` into `folder/out`; `CellError` if a node did not come to its end."""
    parts = [folder / NODES / node.name / OUT for node in plan.nodes]
    out = folder / OUT
    out.mkdir(exist_ok=True)
    end_ns = _ends(folder, plan, parts)
    _write(out / "flows.ndjson", merged_flows(plan, parts))
    if plan.windows:
        rows = (read_rows(part / WINDOWS) for part in parts)
        _write(out / WINDOWS, heapq.merge(*rows, key=lambda row: (row["time_ns"], row["flow"])))
    if plan.statistics_interval_ns:
        rows = (read_rows(part / STATISTICS) for part in parts)
        _write(out / STATISTICS, heapq.merge(*rows, key=lambda row: (row["time_ns"], row["queue"])))
    frames = (read_rows(part / FRAMES) for part in parts if (part / FRAMES).exists())
    _write(out / FRAMES, heapq.merge(*frames, key=lambda row: (row["time_ns"], row["node"])))
    if any((part / ROUTES).exists() for part in parts):
        _write(out / ROUTES, heapq.merge(*(read_rows(part / ROUTES) for part in parts), key=lambda row: row["time_ns"]))
    if plan.launches:
        rows = (read_rows(part / PROGRAMS) for part in parts)
        _write(out / PROGRAMS, heapq.merge(*rows, key=lambda row: row["launch"]))
    _join(out / "taps.bin", parts)
    _order(out / flow_samples.FILE, parts, _flow_samples, ("time_ns", "id"))
    _order(out / probes.FILE, parts, _probes, ("returned_ns",))
    _order(out / EXCHANGES, parts, read_exchanges, ("end_ns",))
    counters = merged_counters(plan, [_json(part / "counters.json") for part in parts], placement.host_kernel)
    (out / "counters.json").write_text(json.dumps(counters))
    for part in parts:
        for pattern in RAW_FILES:
            for file in part.glob(pattern):
                shutil.copyfile(file, out / file.name)
    wall = {
        "substrate": NAME,
        "dilation": placement.dilation,
        "host_kernel": [plan.nodes[node].name for node in placement.host_kernel],
        "nodes": {node.name: _json(part / NODE_FILE) for node, part in zip(plan.nodes, parts, strict=True)},
    }
    (out / FILE).write_text(json.dumps(wall))
    (out / "done.json").write_text(json.dumps({"status": "complete", "end_ns": end_ns}))


def _ends(folder: Path, plan: Plan, parts: list[Path]) -> int:
    """When the last node ended; `CellError` names those that did not."""
    wrong: list[str] = []
    end_ns = 0
    for node, part in zip(plan.nodes, parts, strict=True):
        done = read_done(part / "done.json")
        if done is not None and done.status == "complete" and done.end_ns is not None:
            end_ns = max(end_ns, done.end_ns)
        else:
            last = console_tail(folder / NODES / node.name / "console.log")[-1:]
            wrong.append(
                f"{node.name}: {(done and done.error) or 'has left no result'}" + "".join(f" ({x})" for x in last)
            )
    if wrong:
        more = f" and {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""
        raise CellError("; ".join(wrong[:SHOWN]) + more)
    return end_ns


def merged_flows(plan: Plan, parts: list[Path]) -> Iterator[Row]:
    """One row a flow, in the order of their numbers: the sender's, with what only the receiver knows from its row."""
    rows = heapq.merge(*(_flows(node, part) for node, part in enumerate(parts)), key=lambda item: item[1]["flow"])
    pending: dict[str, Row] = {}
    for node, row in rows:
        if pending and next(iter(pending.values()))["flow"] != row["flow"]:
            yield _one_flow(pending)
            pending = {}
        pending["sender" if row["src"] == node else "receiver"] = row
    if pending:
        yield _one_flow(pending)


def _flows(node: int, part: Path) -> Iterator[tuple[int, Row]]:
    return ((node, row) for row in read_rows(part / "flows.ndjson"))


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


def merged_counters(plan: Plan, parts: list[Row], host_kernel: Collection[int]) -> Row:
    """Each end of a link, each queue and each stack from the node that has it.

    A node's guest also has the far end of each of its links. What it counts there counts only where that far end's
    node is on the machine's kernel: then the planned queue is there (docs/formats.md section 5).
    """

    def keeper(end: End, peer: End) -> Row:
        return parts[peer.node if end.node in host_kernel else end.node]

    links: list[Row] = []
    queues: list[Row] = [{"kind": "none"} for _ in plan.queues]
    for index, link in enumerate(plan.links):
        pair = {}
        for side, end, peer in (("a", link.a, link.b), ("b", link.b, link.a)):
            counted = keeper(end, peer)
            pair[side] = counted["links"][index][side] if counted else {}
            queues[end.queue] = counted["queues"][end.queue] if counted else {"kind": "none"}
        links.append(pair)
    return {
        "time_ns": max((part.get("time_ns", 0) for part in parts), default=0),
        "links": links,
        "queues": queues,
        "nodes": [part["nodes"][index] if part else {} for index, part in enumerate(parts)],
        "switches": {name: counted for part in parts for name, counted in part.get("switches", {}).items()},
    }


def _json(path: Path) -> Row:
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _join(target: Path, parts: list[Path]) -> None:
    """The parts' files of that name, one after the other."""
    with target.open("wb") as into:
        for part in parts:
            if (part / target.name).exists():
                with open_regular(part / target.name) as stream:
                    shutil.copyfileobj(stream, into)


def _order(
    target: Path, parts: list[Path], read: Callable[[Path], Iterator[npt.NDArray[np.void]]], fields: tuple[str, ...]
) -> None:
    """The parts' records of that name, if there are any, sorted by `fields`; those without the first one come last."""
    files = [part / target.name for part in parts if (part / target.name).exists()]
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


def _write(path: Path, rows: Iterator[Row]) -> None:
    with path.open("w") as stream:
        for row in rows:
            stream.write(json.dumps(row) + "\n")
