# SPDX-License-Identifier: Apache-2.0
"""Reads tables of one ended cell: columns for a viewer, and the totals of its queues and flows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from qbed.base.errors import MissingError, QbedError
from qbed.base.json_files import Row
from qbed.cells.arrow import read_cell
from qbed.storage.identity import StoreError

BATCH_ROWS = 1 << 16
MAX_FLOWS = 1_000
"""Limit on the flows of `totals`."""
_QUEUE = ("port", "mean_bytes", "max_bytes", "sent_packets", "sent_bytes", "dropped_packets", "marked_packets")
_FLOW = (
    *("flow", "label", "src", "dst", "transport", "status", "size_bytes", "start_ns", "end_ns"),
    "received_bytes",
    *("fct_ns", "goodput_bps", "retransmits", "timeouts"),
)


def totals(run: Path, cell: int) -> Row:
    """The totals of each queue, and of the first flows, by column. `MissingError`, `StoreError`."""
    try:
        queues, flows = (_columns(run, cell, *table) for table in (("queues", _QUEUE), ("flows", _FLOW)))
    except (OSError, pa.ArrowException, QbedError):
        raise StoreError(f"the tables of cell {cell} are damaged") from None
    if not queues["port"]:
        raise MissingError(f"there is no cell {cell} that has ended, with queues")
    count = len(flows["flow"])
    return {
        "cell": cell,
        "queues": queues,
        "flow_count": count,
        "flows": {name: values[:MAX_FLOWS] for name, values in flows.items()},
    }


def _columns(run: Path, cell: int, table: str, names: tuple[str, ...]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {name: [] for name in names}
    for batch in batches(run, cell, table, names):
        for name, column in zip(names, batch.columns, strict=True):
            found[name] += column.to_pylist()
    return found


def batches(run: Path, cell: int, table: str, names: tuple[str, ...]) -> Iterator[Any]:
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
                rows = batch.filter(pc.equal(batch["cell"], cell))
                if rows.num_rows:
                    yield rows.select(names)


def _groups(file: Any, cell: int) -> list[int]:
    """The row groups that may have rows of a cell, by the file's statistics."""
    found = []
    for group in range(file.metadata.num_row_groups):
        known = file.metadata.row_group(group).column(0).statistics
        if known is None or not known.has_min_max or known.min <= cell <= known.max:
            found.append(group)
    return found
