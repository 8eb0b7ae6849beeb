# SPDX-License-Identifier: Apache-2.0
"""A run folder's cells as points, while they run and when they have ended.

The state is read from the folder, independent of what runs the cells and on how many machines. A running cell is a
folder `NNNNNN.tmp` with growing files; one that has ended has tables, with the same rows in the same order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from qbed.cells.arrow import flow_table, read_cell, series_of
from qbed.live.points import (
    MAX_FLOWS,
    MAX_SERIES,
    Origin,
    Points,
    Queue,
    flow_points,
    queue_points,
    queues_of,
    result_points,
    total_points,
)
from qbed.plan.model import Plan
from qbed.plan.ports import port_names
from qbed.storage.checksums import DamagedError, read_cell_record
from qbed.storage.identity import ran_on, read_identity
from qbed.substrates import substrate
from qbed.telemetry.flow_samples import FIELDS
from qbed.telemetry.tail import SampleFiles

_NAME = re.compile(r"(\d{6,9})(\.tmp|\.failed)?")
BATCH_ROWS = 10_000
TOTALS = "totals"
"""The table name under which the delivery log records the points of an ended cell."""
SAMPLED = ("queue_series", *FIELDS)


@dataclass(frozen=True)
class Piece:
    """Points to be sent, and how many rows of a cell's table have been seen with them."""

    points: Points
    cell: int
    table: str
    rows: int


class Cells:
    """The cells of a run folder."""

    def __init__(self, run: Path, origin: Origin) -> None:
        self._folder = run / "cells"
        self._origin = origin
        self._axes = [str(axis["name"]) for axis in read_identity(run)["matrix"]["axes"]] or ["seed"]
        self._clock = substrate(ran_on(run).name).clock
        self.crowded: set[int] = set()
        """Cells with samples of too many series."""

    def look(self) -> tuple[set[int], dict[int, Path]]:
        """Which cells run now, and the folders of those that have ended."""
        running, ended = set(), {}
        for path in self._folder.iterdir():
            if found := _NAME.fullmatch(path.name):
                if found[2] == ".tmp":
                    running.add(int(found[1]))
                else:
                    ended[int(found[1])] = path
        return running, ended

    def running(self, cell: int) -> Running | None:
        """A cell that runs, if its samples can be read already. On the wall clock they are when it has ended: what is
        sent of one that a crash ends would not be what its next try gives.
        """
        work = self._folder / f"{cell:06d}.tmp" / "work"
        if self._clock == "wall":
            return None
        try:
            plan = Plan.loads((work / "plan.json").read_bytes())
        except (OSError, ValueError):  # it is being written, or the cell has ended
            return None
        return Running(plan, work / "out", replace(self._origin, cell=cell))

    def fits(self, cell: int, queues: int) -> bool:
        """Whether the samples of a cell of so many queues are sent; the cells before it count as many."""
        if (cell + 1) * (queues + MAX_FLOWS) <= MAX_SERIES:
            return True
        self.crowded.add(cell)
        return False

    def ended(self, cell: int, folder: Path, seen: dict[str, int]) -> Iterator[Piece]:
        """All points of a cell that has ended, but for the rows that were seen already. `DamagedError`."""
        origin = replace(self._origin, cell=cell)
        row = read_cell_record(folder, cell)
        queues, flows = (_complete_table(folder / f"{name}.arrow", cell) for name in ("queues", "flows"))
        if queues is not None and self.fits(cell, len(queues)):
            names = queues_of(queues)
            for table in SAMPLED:
                yield from self._remaining(folder / f"{table}.arrow", origin, names, seen.get(table, 0))
        else:
            names = []
        last = [*(total_points(queues, origin) if names else ()), result_points(row, flows, queues, self._axes, origin)]
        for index, points in enumerate(last[seen.get(TOTALS, 0) :], seen.get(TOTALS, 0) + 1):
            yield Piece(points, cell, TOTALS, index)

    @staticmethod
    def _remaining(file: Path, origin: Origin, queues: list[Queue], seen: int) -> Iterator[Piece]:
        at = 0
        for table in read_cell(file, origin.cell):
            yield from _pieces(file.stem, table, at, seen, origin, queues)
            at += table.num_rows


class Running:
    """A cell that runs, or a lab that is up. `seen`: the rows of each table that were read already."""

    def __init__(self, plan: Plan, folder: Path, origin: Origin) -> None:
        ports = port_names(plan)
        self.queues = [
            Queue(plan.nodes[queue.node].name, port, queue.scheme)
            for queue, port in zip(plan.queues, ports, strict=True)
        ]
        self._ports = ports
        self._files = SampleFiles(folder, len(plan.queues), plan.max_samples)
        self._origin = origin
        self._at = dict.fromkeys(SAMPLED, 0)

    def new(self, seen: dict[str, int]) -> Iterator[Piece]:
        """New points since the last call."""
        for name, table in self._tables():
            at, self._at[name] = self._at[name], self._at[name] + table.num_rows
            yield from _pieces(name, table, at, seen.get(name, 0), self._origin, self.queues)

    def _tables(self) -> Iterator[tuple[str, Any]]:
        for name, records in self._files.queues.rest():
            if name == "queue_series":
                yield from ((name, table) for table in series_of(records, self._ports))
        for name, records in self._files.flows.rest():
            yield name, flow_table(name, records)

    def close(self) -> None:
        self._files.close()


def _pieces(name: str, table: Any, at: int, seen: int, origin: Origin, queues: list[Queue]) -> Iterator[Piece]:
    """The rows that were not read yet; `at`: the number of rows before these."""
    for begin in range(max(seen - at, 0), table.num_rows, BATCH_ROWS):
        rows = table.slice(begin, BATCH_ROWS)
        points = queue_points(rows, origin, queues) if name == "queue_series" else flow_points(rows, origin)
        yield Piece(points, origin.cell, name, at + begin + rows.num_rows)


def _complete_table(file: Path, cell: int) -> Any:
    with suppress(pa.ArrowInvalid):
        if found := list(read_cell(file, cell)):
            return pa.concat_tables(found).combine_chunks()
        return None
    raise DamagedError(file, "is not what was written")
