# SPDX-License-Identifier: Apache-2.0
"""The samples of a lab while it runs, in containers or in virtual time: one stream of NDJSON in the lab's own time.

The nodes' files are read as they grow, so a reader costs the lab nothing. Queue samples are those of `observe.queues`
at an interval, flow samples those of `observe.flows`.
"""

from __future__ import annotations

import heapq
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qbed.plan.model import Plan
from qbed.plan.ports import port_names
from qbed.substrates import VIRTUAL
from qbed.substrates.containers import NAME
from qbed.substrates.containers.folder import NODES, OUT, PLACE, PLAN
from qbed.substrates.containers.labs import read_record
from qbed.substrates.sessions import CELL, SessionError, session, state_folder
from qbed.telemetry.taps import Histogram, Records, TapTail
from qbed.telemetry.wall import read_wall

POLL_S = 0.2
PIECE_BYTES = 1 << 20
_QUEUE = ("min_bytes", "max_bytes", "min_packets", "max_packets", "enqueued", "dequeued", "dropped", "marked")

UNITS = ("byte", "packet")

Row = dict[str, Any]


@dataclass(frozen=True)
class Running:
    """A lab whose samples can be read: its folder (with `plan.json`), and whether it still goes on."""

    folder: Path
    alive: Callable[[], bool]


def find(what: str) -> Running:
    """A lab that is up, by its name; or a run folder: its newest cell that runs, or the last one that was kept."""
    record = read_record(what) if "/" not in what else None
    if record is not None:
        return Running(record.path, lambda: read_record(what) is not None)
    if "/" not in what and session(what).is_up():
        return Running(state_folder() / what / CELL, lambda: session(what).is_up())
    cells = Path(what) / "cells"
    works = sorted(cells.glob("*.tmp/work"), key=lambda path: path.stat().st_mtime) if cells.is_dir() else []
    if works:
        return Running(works[-1], works[-1].exists)
    kept = sorted(cells.glob("*/work")) if cells.is_dir() else []
    if kept:
        return Running(kept[-1], lambda: False)
    hint = (
        "no cell runs there, and none was kept (--keep)" if cells.is_dir() else "`qbed ps` lists the labs that are up"
    )
    raise SessionError(f"{what} has no samples: {hint}")


def stream(running: Running, *, follow: bool) -> Iterator[Row]:
    """The clock, then every sample, in the order of time of what could be read at once. `follow`: until it ends."""
    plan = _plan(running)
    yield clock(running.folder, plan)
    tails = [_Tail(plan, part) for part in parts(running.folder, plan)]
    while True:
        alive = running.alive()
        rows = heapq.merge(*(sorted(tail.rows(), key=_time) for tail in tails), key=_time)
        yield from rows
        if not follow or not alive:
            return
        time.sleep(POLL_S)


def _plan(running: Running) -> Plan:
    try:
        return Plan.loads((running.folder / PLAN).read_bytes())
    except OSError as error:
        raise SessionError(f"{running.folder} has no plan: {error.strerror}") from error


def parts(folder: Path, plan: Plan) -> list[Path]:
    """The folders that hold samples: one in virtual time and where nodes were merged, one a node in containers."""
    whole = folder / OUT
    if (whole / "done.json").exists() or not (folder / NODES).is_dir():
        return [whole]
    return [folder / NODES / node.name / OUT for node in plan.nodes]


def clock(folder: Path, plan: Plan) -> Row:
    """What the times of the samples are, and how far a sample's time may be from when it was true.

    All nodes have one clock, the machine's: between two of them nothing can drift. `error_ns` is by how much their
    deadlines ran late; it is null until a node has said it, which it does at its end.
    """
    row: Row = {"event": "clock", "lab": plan.lab, "unit": "ns since the lab's epoch", "substrate": VIRTUAL}
    row |= {"dilation": 1, "error_ns": 0}
    if not (folder / NODES).is_dir():
        return row
    place = json.loads((folder / NODES / plan.nodes[0].name / PLACE).read_bytes())
    wall = read_wall(folder / OUT)
    error_ns = None if wall is None else wall.latest_ns // wall.dilation
    return row | {"substrate": NAME, "dilation": place["dilation"], "error_ns": error_ns, "source": "CLOCK_MONOTONIC"}


def _time(row: Row) -> int:
    return int(row["time_ns"])


class _Tail:
    """The growing files of one folder."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self._ports = port_names(plan)
        self._taps, self._flows = folder / "taps.bin", folder / "tcpinfo.ndjson"
        self._stream = TapTail(len(plan.queues))
        self._at = {self._taps: 0, self._flows: 0}
        self._line = b""

    def rows(self) -> Iterator[Row]:
        """What has come since the last time."""
        for data in self._new(self._taps):
            for batch in self._stream.feed(data):
                if not isinstance(batch, Histogram) and batch.kind == "samples":
                    yield from self._queues(batch.records)
        for data in self._new(self._flows):
            *lines, self._line = (self._line + data).split(b"\n")
            yield from ({"sample": "flow", **json.loads(line)} for line in lines if line)

    def _new(self, path: Path) -> Iterator[bytes]:
        try:
            with path.open("rb") as stream:
                stream.seek(self._at[path])
                while data := stream.read(PIECE_BYTES):
                    self._at[path] += len(data)
                    yield data
        except FileNotFoundError:
            return

    def _queues(self, records: Records) -> Iterator[Row]:
        for record in records:
            interval = int(record["interval_ns"])
            row: Row = {"sample": "queue", "port": self._ports[int(record["id"])], "time_ns": int(record["time_ns"])}
            row |= {"interval_ns": interval}
            row |= {f"mean_{unit}s": int(record[f"{unit}_ns"]) / interval if interval else None for unit in UNITS}
            yield row | {name: int(record[name]) for name in _QUEUE}
