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

from qbed.base.json_files import Row, read_json
from qbed.cells.arrow import flow_table, read_cell, series_of
from qbed.live import results
from qbed.live.moments import event_points, measured_moments, planned_moments
from qbed.live.points import MAX_FLOWS, MAX_SERIES, Origin, Points, Queue, flow_points, queue_points, queues_of
from qbed.live.sums import sampled_queues, sums_of
from qbed.plan.model import Plan
from qbed.plan.ports import port_names
from qbed.plan.workload import Arrivals, Flows
from qbed.storage.checksums import DamagedError, read_cell_record
from qbed.storage.identity import ran_on, read_identity
from qbed.storage.run_folder import PARAMETERS
from qbed.substrates import substrate
from qbed.telemetry.flow_samples import FIELDS
from qbed.telemetry.tail import SampleFiles

_NAME = re.compile(r"(\d{6,9})(\.tmp|\.failed)?")
BATCH_ROWS = 10_000
TOTALS, SUMS, PLANNED = "totals", "sums", "planned"
"""The table names under which the delivery log records points that are no rows of a table."""
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
        axes = read_identity(run)["matrix"]["axes"]
        self.axes = {str(axis["name"]): list(axis["values"]) for axis in axes} or {"seed": []}
        self.parameters = _parameters(run)
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
        last: list[Points | None] = []
        if queues is not None and self.fits(cell, len(queues)):
            yield from self._samples(cell, folder, queues_of(queues), flow_names(flows), seen)
            _, end_ns, active_ns = results.active_span(flows, row)
            last = [*results.total_points(queues, origin, active_ns)]
            last.append(event_points(measured_moments(folder, cell, flows), origin))
            last.append(results.limit_points(self.parameters, row, end_ns, self.axes, origin))
        numbers = results.cell_numbers(row, flows, queues)
        last.append(results.cell_points(numbers, row, flows, self.axes, origin))
        last.append(results.result_points(numbers, row, self.axes, origin))
        kept = [points for points in last if points is not None]
        for index, points in enumerate(kept[seen.get(TOTALS, 0) :], seen.get(TOTALS, 0) + 1):
            yield Piece(points, cell, TOTALS, index)

    def _samples(
        self, cell: int, folder: Path, queues: list[Queue], names: list[str], seen: dict[str, int]
    ) -> Iterator[Piece]:
        origin = replace(self._origin, cell=cell)
        for table in SAMPLED:
            yield from self._remaining(folder / f"{table}.arrow", origin, queues, names, seen.get(table, 0))
        at = 0
        for rows in sums_of(folder, cell, sampled_queues(folder, cell)):
            yield from _pieces(SUMS, rows, at, seen.get(SUMS, 0), origin, queues, names)
            at += rows.num_rows

    @staticmethod
    def _remaining(file: Path, origin: Origin, queues: list[Queue], names: list[str], seen: int) -> Iterator[Piece]:
        at = 0
        for table in read_cell(file, origin.cell):
            yield from _pieces(file.stem, table, at, seen, origin, queues, names)
            at += table.num_rows


class Running:
    """A cell that runs, or a lab that is up (`lab`). `seen`: the rows of each table that were read already."""

    def __init__(self, plan: Plan, folder: Path, origin: Origin, *, lab: bool = False) -> None:
        self._lab = lab
        ports, rates = port_names(plan), plan.mean_rates
        self.queues = [
            Queue(plan.nodes[queue.node].name, port, queue.scheme, rates.get(index))
            for index, (queue, port) in enumerate(zip(plan.queues, ports, strict=True))
        ]
        self._names = planned_names(plan)
        self._plan, self._ports = plan, ports
        self._files = SampleFiles(folder, len(plan.queues), None if lab else plan.max_samples())
        self._origin = origin
        self._at = dict.fromkeys((*SAMPLED, PLANNED), 0)

    def new(self, seen: dict[str, int]) -> Iterator[Piece]:
        """New points since the last call. Samples of flows without names are sent when the cell has ended."""
        planned = [results.planned_points(self._plan.duration_ns, self._origin)]
        if events := event_points(planned_moments(self._plan), self._origin):
            planned.append(events)
        begin = max(self._at[PLANNED], seen.get(PLANNED, 0))
        for number, points in enumerate(planned[begin:], begin + 1):
            yield Piece(points, self._origin.cell, PLANNED, number)
        self._at[PLANNED] = len(planned)
        for name, table in self._tables():
            at, self._at[name] = self._at[name], self._at[name] + table.num_rows
            if name == "queue_series" or self._names is not None or self._lab:
                yield from _pieces(name, table, at, seen.get(name, 0), self._origin, self.queues, self._names or [])

    def _tables(self) -> Iterator[tuple[str, Any]]:
        for name, records in self._files.queues.rest():
            if name == "queue_series":
                yield from ((name, table) for table in series_of(records, self._ports))
        for name, records in self._files.flows.rest():
            yield name, flow_table(name, records)

    def close(self) -> None:
        self._files.close()


def planned_names(plan: Plan) -> list[str] | None:
    """The names of the first flows, by their numbers; None if they are drawn while the lab runs."""
    names: list[str] = []
    for workload in plan.workloads:
        if isinstance(workload, Arrivals):
            return names if len(names) >= MAX_FLOWS else None
        if isinstance(workload, Flows):
            if workload.start_ns + workload.spread_ns + max((at for at, _ in workload.each), default=0) >= min(
                plan.duration_ns, plan.duration_ns if workload.stop_ns is None else workload.stop_ns
            ):
                return None  # flows that would begin after the end have no number
            names += [f"{plan.nodes[src].name}>{plan.nodes[dst].name}" for src, dst in workload.pairs]
    return names[:MAX_FLOWS]


def flow_names(flows: Any) -> list[str]:
    """The names of the first flows of an ended cell, by their numbers."""
    rows = [] if flows is None else flows.slice(0, MAX_FLOWS).select(["src", "dst"]).to_pylist()
    return [f"{row['src']}>{row['dst']}" for row in rows]


def _parameters(run: Path) -> list[Row]:
    with suppress(OSError, ValueError, KeyError, TypeError):
        return results.effective_parameters(read_json(run / PARAMETERS))
    return []


def _pieces(
    name: str, table: Any, at: int, seen: int, origin: Origin, queues: list[Queue], names: list[str]
) -> Iterator[Piece]:
    """The rows that were not read yet; `at`: the number of rows before these."""
    for begin in range(max(seen - at, 0), table.num_rows, BATCH_ROWS):
        rows = table.slice(begin, BATCH_ROWS)
        of_queues = name in ("queue_series", SUMS)
        points = queue_points(rows, origin, queues) if of_queues else flow_points(rows, origin, names)
        yield Piece(points, origin.cell, name, at + begin + rows.num_rows)


def _complete_table(file: Path, cell: int) -> Any:
    with suppress(pa.ArrowInvalid):
        if found := list(read_cell(file, cell)):
            return pa.concat_tables(found).combine_chunks()
        return None
    raise DamagedError(file, "is not what was written")
