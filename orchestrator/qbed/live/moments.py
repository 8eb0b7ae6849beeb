# SPDX-License-Identifier: Apache-2.0
"""A cell's events as points, for annotations: flows that start and end, the first drop, timeouts, link events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from qbed.cells.arrow import read_cell
from qbed.live.points import EPOCH_NS, STRETCH, Origin, Points
from qbed.plan.model import Plan

MAX_EVENTS = 100
"""The most events of a kind in one cell: the first ones."""
MAX_NAMES = 3
Moment = tuple[int, str, str]
"""Time in ns, kind and text."""


def event_points(moments: Iterable[Moment], origin: Origin) -> Points | None:
    """Events of a cell; those of one kind at one time are one point."""
    texts: dict[tuple[str, int], list[str]] = {}
    for time_ns, kind, text in moments:
        texts.setdefault((kind, time_ns), []).append(text)
    kept: list[tuple[str, int]] = []
    for kind in sorted({kind for kind, _ in texts}):
        kept += sorted(key for key in texts if key[0] == kind)[:MAX_EVENTS]
    if not kept:
        return None
    tags = [origin.tags | {"kind": kind} for kind, _ in kept]
    fields = {"text": pa.array([_joined(texts[key]) for key in kept])}
    times = pa.array([EPOCH_NS + time_ns * STRETCH for _, time_ns in kept], pa.int64())
    return Points("event", tags, pa.array(range(len(tags)), pa.int64()), fields, times)


def _joined(texts: list[str]) -> str:
    more = f" and {len(texts) - MAX_NAMES} more" if len(texts) > MAX_NAMES else ""
    return ", ".join(texts[:MAX_NAMES]) + more


def planned_moments(plan: Plan) -> Iterator[Moment]:
    """The events of a plan: links that go down or come up, and changes."""
    for event in plan.events:
        yield event.at_ns, "link", f"{plan.links[event.link].name} {event.state}"
    for change in plan.changes:
        if change.link is not None:
            yield change.at_ns, "change", f"link {plan.links[change.link.link].name}"
        elif change.queue is not None:
            yield change.at_ns, "change", f"queue {plan.queues[change.queue.queue].name}"
        elif change.node is not None:
            yield change.at_ns, "change", f"node {plan.nodes[change.node.node].name}"


def measured_moments(folder: Path, cell: int, flows: pa.Table | None) -> Iterator[Moment]:
    """The events in an ended cell's tables."""
    names = []
    if flows is not None:
        starts, ends, names = (flows[name].to_pylist() for name in ("start_ns", "end_ns", "src"))
        names = [f"{src}>{dst}" for src, dst in zip(names, flows["dst"].to_pylist(), strict=True)]
        for kind, times in (("flow start", starts), ("flow end", ends)):
            yield from ((time, kind, name) for time, name in zip(times, names, strict=True) if time is not None)
    yield from _first_drop(folder, cell)
    yield from _timeouts(folder, cell, names)


def _first_drop(folder: Path, cell: int) -> Iterator[Moment]:
    found: list[tuple[int, str]] = []
    for name, dropped in (("queue_events", pc.field("op") == "drop"), ("queue_series", pc.field("dropped") > 0)):
        for table in read_cell(folder / f"{name}.arrow", cell):
            rows = table.filter(dropped)
            if rows.num_rows:
                first = int(np.argmin(rows["time_ns"].to_numpy()))
                found.append((rows["time_ns"][first].as_py(), str(rows["port"][first].as_py())))
                break
    if found:
        time_ns, port = min(found)
        yield time_ns, "first drop", port


def _timeouts(folder: Path, cell: int, names: list[str]) -> Iterator[Moment]:
    """Samples in which a flow's retransmission timer has expired since the sample before."""
    for name, field in (("tcp_info", "state"), ("rates", "timeouts")):
        known: dict[int, object] = {}
        for table in read_cell(folder / f"{name}.arrow", cell):
            if field == "state" and not pc.any(pc.equal(table[field], "loss")).as_py():
                known |= dict.fromkeys(known)
                continue
            for flow, time_ns, value in zip(*(table[c].to_pylist() for c in ("flow", "time_ns", field)), strict=True):
                before, known[flow] = known.get(flow), value
                if value == "loss" != before if field == "state" else (value or 0) > int(str(before or 0)):
                    yield time_ns, "timeout", names[flow] if flow < len(names) else f"flow {flow}"
