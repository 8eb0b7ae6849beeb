# SPDX-License-Identifier: Apache-2.0
"""How long packets waited, by the fields with which they came: rows of a cell's tables from what its taps counted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from qbed.plan.model import Plan
from qbed.results import tables
from qbed.results.cell_tables import columns_of, table_of
from qbed.telemetry.records import RecordError, Row
from qbed.telemetry.sojourn import Sojourn, bin_from_ns, class_columns
from qbed.telemetry.taps import Records

QUANTILES = {"p50_ns": 0.5, "p99_ns": 0.99, "p999_ns": 0.999}


def series(records: Records, ports: list[str]) -> Any:
    """Rows of `sojourn_series`."""
    columns = columns_of(records, ports)
    for name, values in class_columns(records["class"]).items():
        columns[name] = pa.array(values, tables.OF_CELL["sojourn_series"].field(name).type)
    packets = records["packets"].astype(np.float64)
    means = records["sum_ns"] / np.where(packets == 0, 1, packets)
    columns["mean_ns"] = pa.array(means, mask=packets == 0)
    return table_of(tables.OF_CELL["sojourn_series"], columns, records)


class Sojourns:
    """What the taps of one cell say at its end and where windows begin and end."""

    def __init__(self, plan: Plan, who: list[Row]) -> None:
        """`who`: of each queue, what a row says of it."""
        self._plan, self._who = plan, who
        self._bounds = frozenset(plan.bounds_ns)
        self._whole: dict[tuple[int, int], Sojourn] = {}
        self._told: dict[tuple[int, int, int], Sojourn] = {}

    def add(self, told: Sojourn) -> None:
        """A record of the stream."""
        if not told.at_bound:
            self._whole[told.queue, told.traffic] = told
        elif told.time_ns in self._bounds:
            self._told[told.queue, told.traffic, told.time_ns] = told
        else:
            raise RecordError(
                f"taps.bin: queue {told.queue} tells of {told.time_ns} ns, where no window begins or ends"
            )

    def rows(self) -> Iterator[Row]:
        """Rows of `sojourns`."""
        for _, told in sorted(self._whole.items()):
            yield self._row(told)

    def windows(self) -> Iterator[Row]:
        """Rows of `sojourn_windows`: of the packets that left in each window."""
        for queue, traffic in sorted({key[:2] for key in self._told}):
            for window in self._plan.windows:
                inside = [at for at in self._bounds if window.from_ns < at <= window.until_ns]
                parts = [told for at in inside if (told := self._told.get((queue, traffic, at))) is not None]
                end = self._told.get((queue, traffic, window.until_ns))
                if end is None:
                    continue
                longest = max(part.max_ns for part in parts)
                passed = _difference(self._told.get((queue, traffic, window.from_ns)), end, longest)
                if passed.packets:
                    named = {"span": window.name, "from_ns": window.from_ns, "until_ns": window.until_ns}
                    yield named | self._row(passed)

    def _row(self, told: Sojourn) -> Row:
        used = told.counts > 0
        bins, columns = told.bins[used], class_columns(np.array([told.traffic], np.uint32))
        return (
            self._who[told.queue]
            | {name: values[0] for name, values in columns.items()}
            | {
                "packets": told.packets,
                "mean_ns": told.sum_ns / told.packets if told.packets else None,
                "max_ns": told.max_ns,
                **{name: told.quantile_ns(share) for name, share in QUANTILES.items()},
                "bin_from_ns": bin_from_ns(bins),
                "bin_to_ns": bin_from_ns(bins + 1) - 1,
                "bin_packets": told.counts[used].astype(np.int64),
            }
        )


def _difference(begin: Sojourn | None, end: Sojourn, max_ns: int) -> Sojourn:
    """What left from one instant to another."""
    if begin is None:
        return replace(end, max_ns=max_ns)
    counts = end.counts.astype(np.int64)
    at = begin.first - end.first
    if at < 0 or at + len(begin.counts) > len(counts):
        raise RecordError(f"taps.bin: queue {end.queue} forgets waits between {begin.time_ns} and {end.time_ns} ns")
    counts[at : at + len(begin.counts)] -= begin.counts.astype(np.int64)
    sums = {name: getattr(end, name) - getattr(begin, name) for name in ("packets", "sum_ns")}
    if min(*sums.values(), *counts.tolist()) < 0:
        raise RecordError(f"taps.bin: queue {end.queue} forgets waits between {begin.time_ns} and {end.time_ns} ns")
    return replace(end, **sums, max_ns=max_ns, counts=counts.astype(np.uint64))
