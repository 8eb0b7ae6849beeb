# SPDX-License-Identifier: Apache-2.0
"""Replays the tables of an ended cell as the events of a running one (`qbed.live.cell_tail`), a batch of rows at a
time, with the same number of columns however many samples there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from qbed.base.errors import MissingError, QbedError
from qbed.base.json_files import Row
from qbed.cells.arrow import read_cell
from qbed.live.cell_tail import Event
from qbed.live.columns import SAMPLED, Flows, binned, width_of
from qbed.storage.identity import StoreError, ran_on
from qbed.substrates import substrate

BATCH_ROWS = 1 << 16
_FLOWS = {"tcp_info": "delivery_bps", "rates": "rate_bps"}
_QUEUE = ("queue", "port", "node", "role", "rate_bps", "duration_ns")


def samples(run: Path, cell: int) -> Iterator[Event]:
    """The events of a cell: its description, then its samples. `MissingError`, `StoreError`."""
    try:
        queues = [row for batch in _batches(run, cell, "queues", _QUEUE) for row in batch.to_pylist()]
    except (OSError, pa.ArrowException, QbedError):
        raise StoreError(f"the tables of cell {cell} are damaged") from None
    if not queues:
        raise MissingError(f"there is no cell {cell} that has ended, with queues")
    duration_ns = max(row["duration_ns"] or 1 for row in queues)
    description = _described(queues, cell, duration_ns) | {"clock": {"clock": substrate(ran_on(run).name).clock}}
    return _events(run, description, width_of(duration_ns))


def _events(run: Path, description: Row, width_ns: int) -> Iterator[Event]:
    cell = description["cell"]
    yield "cell", description
    try:
        for batch in _batches(run, cell, "queue_series", ("queue", *SAMPLED)):
            queue, *values = (column.to_numpy() for column in batch.columns)
            if found := binned(queue, dict(zip(SAMPLED, values, strict=True)), width_ns):
                yield "queues", found
        flows = Flows(width_ns)
        for table, field in _FLOWS.items():
            for batch in _batches(run, cell, table, ("flow", "time_ns", field)):
                flow, time_ns, bps = (column.to_numpy(zero_copy_only=False) for column in batch.columns)
                if found := flows.rates(flow.astype(np.int64), time_ns, bps.astype(np.float64).__getitem__):
                    yield "flows", found
    except (OSError, pa.ArrowException, QbedError):
        yield "damaged", {"cell": cell}
    yield "cell-end", {"cell": cell}


def _batches(run: Path, cell: int, table: str, names: tuple[str, ...]) -> Iterator[Any]:
    """Those columns of a cell's table: of the cell's own while its run goes on or was not merged, else of the run's."""
    folder = run / "cells" / f"{cell:06d}"
    merged = run / f"{table}.parquet"
    if folder.is_dir():
        for found in read_cell(folder / f"{table}.arrow", cell):
            yield from found.select(names).to_batches(BATCH_ROWS)
    elif merged.is_file():
        with suppress(FileNotFoundError), pq.ParquetFile(merged) as file:
            if not {*names} <= {*file.schema_arrow.names}:
                raise StoreError(f"{merged} has other columns than this qbed's")
            for batch in file.iter_batches(BATCH_ROWS, _groups(file, cell), ["cell", *names], use_threads=False):
                mine = batch.filter(pc.equal(batch["cell"], cell))
                if mine.num_rows:
                    yield mine.select(names)


def _groups(file: Any, cell: int) -> list[int]:
    """The row groups that have rows of a cell, by what the file says of them."""
    found = []
    for group in range(file.metadata.num_row_groups):
        known = file.metadata.row_group(group).column(0).statistics
        if known is None or not known.has_min_max or known.min <= cell <= known.max:
            found.append(group)
    return found


def _described(queues: list[Row], cell: int, duration_ns: int) -> Row:
    nodes = list(dict.fromkeys(row["node"] for row in queues))
    kinds = {row["node"]: row["role"] for row in queues}
    at = {node: index for index, node in enumerate(nodes)}
    return {
        "cell": cell, "duration_ns": duration_ns, "bin_ns": width_of(duration_ns),
        "queues": [row["port"] for row in queues], "nodes": nodes, "kinds": [kinds[node] for node in nodes],
        "links": list(_links(queues, at)),
    }  # fmt: skip


def _links(queues: list[Row], at: dict[str, int]) -> Iterator[Row]:
    """A queue `h1>s1` and the next one `s1>h1` are the ends of a link."""
    waiting: dict[tuple[int, int], list[int]] = {}
    for index, row in enumerate(queues):
        a, _, peer = row["port"].partition(" ")[0].partition(">")
        if a not in at or peer not in at:
            continue
        ends = (at[a], at[peer])
        if others := waiting.get(ends[::-1]):
            other = others.pop(0)
            rate = min(row["rate_bps"] or 1, queues[other]["rate_bps"] or 1)
            yield {"a": ends[1], "b": ends[0], "queues": [other, index], "rate_bps": rate, "overhead_bytes": 0}
        else:
            waiting.setdefault(ends, []).append(index)
