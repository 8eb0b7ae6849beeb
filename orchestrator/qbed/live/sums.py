# SPDX-License-Identifier: Apache-2.0
"""Sums over intervals of a millisecond, from the recorded packets of queues without a series."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from qbed.cells.arrow import read_cell
from qbed.live.points import one
from qbed.telemetry.tables import CELL_SCHEMAS
from qbed.telemetry.taps import OPERATIONS

INTERVAL_NS = 1_000_000
MAX_ROWS = 100_000
"""The most intervals of all queues of one cell: longer labs have longer intervals."""
_EVENTS, _SERIES = "queue_events", "queue_series"
_COUNTS = {"enqueued": "enqueue", "dequeued": "dequeue", "dropped": "drop", "marked": "mark"}
_LEVELS = ("packets", "bytes")
Array = npt.NDArray[Any]


def sums_of(folder: Path, cell: int, sampled: set[int]) -> Iterator[pa.Table]:
    """Rows of `queue_series` for each queue with recorded packets but for those that are `sampled`."""
    columns: dict[int, list[dict[str, Any]]] = {}
    ports: dict[int, str] = {}
    for table in read_cell(folder / f"{_EVENTS}.arrow", cell):
        queues = table["queue"].to_numpy()
        values = {name: table[name].to_numpy() for name in ("time_ns", "queue_packets", "queue_bytes", "bytes")}
        values["op"] = pc.index_in(one(table["op"]), pa.array(OPERATIONS)).to_numpy()
        for queue in np.unique(queues).tolist():
            if queue not in sampled:
                rows = np.flatnonzero(queues == queue)
                ports[queue] = str(table["port"][int(rows[0])].as_py())
                columns.setdefault(queue, []).append({name: column[rows] for name, column in values.items()})
    events = {
        queue: {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        for queue, parts in columns.items()
    }
    spans = [int(found["time_ns"].max() - found["time_ns"].min()) for found in events.values()]
    width_ns = INTERVAL_NS * max(1, -(-sum(spans) // (INTERVAL_NS * MAX_ROWS)))
    for queue, found in sorted(events.items()):
        yield _sums(queue, ports[queue], found, width_ns)


def sampled_queues(folder: Path, cell: int) -> set[int]:
    """The queues with a series."""
    return {
        int(q) for table in read_cell(folder / f"{_SERIES}.arrow", cell) for q in table["queue"].unique().to_pylist()
    }


def _sums(queue: int, port: str, events: dict[str, Array], width_ns: int) -> pa.Table:
    """Rows of the intervals from a queue's first packet to its last one."""
    times = events["time_ns"].astype(np.int64)
    first, last = int(times[0]) // width_ns, int(times[-1]) // width_ns
    edges = np.arange(first, last + 2) * width_ns
    bins, count = times // width_ns - first, last - first + 1
    rows: dict[str, Array] = {"queue": np.full(count, queue), "time_ns": edges[1:]}
    rows["interval_ns"] = np.full(count, width_ns)
    for unit in _LEVELS:
        level = events[f"queue_{unit}"].astype(np.int64)
        at = np.concatenate([edges[:1], times, edges[-1:]])
        held = np.concatenate([[0], level])  # an unsampled queue is empty before its first packet
        integral = np.interp(edges, at, np.concatenate([[0], np.cumsum(held * np.diff(at))]))
        spent = np.diff(integral)
        before = np.concatenate([[0], level])[np.searchsorted(times, edges[:-1])]
        rows[f"{unit.removesuffix('s')}_ns"] = spent.astype(np.int64)
        rows[f"mean_{unit}"] = spent / width_ns
        for name, how in (("min", np.minimum), ("max", np.maximum)):
            extreme = before.copy()
            how.at(extreme, bins, level)
            rows[f"{name}_{unit}"] = extreme
    for name, op in _COUNTS.items():
        rows[name] = np.bincount(bins[events["op"] == OPERATIONS.index(op)], minlength=count)
    sent = events["op"] == OPERATIONS.index("dequeue")
    rows["dequeued_bytes"] = np.bincount(bins[sent], events["bytes"][sent], count)
    schema = CELL_SCHEMAS[_SERIES]
    names = pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([port]))
    arrays = [
        names if item.name == "port" else pa.array(rows[item.name].astype(item.type.to_pandas_dtype()))
        for item in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)
