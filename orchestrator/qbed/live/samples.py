# SPDX-License-Identifier: Apache-2.0
"""The samples of a lab while it runs, in containers or in virtual time: one stream of NDJSON in the lab's own time.

The nodes' files are read as they grow, so a reader costs the lab nothing. Queue samples are those of `observe.queues`
at an interval, packets those of ports with `every packet`, flow samples those of `observe.flows`. In containers, each
interface has a sample when it has lost frames outside the plan's queues.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from qbed.base.json_files import Row
from qbed.cells.arrow import flow_table
from qbed.plan.model import Plan
from qbed.plan.ports import port_names
from qbed.storage.checksums import check_cell
from qbed.storage.identity import ran_on
from qbed.substrates import Samples, SessionError, substrate, substrates
from qbed.telemetry.flow_samples import Batch
from qbed.telemetry.tail import PIECE_BYTES, SampleFiles
from qbed.telemetry.taps import EVENT_FIELDS, INTEGRALS, OPERATIONS, SAMPLE_FIELDS, Records, spread

POLL_S = 0.2
MIN_PIECE_BYTES = 1 << 14
EXPANDED_ROWS = 256
"""Rows of a queue that are expanded at once."""
_LOST = ("interface_dropped", "socket_dropped", "device_dropped")


@dataclass(frozen=True)
class Running:
    """A lab or cell with samples: its folder (with `plan.json`), where they are, whether it goes on."""

    folder: Path
    samples: Callable[[Plan], Samples]
    alive: Callable[[], bool]


def find(what: str) -> Running:
    """A lab that is up, by its name; or a run folder: its newest cell that runs, or the last one that was kept."""
    lab = next((lab for substrate in substrates() if (lab := substrate.find(what))), None) if "/" not in what else None
    if lab is not None:
        return Running(lab.folder, lab.samples, lab.is_up)
    cells = Path(what) / "cells"
    works = sorted(cells.glob("*.tmp/work"), key=lambda path: path.stat().st_mtime) if cells.is_dir() else []
    kept_cells = sorted(cells.glob("[0-9]*/work")) if cells.is_dir() and not works else []
    if kept_cells:
        check_cell(kept_cells[-1].parent)
    if works or kept_cells:
        folder = (works or kept_cells)[-1]
        return Running(
            folder,
            lambda plan: substrate(ran_on(Path(what)).name).samples(folder, plan),
            folder.exists if works else lambda: False,
        )
    hint = (
        "no cell runs there, and none was kept (--keep)" if cells.is_dir() else "`qbed ps` lists the labs that are up"
    )
    raise SessionError(f"{what} has no samples: {hint}")


def stream(running: Running, *, follow: bool) -> Iterator[Row]:
    """The clock, then every sample. `follow`: until the lab ends.

    The files are read in pieces, and merged by time. Samples are in the order of time within a piece of a file.
    """
    plan = plan_of(running)
    samples = running.samples(plan)
    yield samples.clock
    piece_bytes = max(MIN_PIECE_BYTES, PIECE_BYTES // len(samples.parts))
    rows = _Rows(plan)
    parts = [SampleFiles(part, len(plan.queues), piece_bytes=piece_bytes) for part in samples.parts]
    try:
        while True:
            alive = running.alive()
            yield from heapq.merge(*(source for part in parts for source in rows.sources(part)), key=_time)
            if not follow or not alive:
                return
            time.sleep(POLL_S)
    finally:
        for part in parts:
            part.close()


def plan_of(running: Running) -> Plan:
    """The plan of what runs."""
    try:
        return Plan.loads((running.folder / "plan.json").read_bytes())
    except OSError as error:
        raise SessionError(f"{running.folder} has no plan: {error.strerror}") from error
    except ValueError as error:
        raise SessionError(f"{running.folder / 'plan.json'} is no plan of this qbed") from error


def _time(row: Row) -> int:
    return int(row["time_ns"])


class _Rows:
    """Turns batches of records into rows, one by one."""

    def __init__(self, plan: Plan) -> None:
        self._ports = port_names(plan)
        self._interfaces = {
            (end.node, end.interface): self._ports[end.queue] for link in plan.links for end in (link.a, link.b)
        }

    def sources(self, files: SampleFiles) -> Iterator[Iterator[Row]]:
        """New rows of each of the files."""
        for file in (files.queues, files.flows):
            yield chain.from_iterable(map(self._merged, file.pieces()))
        yield map(self._interface, files.frames.rest())

    def _merged(self, batches: list[Batch]) -> Iterator[Row]:
        """The rows of a piece of a file, in the order of time."""
        tables: dict[str, list[Records]] = {}
        for table, records in batches:
            tables.setdefault(table, []).append(records)
        return heapq.merge(*(self._rows(table, np.concatenate(parts)) for table, parts in tables.items()), key=_time)

    def _rows(self, table: str, records: Records) -> Iterator[Row]:
        if table == "queue_series":
            records = records[np.argsort(records["id"], kind="stable")]
            queues = np.split(records, np.flatnonzero(np.diff(records["id"])) + 1)
            return heapq.merge(*map(self._queue, queues), key=_time)
        if table == "queue_events":
            return map(self._packet, records[np.argsort(records["time_ns"], kind="stable")])
        return ({"sample": "flow", **row} for row in flow_table(table, records).to_pylist())

    def _queue(self, records: Records) -> Iterator[Row]:
        """The samples of one queue."""
        port = self._ports[int(records["id"][0])]
        names = ("time_ns", *(INTEGRALS.get(name, name) for name in SAMPLE_FIELDS))
        for columns in spread(records, names, EXPANDED_ROWS):
            for time_ns, interval, *values in zip(*(columns[name].tolist() for name in names), strict=True):
                row = dict(zip(SAMPLE_FIELDS, (interval, *values), strict=True))
                row |= {name: row[name] / interval if interval else None for name in INTEGRALS}
                yield {"sample": "queue", "port": port, "time_ns": time_ns, **row}

    def _packet(self, record: Any) -> Row:
        row: Row = {"sample": "packet", "port": self._ports[int(record["id"])], "time_ns": int(record["time_ns"])}
        row |= {"op": OPERATIONS[int(record["op"])]}
        return row | {name: int(record[name]) for name in EVENT_FIELDS}

    def _interface(self, row: Row) -> Row:
        port = self._interfaces[row["node"], row["interface"]]
        lost = {name: int(row[name]) for name in _LOST}
        return {"sample": "interface", "port": port, "time_ns": int(row["time_ns"]), **lost}
