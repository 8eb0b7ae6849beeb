# SPDX-License-Identifier: Apache-2.0
"""Follows the newest running cell of a run folder, by the files that it writes anyway."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from io import BufferedReader
from pathlib import Path
from typing import Any

from qbed.base.errors import QbedError
from qbed.base.json_files import Row
from qbed.live.columns import SAMPLED, STEADY, Columns, Flows, binned, portions, width_of
from qbed.plan.model import Plan
from qbed.plan.ports import port_names
from qbed.storage.identity import ran_on
from qbed.substrates import substrate
from qbed.telemetry.flow_lines import numbers
from qbed.telemetry.taps import Run, TapTail

PIECE_BYTES = 1 << 20
SETTLED_NS = 10**9
_FLOWS = {"tcpinfo.ndjson": "delivery_bps", "rates.ndjson": "rate_bps"}

Event = tuple[str, Any]
"""An event's name and data."""


class CellTail:
    """Events of the newest running cell, for one viewer."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self._cell: _Cell | None = None
        self._begun: list[Path] = []
        self._seen_ns = -1

    @property
    def behind(self) -> bool:
        """Whether more is left to read."""
        return self._cell is not None and self._cell.behind

    @property
    def awaited(self) -> bool:
        """Whether files are still missing. A short cell's files exist only briefly, so they are opened as soon as they
        appear.
        """
        return self._cell is not None and not self._cell.gone and self._cell.awaited

    def poll(self) -> list[Event]:
        """New events of the running cell."""
        if self._cell is None:
            self._cell = self._newest()
            return [] if self._cell is None else [("cell", self._cell.described())]
        gone = self._cell.gone  # before its files are read: they are whole then
        try:
            events = self._cell.poll()
        except (
            QbedError,
            ValueError,
            KeyError,
            TypeError,
            ArithmeticError,
            RecursionError,
        ):  # a guest that was killed in the middle of a record
            events, gone = [], True
        if gone and not events:
            number = self._cell.number
            self.close()
            return [("cell-end", {"cell": number})]
        return events

    def _newest(self) -> _Cell | None:
        with suppress(OSError, QbedError, ValueError):
            works = sorted((work.stat().st_mtime, work) for work in self._works())
            if works:
                return _Cell(self._run, works[-1][1])
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
            self._cell.close()
        self._cell = None


class _Cell:
    """A running cell. Its files stay open, so that they can be read to the end after they were removed."""

    def __init__(self, run: Path, work: Path) -> None:
        self.number = int(work.parent.name.removesuffix(".tmp"))
        self._work = work
        self._inode = work.stat().st_ino
        self._plan = Plan.loads((work / "plan.json").read_bytes())
        found = substrate(ran_on(run).name).samples(work, self._plan)
        self._clock = found.clock
        self._width = width_of(self._plan.duration_ns)
        queues, most = len(self._plan.queues), self._plan.most_samples
        self._tails = [(_File(part / "taps.bin"), TapTail(queues, most, as_written=True)) for part in found.parts]
        self._lines = [_Lines(_File(part / name), field) for part in found.parts for name, field in _FLOWS.items()]
        self._flows = Flows(self._width)

    @property
    def gone(self) -> bool:
        """Whether the cell has ended: its folder is renamed, or another cell's."""
        try:
            return self._work.stat().st_ino != self._inode
        except OSError:
            return True

    @property
    def awaited(self) -> bool:
        """Whether the samples of queues have no file yet."""
        there = [file.there() for file in self._files()]
        return not all(there[: len(self._tails)])

    @property
    def behind(self) -> bool:
        """Whether a whole piece was read of a file the last time, so that there is probably more."""
        return any(file.full for file in self._files())

    def _files(self) -> list[_File]:
        return [*(file for file, _ in self._tails), *(lines.file for lines in self._lines)]

    def described(self) -> Row:
        """The description that precedes the samples."""
        return described(self._plan, self.number, self._clock)

    def poll(self) -> list[Event]:
        """New events: at most a piece of each file."""
        events: list[Event] = []
        for file, tail in self._tails:
            for run in tail.feed(file.more()):
                if not isinstance(run, Run) or run.kind != "samples":
                    continue
                for part in portions(run.records):
                    samples = {name: part[name] for name in (*SAMPLED, *STEADY)}
                    if columns := binned(part["id"], samples, self._width):
                        events.append(("queues", columns))
        for lines in self._lines:
            if rates := lines.more(self._flows):
                events.append(("flows", rates))
        return events

    def close(self) -> None:
        for file in self._files():
            file.close()


def described(plan: Plan, number: int, clock: Row) -> Row:
    """The description of a cell for a viewer of its samples."""
    links = [
        {
            "a": link.a.node,
            "b": link.b.node,
            "queues": [link.a.queue, link.b.queue],
            "rate_bps": min(link.a.rate_bps, link.b.rate_bps),
            "overhead_bytes": link.a.overhead_bytes,
        }
        for link in plan.links
    ]
    return {
        "cell": number, "lab": plan.lab, "duration_ns": plan.duration_ns, "bin_ns": width_of(plan.duration_ns),
        "clock": clock, "queues": port_names(plan), "nodes": [node.name for node in plan.nodes],
        "kinds": [node.kind for node in plan.nodes], "links": links,
    }  # fmt: skip


class _Lines:
    """Samples of flows, a line each; of their fields, those that are drawn."""

    def __init__(self, file: _File, field: str) -> None:
        self.file = file
        self._rest = b""
        self._fields = ("flow", "time_ns", field)

    def more(self, flows: Flows) -> Columns:
        """The rates in whole lines that are new. `ValueError`: they are no such lines."""
        lines, _, self._rest = (self._rest + self.file.more()).rpartition(b"\n")
        if not lines:
            return {}
        flow, time_ns, bps = numbers(lines, self._fields)
        whole = flow(), time_ns()
        if any(column.dtype.kind != "i" for column in whole):
            raise ValueError("a line without its flow or its time")
        return flows.rates(*whole, bps)


class _File:
    """A growing file, opened once it exists."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stream: BufferedReader | None = None
        self.full = False

    def there(self) -> bool:
        """Open the file if it exists; returns whether it is open."""
        if self._stream is None:
            with suppress(OSError):
                self._stream = self._path.open("rb")
        return self._stream is not None

    def more(self) -> bytes:
        """The next piece of new content."""
        data = self._stream.read(PIECE_BYTES) if self.there() and self._stream else b""
        self.full = len(data) == PIECE_BYTES
        return data

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
