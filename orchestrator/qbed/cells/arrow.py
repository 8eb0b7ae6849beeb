# SPDX-License-Identifier: Apache-2.0
"""The tables of one cell before the merge: Arrow streams without the cell's number, so that equal cells have equal
files. Opening a Parquet file of thirty columns costs ten times as much, and a run has three or more files a cell.

A queue's samples are stored as the tap wrote them: one record stands for all following intervals without an event.
They are expanded to rows of `queue_series` when they are read. With 100 queues and an interval of 10 us the rows are
eight times as many as the records: writing them would take a tenth of a cell's time (`bench/telemetry`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import numpy.ma  # pyarrow imports it with its first array: import it before a cell's time is measured
import numpy.typing as npt
import pyarrow as pa

from qbed.base.errors import QbedError
from qbed.telemetry.flow_samples import ABSENT, STATES
from qbed.telemetry.tables import CELL_SCHEMAS, NAME, SCHEMAS, TableFile
from qbed.telemetry.taps import INTEGRALS, SAMPLE_DTYPE, Records, spread

Columns = Mapping[str, npt.NDArray[np.generic]]
"""Arrays of equal length by the names of a record's fields."""
SMALL_ROWS = 4096
SERIES = "queue_series"
_SAMPLED = [name for name in SAMPLE_DTYPE.names or () if name not in ("type", "length", "id", "zero")]
_STORED_SCHEMAS = CELL_SCHEMAS | {
    SERIES: pa.schema(
        [pa.field("port", NAME), *(pa.field(name, pa.from_numpy_dtype(SAMPLE_DTYPE[name])) for name in _SAMPLED)],
        metadata=SCHEMAS[SERIES].metadata,
    )
}


class CellFile(TableFile):
    """One table of one cell, compressed if it has more than `SMALL_ROWS` rows."""

    def __init__(self, path: Path, *, wanted: bool = True) -> None:
        super().__init__(path, _STORED_SCHEMAS[path.stem], wanted=wanted)

    def _write(self, table: pa.Table) -> None:
        if self._writer is None:
            compression = "zstd" if table.num_rows > SMALL_ROWS else None
            options = pa.ipc.IpcWriteOptions(compression=compression)
            self._writer = pa.ipc.new_stream(str(self._path), self._schema, options=options)
        self._writer.write_table(table)


def read_cell(path: Path, number: int) -> Iterator[pa.Table]:
    """Read a `CellFile` as Arrow tables with `number` in the column `cell`; nothing if the file does not exist."""
    schema = SCHEMAS[path.stem]
    with contextlib.suppress(FileNotFoundError), pa.memory_map(str(path)) as file:
        for batch in pa.ipc.open_stream(file):
            if batch.schema.names != _STORED_SCHEMAS[path.stem].names:
                raise QbedError(
                    f"{path}: the columns differ from those of this version of qbed; use the version that made the run"
                )
            for table in _spread(batch) if path.stem == SERIES else (batch,):
                cell = pa.repeat(pa.scalar(number, pa.int32()), table.num_rows)
                yield pa.Table.from_arrays([cell, *table.columns], schema=schema)


def count_samples(path: Path) -> int:
    """The number of rows of `queue_series` that a cell's file of samples expands to."""
    with pa.memory_map(str(path)) as file:
        batches = (batch.column("steady").to_numpy() for batch in pa.ipc.open_stream(file) if batch.num_rows)
        return sum(len(steady) + int(steady.sum(dtype=np.int64)) for steady in batches)


def stored_samples(records: Records, ports: list[str]) -> pa.Table:
    """A table of a tap's samples for the `CellFile` of `queue_series`. `ports`: the queues' names."""
    return table_of(_STORED_SCHEMAS[SERIES], {"port": _ports(records, ports)}, records)


def _spread(batch: pa.RecordBatch) -> Iterator[pa.Table]:
    records, ports = np.zeros(batch.num_rows, SAMPLE_DTYPE), batch.column("port")
    records["id"] = ports.indices.to_numpy()
    for name in _SAMPLED:
        records[name] = batch.column(name).to_numpy()
    yield from series_of(records, ports.dictionary.to_pylist())


def series_of(records: Records, ports: list[str]) -> Iterator[pa.Table]:
    """Expand a tap's samples to rows of `queue_series` of one cell, in batches. `ports`: the queues' names.

    One record may stand for several intervals.
    """
    copied = [item.name for item in CELL_SCHEMAS[SERIES] if item.name in (SAMPLE_DTYPE.names or ())]
    for samples in spread(records, ("id", *copied)):
        columns = columns_of(samples, ports)
        interval = samples["interval_ns"].astype(np.float64)
        empty = interval == 0
        for mean, integral in INTEGRALS.items():
            columns[mean] = pa.array(samples[integral] / np.where(empty, 1, interval), mask=empty)
        yield table_of(CELL_SCHEMAS[SERIES], columns, samples)


def flow_table(name: str, records: Records) -> pa.Table:
    """The samples of flows as a cell's table `name` (`tcp_info` or `rates`)."""
    schema = CELL_SCHEMAS[name]
    names = [item.name for item in schema if item.name not in ("flow", "time_ns", "state")]
    columns = {name: pa.array(records[name], mask=records[name] == ABSENT) for name in names}
    columns["flow"] = records["id"].astype(np.int32)
    if "state" in schema.names:
        known = (records["state"] >= 0) & (records["state"] < len(STATES))
        columns["state"] = pa.array(STATES).take(pa.array(np.where(known, records["state"], len(STATES) - 1)))
    return table_of(schema, columns, records)


def columns_of(records: Records | Columns, ports: list[str]) -> dict[str, pa.Array | npt.NDArray[np.generic]]:
    """The columns that the tables of samples and of packets share."""
    return {
        "queue": records["id"].astype(np.int32),
        "port": _ports(records, ports),
        "time_ns": records["time_ns"].astype(np.int64),
    }


def _ports(records: Records | Columns, ports: list[str]) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(records["id"].astype(np.int32)), pa.array(ports))


def table_of(
    schema: pa.Schema, columns: Mapping[str, pa.Array | npt.NDArray[np.generic]], records: Records | Columns
) -> pa.Table:
    """A table of `columns`; the schema's other columns are fields of the records."""
    arrays = []
    for item in schema:
        column = columns[item.name] if item.name in columns else records[item.name]
        if not isinstance(column, pa.Array):
            column = pa.array(column.astype(item.type.to_pandas_dtype(), copy=False))
        arrays.append(column)
    return pa.Table.from_arrays(arrays, schema=schema)
