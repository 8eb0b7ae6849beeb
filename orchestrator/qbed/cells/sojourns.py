# SPDX-License-Identifier: Apache-2.0
"""Sojourn times of packets by ECN and DSCP: rows of a cell's tables from the records of its taps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from qbed.base.json_files import Row
from qbed.cells.arrow import columns_of, table_of
from qbed.plan.model import Plan
from qbed.telemetry import tables
from qbed.telemetry.records import RecordError
from qbed.telemetry.sojourn import Sojourn, bin_from_ns, class_columns
from qbed.telemetry.taps import Records

QUANTILES = {"p50_ns": 0.5, "p99_ns": 0.99, "p999_ns": 0.999}


def series(records: Records, ports: list[str]) -> pa.Table:
    """Rows of `sojourn_series`."""
    columns = columns_of(records, ports)
    for name, values in class_columns(records["class"]).items():
        columns[name] = pa.array(values, tables.CELL_SCHEMAS["sojourn_series"].field(name).type)
    packets = records["packets"].astype(np.float64)
    means = records["sum_ns"] / np.where(packets == 0, 1, packets)
    columns["mean_ns"] = pa.array(means, mask=packets == 0)
    return table_of(tables.CELL_SCHEMAS["sojourn_series"], columns, records)


class Sojourns:
    """The sojourn records of one cell: the totals, and those at the bounds of windows."""

    def __init__(self, plan: Plan, queue_columns: list[Row]) -> None:
        """`queue_columns`: the columns that identify a queue, for each queue."""
        self._plan, self._queue_columns = plan, queue_columns
        self._bounds = frozenset(plan.bounds_ns)
        self._totals: dict[tuple[int, int], Sojourn] = {}
        self._at_bounds: dict[tuple[int, int, int], Sojourn] = {}

    def add(self, record: Sojourn) -> None:
        """Add a record of the tap stream."""
        if not record.at_bound:
            self._totals[record.queue, record.traffic] = record
        elif record.time_ns in self._bounds:
            self._at_bounds[record.queue, record.traffic, record.time_ns] = record
        else:
            raise RecordError(
                f"taps.bin: queue {record.queue} has a record at {record.time_ns} ns, where no window begins or ends"
            )

    def rows(self) -> Iterator[Row]:
        """Generate the rows of `sojourns`."""
        for _, record in sorted(self._totals.items()):
            yield self._row(record)

    def windows(self) -> Iterator[Row]:
        """Generate the rows of `sojourn_windows`, for the packets that left in each window."""
        for queue, traffic in sorted({key[:2] for key in self._at_bounds}):
            for window in self._plan.windows:
                inside = [at for at in self._bounds if window.from_ns < at <= window.until_ns]
                parts = [part for at in inside if (part := self._at_bounds.get((queue, traffic, at))) is not None]
                end = self._at_bounds.get((queue, traffic, window.until_ns))
                if end is None:
                    continue
                longest = max(part.max_ns for part in parts)
                passed = _difference(self._at_bounds.get((queue, traffic, window.from_ns)), end, longest)
                if passed.packets:
                    named = {"span": window.name, "from_ns": window.from_ns, "until_ns": window.until_ns}
                    yield named | self._row(passed)

    def _row(self, record: Sojourn) -> Row:
        used = record.counts > 0
        bins, columns = record.bins[used], class_columns(np.array([record.traffic], np.uint32))
        return (
            self._queue_columns[record.queue]
            | {name: values[0] for name, values in columns.items()}
            | {
                "packets": record.packets,
                "mean_ns": record.sum_ns / record.packets if record.packets else None,
                "max_ns": record.max_ns,
                **{name: record.quantile_ns(share) for name, share in QUANTILES.items()},
                "bin_from_ns": bin_from_ns(bins),
                "bin_to_ns": bin_from_ns(bins + 1) - 1,
                "bin_packets": record.counts[used].astype(np.int64),
            }
        )


def _difference(begin: Sojourn | None, end: Sojourn, max_ns: int) -> Sojourn:
    """The sojourn times of the packets that left between two records."""
    if begin is None:
        return replace(end, max_ns=max_ns)
    counts = end.counts.astype(np.int64)
    at = begin.first - end.first
    if at < 0 or at + len(begin.counts) > len(counts):
        raise RecordError(
            f"taps.bin: queue {end.queue} has fewer packets at {end.time_ns} ns than at {begin.time_ns} ns"
        )
    counts[at : at + len(begin.counts)] -= begin.counts.astype(np.int64)
    sums = {name: getattr(end, name) - getattr(begin, name) for name in ("packets", "sum_ns")}
    if min(*sums.values(), *counts.tolist()) < 0:
        raise RecordError(
            f"taps.bin: queue {end.queue} has fewer packets at {end.time_ns} ns than at {begin.time_ns} ns"
        )
    return replace(end, **sums, max_ns=max_ns, counts=counts.astype(np.uint64))
