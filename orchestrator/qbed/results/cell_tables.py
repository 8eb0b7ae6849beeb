# SPDX-License-Identifier: Apache-2.0
"""The tables of one cell, on their way to the merger: Arrow streams, without the cell's number, so that equal cells
have equal files. To open a Parquet file of thirty columns costs ten times as much, and a run has three or more a cell.

A queue's samples are filed as its tap wrote them, one for all the intervals behind it in which nothing happened, and
become the rows of `queue_series` when somebody reads them. Of 100 queues every 10 us those are eight times as many:
a cell would pay for them a tenth of its time (`bench/telemetry`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.ma  # pyarrow wants it with its first array: not in a cell's time
import pyarrow as pa

from qbed.errors import QbedError
from qbed.results.tables import NAME, OF_CELL, SCHEMAS, TableFile
from qbed.telemetry.taps import SAMPLE_DTYPE, Records, spread

SMALL_ROWS = 4096
SERIES = "queue_series"
_SAMPLED = [name for name in SAMPLE_DTYPE.names or () if name not in ("type", "length", "id", "zero")]
_FILED = OF_CELL | {
    SERIES: pa.schema(
        [pa.field("port", NAME), *(pa.field(name, pa.from_numpy_dtype(SAMPLE_DTYPE[name])) for name in _SAMPLED)],
        metadata=SCHEMAS[SERIES].metadata,
    )
}


class CellFile(TableFile):
    """One table of one cell, compressed if it is of more than a few rows; `samples` are what `filed` makes."""

    def __init__(self, path: Path, *, wanted: bool = True) -> None:
        super().__init__(path, _FILED[path.stem], wanted=wanted)

    def _write(self, table: Any) -> None:
        if self._writer is None:
            compression = "zstd" if table.num_rows > SMALL_ROWS else None
            options = pa.ipc.IpcWriteOptions(compression=compression)
            self._writer = pa.ipc.new_stream(str(self._path), self._schema, options=options)
        self._writer.write_table(table)


def read_cell(path: Path, number: int) -> Iterator[Any]:
    """What a `CellFile` holds, as rows of the cell of that number, in Arrow tables; nothing if there is no file."""
    schema = SCHEMAS[path.stem]
    with contextlib.suppress(FileNotFoundError), pa.memory_map(str(path)) as file:
        for batch in pa.ipc.open_stream(file):
            if batch.schema.names != _FILED[path.stem].names:
                raise QbedError(f"{path}: other columns than this qbed's; the qbed that made the run reads it")
            for table in _spread(batch) if path.stem == SERIES else (batch,):
                cell = pa.repeat(pa.scalar(number, pa.int32()), table.num_rows)
                yield pa.Table.from_arrays([cell, *table.columns], schema=schema)


def samples_in(path: Path) -> int:
    """How many rows of `queue_series` a cell's file of them stands for."""
    with pa.memory_map(str(path)) as file:
        batches = (batch.column("steady").to_numpy() for batch in pa.ipc.open_stream(file) if batch.num_rows)
        return sum(len(steady) + int(steady.sum(dtype=np.int64)) for steady in batches)


def filed(records: Records, ports: list[str]) -> Any:
    """A tap's samples for the `CellFile` of the series; `ports`: the queues' names."""
    return table_of(_FILED[SERIES], {"port": _ports(records, ports)}, records)


def _spread(batch: Any) -> Iterator[Any]:
    records, ports = np.zeros(batch.num_rows, SAMPLE_DTYPE), batch.column("port")
    records["id"] = ports.indices.to_numpy()
    for name in _SAMPLED:
        records[name] = batch.column(name).to_numpy()
    yield from series_of(records, ports.dictionary.to_pylist())


def series_of(records: Records, ports: list[str]) -> Iterator[Any]:
    """A tap's samples as rows of `queue_series` of one cell, so many at a time; `ports`: the queues' names. Records may
    stand for the intervals behind them.
    """
    own = [item.name for item in OF_CELL[SERIES] if item.name in (SAMPLE_DTYPE.names or ())]
    for samples in spread(records, ("id", *own, "byte_ns", "packet_ns")):
        columns = columns_of(samples, ports)
        interval = samples["interval_ns"].astype(np.float64)
        empty = interval == 0
        for unit in ("byte", "packet"):
            means = samples[f"{unit}_ns"] / np.where(empty, 1, interval)
            columns[f"mean_{unit}s"] = pa.array(means, mask=empty)
        yield table_of(OF_CELL[SERIES], columns, samples)


def columns_of(records: Records | Mapping[str, Any], ports: list[str]) -> dict[str, Any]:
    """The columns that tables of samples and of packets have in common."""
    return {
        "queue": records["id"].astype(np.int32),
        "port": _ports(records, ports),
        "time_ns": records["time_ns"].astype(np.int64),
    }


def _ports(records: Records | Mapping[str, Any], ports: list[str]) -> Any:
    return pa.DictionaryArray.from_arrays(pa.array(records["id"].astype(np.int32)), pa.array(ports))


def table_of(schema: Any, columns: dict[str, Any], records: Records | Mapping[str, Any]) -> Any:
    """A table of these columns, and of what else the schema has of the records' fields."""
    arrays = []
    for item in schema:
        column = columns[item.name] if item.name in columns else records[item.name]
        if not isinstance(column, pa.Array):
            column = pa.array(column.astype(item.type.to_pandas_dtype(), copy=False))
        arrays.append(column)
    return pa.Table.from_arrays(arrays, schema=schema)
