# SPDX-License-Identifier: Apache-2.0
"""Reads a cell as events for a viewer: its description, then the columns of its queues and the rates of its flows.

A running cell is read from its files as they grow (`CellTail`), an ended one from its tables (`ended_cell`). Both give
batches of samples, which `_Viewer` turns into events: equal samples are equal columns, whatever the batches.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from qbed.base.errors import MissingError, QbedError
from qbed.base.json_files import Row
from qbed.live.cell_tables import batches
from qbed.live.columns import SAMPLED, STEADY, Columns, Flows, Packets, binned, portions, width_of
from qbed.plan.model import Plan
from qbed.plan.ports import port_names
from qbed.storage.identity import StoreError, ran_on
from qbed.substrates import substrate
from qbed.telemetry.flow_samples import RATE_FIELDS
from qbed.telemetry.tail import SampleFiles
from qbed.telemetry.taps import OPERATIONS, Records

SETTLED_NS = 10**9
_PACKET = ("queue", "time_ns", "op", "bytes", "queue_bytes")
_QUEUE = ("queue", "port", "node", "role", "rate_bps", "duration_ns")

Event = tuple[str, Any]
"""An event's name and data."""


class _Viewer:
    """Turns the batches of samples of one cell into events. `queues`: rows with `port`, `node`, `role`, `rate_bps`."""

    def __init__(
        self, run: Path, cell: int, queues: list[Row], duration_ns: int, window: tuple[int, int] | None = None
    ) -> None:
        self._from_ns, until_ns = window or (0, duration_ns)
        self._width_ns = width_of(until_ns - self._from_ns)
        self._flows = Flows(self._width_ns)
        self._packets = Packets(self._width_ns, until_ns - self._from_ns)
        kinds = {row["node"]: row["role"] for row in queues}
        self.description: Row = {
            "cell": cell, "duration_ns": duration_ns, "from_ns": self._from_ns, "bin_ns": self._width_ns,
            "clock": {"clock": substrate(ran_on(run).name).clock},
            "queues": [row["port"] for row in queues], "nodes": list(kinds), "kinds": list(kinds.values()),
            "links": list(_links(queues, list(kinds))),
        }  # fmt: skip

    def events(self, table: str, samples: Records | Mapping[str, Any]) -> Iterator[Event]:
        """The events of a batch: numpy arrays by the names of the records' fields."""
        if self._from_ns:
            samples = _shifted(table, samples, self._from_ns)
        if table == "queue_series":
            for part in portions(samples["steady"]):
                values = {name: samples[name][part] for name in (*SAMPLED, *STEADY)}
                yield from self._queues(binned(samples["id"][part], values, self._width_ns))
        elif table == "queue_events":
            yield from self._queues(
                self._packets.columns({"queue": samples["id"]} | {f: samples[f] for f in _PACKET[1:]})
            )
        elif table in RATE_FIELDS:
            rates = self._flows.rates(samples["id"].astype(np.int64), samples["time_ns"], samples[RATE_FIELDS[table]])
            if rates:
                yield "flows", rates

    def rest(self) -> Iterator[Event]:
        """The events after the last batch."""
        yield from self._queues(self._packets.rest())

    def _queues(self, columns: Columns) -> Iterator[Event]:
        if columns:
            yield "queues", columns


def _links(queues: list[Row], nodes: list[str]) -> Iterator[Row]:
    """The links of the queues: a queue `h1>s1` and the next one `s1>h1` are the ends of a link."""
    at = {node: index for index, node in enumerate(nodes)}
    waiting: dict[tuple[int, int], list[int]] = {}
    for index, row in enumerate(queues):
        a, _, peer = row["port"].partition(" ")[0].partition(">")
        if a not in at or peer not in at:
            continue
        ends = (at[a], at[peer])
        if others := waiting.get(ends[::-1]):
            reverse = others.pop(0)
            rate = min(row["rate_bps"] or 1, queues[reverse]["rate_bps"] or 1)
            yield {"a": ends[1], "b": ends[0], "queues": [reverse, index], "rate_bps": rate}
        else:
            waiting.setdefault(ends, []).append(index)


class CellTail:
    """Events of the newest running cell, for one viewer."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self._cell: _RunningCell | None = None
        self._tables: Iterator[Event] | None = None
        self._begun: list[Path] = []
        self._seen_ns = -1

    @property
    def behind(self) -> bool:
        """Whether more is left to read."""
        return self._tables is not None or (self._cell is not None and any(files.full for files in self._cell.files))

    @property
    def awaited(self) -> bool:
        """Whether files are still missing. A short cell's files exist only briefly, so they are opened as soon as they
        appear.
        """
        return self._cell is not None and not self._cell.gone and not self._cell.open()

    def poll(self) -> list[Event]:
        """New events of the running cell. A cell that ended before its files were opened is read from its tables."""
        if self._tables is not None:
            event = next(self._tables, None)
            self._tables = None if event is None else self._tables
            return [] if event is None else [event]
        if self._cell is None:
            self._cell = self._newest()
            return [] if self._cell is None else [("cell", self._cell.viewer.description)]
        ended, rest = self._cell.gone, self._cell.viewer.rest  # before its files are read: they are whole then
        try:
            events = list(self._cell.new()) or (list(rest()) if ended else [])
        except (QbedError, ValueError, ArithmeticError):  # a guest that was killed in the middle of a record
            events, ended = [], True
        if ended and not events:
            number, missed = self._cell.number, not self._cell.opened
            if missed and self._cell.unfinished:
                return []
            self.close()
            if missed:
                self._tables = self._missed(number)
                return []
            return [("cell-end", {"cell": number})]
        return events

    def _missed(self, cell: int) -> Iterator[Event]:
        """The events of an ended cell, with its description again; only its end if it has no tables."""
        try:
            yield from ended_cell(self._run, cell)
        except QbedError:
            yield "cell-end", {"cell": cell}

    def _newest(self) -> _RunningCell | None:
        with suppress(OSError, QbedError, ValueError):
            works = sorted((work.stat().st_mtime, work) for work in self._works())
            if works:
                return _RunningCell(self._run, works[-1][1])
        return None

    def _works(self) -> list[Path]:
        """The work folders of the running cells. The folder of cells, perhaps ten thousand, is listed only after one
        has begun or ended.
        """
        cells = self._run / "cells"
        changed_ns = cells.stat().st_mtime_ns
        if changed_ns != self._seen_ns:
            with os.scandir(cells) as entries:
                self._begun = [cells / entry.name / "work" for entry in entries if entry.name.endswith(".tmp")]
            # A change within the same clock tick has the same time.
            self._seen_ns = changed_ns if time.time_ns() - changed_ns > SETTLED_NS else -1
        return [work for work in self._begun if work.exists()]

    def close(self) -> None:
        if self._cell is not None:
            for files in self._cell.files:
                files.close()
        self._cell = None


class _RunningCell:
    """A running cell. Its files stay open, so that they can be read to the end after they were removed."""

    def __init__(self, run: Path, work: Path) -> None:
        self.number = int(work.parent.name.removesuffix(".tmp"))
        self._work = work
        self._inode = work.stat().st_ino
        plan = Plan.loads((work / "plan.json").read_bytes())
        on = substrate(ran_on(run).name)
        max_samples = plan.max_samples() if on.clock == "virtual" else None
        self.files = [SampleFiles(part, len(plan.queues), max_samples) for part in on.samples(work, plan).parts]
        rates = plan.mean_rates
        queues = [
            {"port": port, "node": plan.nodes[queue.node].name, "role": queue.role, "rate_bps": rates.get(index)}
            for index, (port, queue) in enumerate(zip(port_names(plan), plan.queues, strict=True))
        ]
        self.viewer = _Viewer(run, self.number, queues, plan.duration_ns)
        self.open()

    @property
    def opened(self) -> bool:
        """Whether the samples of queues are readable, even if their files were removed."""
        return all(files.queues.opened for files in self.files)

    @property
    def unfinished(self) -> bool:
        """Whether the cell has its first folder still: it runs, or its tables are being written."""
        return self._work.parent.exists()

    @property
    def gone(self) -> bool:
        """Whether the cell has ended: its folder is renamed, or another cell's."""
        try:
            return self._work.stat().st_ino != self._inode
        except OSError:
            return True

    def open(self) -> bool:
        """Open the files that exist; returns whether those of the samples of queues are open."""
        for files in self.files:
            files.queues.open()
            files.flows.open()
        return self.opened

    def new(self) -> Iterator[Event]:
        """New events: at most a piece of each file."""
        for files in self.files:
            for table, records in files.piece():
                yield from self.viewer.events(table, records)


def ended_cell(run: Path, cell: int, window: tuple[int, int] | None = None) -> Iterator[Event]:
    """The events of an ended cell, from its tables. `window`: columns of this part of its time only. `MissingError`,
    `StoreError`.
    """
    try:
        queues = [row for batch in batches(run, cell, "queues", _QUEUE) for row in batch.to_pylist()]
    except (OSError, pa.ArrowException, QbedError):
        raise StoreError(f"the tables of cell {cell} are damaged") from None
    if not queues:
        raise MissingError(f"there is no cell {cell} that has ended, with queues")
    viewer = _Viewer(run, cell, queues, max(row["duration_ns"] or 1 for row in queues), window)
    return _ended_events(run, cell, viewer)


def _shifted(table: str, samples: Records | Mapping[str, Any], by_ns: int) -> Mapping[str, Any]:
    """Samples with times since the start of a window. Of the packets before it, the last of each queue remains, since
    the queue's length in the window follows from it.
    """
    names = samples.dtype.names or () if isinstance(samples, np.ndarray) else samples
    found = {name: samples[name] for name in names}
    times = found["time_ns"].astype(np.int64) - by_ns
    if table != "queue_events":
        return found | {"time_ns": times}
    before = np.flatnonzero(times < 0)
    _, last = np.unique(found["id"][before[::-1]], return_index=True)
    kept = np.concatenate([np.sort(before[::-1][last]), np.flatnonzero(times >= 0)])
    found = {name: values[kept] for name, values in found.items()}
    op = np.where(times[kept] < 0, 0, found["op"])  # it is counted in no column
    return found | {"time_ns": np.maximum(times[kept], 0), "op": op}


def _ended_events(run: Path, cell: int, viewer: _Viewer) -> Iterator[Event]:
    yield "cell", viewer.description
    tables: dict[str, tuple[str, ...]] = {"queue_series": ("queue", *SAMPLED), "queue_events": _PACKET}
    tables |= {table: ("flow", "time_ns", field) for table, field in RATE_FIELDS.items()}
    try:
        for table, names in tables.items():
            for batch in batches(run, cell, table, names):
                columns = [_numbers(column) for column in batch.columns]
                samples = dict(zip(("id", *names[1:]), columns, strict=True))
                yield from viewer.events(table, samples | dict.fromkeys(STEADY, np.zeros(batch.num_rows, np.int64)))
    except (OSError, pa.ArrowException, QbedError):
        yield "damaged", {"cell": cell}
    yield from viewer.rest()
    yield "cell-end", {"cell": cell}


def _numbers(column: Any) -> Any:
    """A column as numbers: the name of an operation becomes its place in `OPERATIONS`."""
    if pa.types.is_dictionary(column.type):
        places = np.array([OPERATIONS.index(name) for name in column.dictionary.to_pylist()] or [0], np.int64)
        return places[column.indices.fill_null(0).to_numpy(zero_copy_only=False)]
    return column.fill_null(-1).to_numpy(zero_copy_only=False)
