# SPDX-License-Identifier: Apache-2.0
"""Windows: statistics of queues and flows between two instants of a run, as differences of totals at these instants."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from qbed.base.json_files import Row
from qbed.cells.plausibility import QueueSummary
from qbed.plan.model import Plan, Window
from qbed.telemetry.records import RecordError, read_rows
from qbed.telemetry.taps import SUMMARY_FIELDS, Histogram, Records

_NOW = ("queue_packets", "queue_bytes")
_MAXIMA = ("max_bytes", "max_packets")
_COPIED = ("flow", "workload", "label", "transport", "congestion_control")


def _named(window: Window) -> Row:
    return {"span": window.name, "from_ns": window.from_ns, "until_ns": window.until_ns}


@dataclass
class _Sums:
    """Sums over all flows and queues in one window."""

    flows_started: int = 0
    flows_complete: int = 0
    received_bytes: int = 0
    dropped_packets: int = 0
    marked_packets: int = 0


@dataclass
class Windows:
    """The windows of one cell. `of_queue` and `of_flows` add to the sums, which `rows` returns."""

    plan: Plan
    _summaries: dict[tuple[int, int], QueueSummary] = field(default_factory=dict)
    _histograms: dict[tuple[int, int], Histogram] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._bounds = frozenset(self.plan.bounds_ns)
        self._sums = [_Sums() for _ in self.plan.windows]

    def add_summaries(self, records: Records) -> None:
        """Add the summaries of the taps at bounds of windows."""
        for record in records:
            summary = QueueSummary(**{name: int(record[name]) for name in SUMMARY_FIELDS})
            self._summaries[self._place(int(record["id"]), int(record["time_ns"]))] = summary

    def add_histogram(self, histogram: Histogram) -> None:
        """Add a histogram at a bound of a window."""
        self._histograms[self._place(histogram.queue, histogram.time_ns)] = histogram

    def _place(self, queue: int, time_ns: int) -> tuple[int, int]:
        if time_ns not in self._bounds:
            raise RecordError(f"taps.bin: queue {queue} has a record at {time_ns} ns, where no window begins or ends")
        return queue, time_ns

    def of_queue(self, queue: int) -> Iterator[tuple[Row, QueueSummary, Histogram]]:
        """Generate each window with a queue's summary and histogram in it."""
        for window, sums in zip(self.plan.windows, self._sums, strict=True):
            try:
                bounds = (window.from_ns, window.until_ns)
                ends = [(self._summaries[queue, at], self._histograms[queue, at]) for at in bounds]
                inside = [at for at in self._bounds if window.from_ns < at <= window.until_ns]
                between = [self._summaries[queue, at] for at in inside]
            except KeyError as error:
                raise RecordError(f"taps.bin: queue {error.args[0][0]} lacks {error.args[0][1]} ns") from error
            summary = _difference(ends[0][0], ends[1][0], between)
            sums.dropped_packets += summary.dropped_packets
            sums.marked_packets += summary.marked_packets
            yield _named(window), summary, _histogram_between(ends[0][1], ends[1][1])

    def of_flows(self, out: Path, end_ns: int) -> Iterator[Row]:
        """Generate the rows of `flow_windows`, for each flow and each window in which it was active."""
        received: dict[tuple[int, int], int] = {}
        for row in read_rows(out / "windows.ndjson"):
            received[row["flow"], row["time_ns"]] = row["received_bytes"]
        for record in read_rows(out / "flows.ndjson"):
            for window, sums in zip(self.plan.windows, self._sums, strict=True):
                row = self._of_flow(record, window, received, end_ns)
                sums.flows_started += window.from_ns <= record["start_ns"] < window.until_ns
                over = record["end_ns"] if record["status"] == "complete" else None
                sums.flows_complete += over is not None and window.from_ns <= over < window.until_ns
                sums.received_bytes += row["received_bytes"]
                if row["active_ns"] > 0:
                    yield row

    def _of_flow(self, record: Row, window: Window, received: dict[tuple[int, int], int], end_ns: int) -> Row:
        def received_until(at: int) -> int:
            over = record["end_ns"] is not None and record["end_ns"] <= at
            return received.get((record["flow"], at), record["received_bytes"] if over else 0)

        end = end_ns if record["end_ns"] is None else record["end_ns"]
        active_ns = max(min(end, window.until_ns) - max(record["start_ns"], window.from_ns), 0)
        in_window = received_until(window.until_ns) - received_until(window.from_ns)
        names = {name: self.plan.nodes[record[name]].name for name in ("src", "dst")}
        measured = {"active_ns": active_ns, "received_bytes": in_window}
        goodput = {"goodput_bps": in_window * 8e9 / active_ns if active_ns else None}
        return _named(window) | {name: record.get(name) for name in _COPIED} | names | measured | goodput

    def rows(self) -> Iterator[Row]:
        """Generate the rows of `windows`, after `of_queue` and `of_flows`."""
        for window, sums in zip(self.plan.windows, self._sums, strict=True):
            goodput_bps = sums.received_bytes * 8e9 / (window.until_ns - window.from_ns)
            yield _named(window) | vars(sums) | {"goodput_bps": goodput_bps}


def _difference(begin: QueueSummary, end: QueueSummary, between: list[QueueSummary]) -> QueueSummary:
    """The summary of the time between two bounds. `between`: the summaries at each bound after the first up to the
    last, whose maxima are since the previous bound.
    """
    values: dict[str, int] = {name: getattr(end, name) - getattr(begin, name) for name in SUMMARY_FIELDS}
    values |= {name: max(getattr(part, name) for part in between) for name in _MAXIMA}
    for name in _NOW:
        values |= {name: getattr(end, name), f"start_{name}": getattr(begin, name)}
    return QueueSummary(**values)


def _histogram_between(begin: Histogram, end: Histogram) -> Histogram:
    """The time in each bin between two bounds."""
    ns = end.ns.astype(np.int64)
    ns[: len(begin.ns)] -= begin.ns.astype(np.int64)
    return Histogram(end.queue, end.time_ns, end.bin_bytes, np.trim_zeros(ns, "b").astype(np.uint64))
