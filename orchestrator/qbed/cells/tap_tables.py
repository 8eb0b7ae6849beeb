# SPDX-License-Identifier: Apache-2.0
"""The tables of a cell that come from its tap stream: queues, series, events and sojourn times."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path as File

import numpy as np
import pyarrow as pa

from qbed.base.files import open_regular
from qbed.base.json_files import Row
from qbed.cells import sojourns
from qbed.cells.arrow import CellFile, columns_of, stored_samples, table_of
from qbed.cells.plausibility import QueueSummary
from qbed.cells.rows import table_of_rows
from qbed.cells.statistics import decode_statistics, discipline, statistics
from qbed.cells.windows import Windows
from qbed.plan.model import Plan
from qbed.plan.ports import port_names
from qbed.telemetry import tables
from qbed.telemetry.records import Counters, RecordError
from qbed.telemetry.sojourn import Sojourn
from qbed.telemetry.taps import OPERATIONS, SUMMARY_FIELDS, Histogram, Records, read_taps

BUFFERED_ROWS = 1 << 16


class _RecordBuffer:
    """Collects records and passes them on in large batches: a table of one row costs as much as one of a thousand."""

    def __init__(self, sink: Callable[[Records], None]) -> None:
        self._sink = sink
        self._held: list[Records] = []
        self._rows = 0

    def add(self, records: Records) -> None:
        self._held.append(records.copy())  # a view would keep the whole read buffer alive
        self._rows += len(records)
        if self._rows >= BUFFERED_ROWS:
            self.flush()

    def flush(self) -> None:
        if self._held:
            self._sink(np.concatenate(self._held) if len(self._held) > 1 else self._held[0])
        self._held, self._rows = [], 0


class TapTables:
    """The tap stream of one cell, split into its tables in one pass."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._ports = port_names(plan)
        self._rates = plan.mean_rates
        self.summaries: dict[int, QueueSummary] = {}
        self.histograms: dict[int, Histogram] = {}
        self.windows = Windows(plan)
        self._sojourns: list[Sojourn] = []

    def store(self, path: File, into: File, end_ns: int) -> None:
        """Write series and events while reading the stream; keep summaries and histograms. `end_ns`: the cell's end."""
        queues = self._plan.queues
        with (
            open_regular(path) as stream,
            self._file(into, "queue_series", self._plan.has_series) as series,
            self._file(into, "queue_events", any(queue.observe.events for queue in queues)) as events,
            self._file(into, "sojourn_series", self._plan.sojourn and self._plan.has_series) as waits,
        ):
            samples = _RecordBuffer(lambda records: self._series(records, series))
            packets = _RecordBuffer(lambda records: events.add(self._events(records)))
            waited = _RecordBuffer(lambda records: waits.add(sojourns.series(records, self._ports)))
            gathered = {"samples": samples, "events": packets, "sojourns": waited}
            for batch in read_taps(stream, len(queues), self._plan.max_samples(end_ns), as_written=True):
                if isinstance(batch, Histogram):
                    if batch.at_bound:
                        self.windows.add_histogram(batch)
                    else:
                        self.histograms[batch.queue] = batch
                elif isinstance(batch, Sojourn):
                    self._sojourns.append(batch)
                elif batch.kind == "bounds":
                    self.windows.add_summaries(batch.records)
                elif batch.kind == "summaries":
                    for record in batch.records:
                        self.summaries[int(record["id"])] = QueueSummary(**{k: int(record[k]) for k in SUMMARY_FIELDS})
                else:
                    gathered[batch.kind].add(batch.records)
            for rest in gathered.values():
                rest.flush()

    def _series(self, records: Records, into: tables.TableFile) -> None:
        into.add(stored_samples(records, self._ports))

    @staticmethod
    def _file(into: File, table: str, wanted: bool) -> tables.TableFile:
        return CellFile(into / f"{table}.arrow", wanted=wanted)

    def _events(self, records: Records) -> pa.Table:
        columns = columns_of(records, self._ports)
        columns["op"] = pa.DictionaryArray.from_arrays(pa.array(records["op"].astype(np.int32)), pa.array(OPERATIONS))
        for name in ("saddr", "daddr"):
            data = pa.py_buffer(np.ascontiguousarray(records[name]).tobytes())
            columns[name] = pa.Array.from_buffers(pa.binary(16), len(records), [None, data])
        return table_of(tables.CELL_SCHEMAS["queue_events"], columns, records)

    def queues(self, counters: Counters) -> pa.Table:
        """One row a queue: the tap's summary and histogram, and the scheme's statistics."""
        rows = (
            self._row(index, self.summaries.get(index, QueueSummary()), self.histograms.get(index), counters)
            | {"xstats": list(statistics(self._plan, counters, index).items()) or None}
            for index in range(len(self._plan.queues))
        )
        return table_of_rows("queues", rows, "taps.bin or counters.json")

    def sojourns(self, counters: Counters) -> sojourns.Sojourns:
        """The sojourn times of all queues."""
        columns = [self._queue_columns(index, counters) for index in range(len(self._plan.queues))]
        found = sojourns.Sojourns(self._plan, columns)
        for sojourn in self._sojourns:
            found.add(sojourn)
        return found

    def queue_windows(self, counters: Counters) -> pa.Table:
        """One row for each queue and window."""
        rows = (
            named | self._row(index, summary, histogram, counters)
            for index in range(len(self._plan.queues))
            for named, summary, histogram in self.windows.of_queue(index)
        )
        return table_of_rows("queue_windows", rows, "taps.bin")

    def statistics_rows(self, record: Row, counters: Counters) -> Iterator[Row]:
        """The statistics of one queue at one instant, a row each."""
        index = record["queue"]
        if not 0 <= index < len(self._plan.queues):
            raise RecordError(f"statistics.ndjson: the plan has no queue {index}")
        queue, kind = self._plan.queues[index], counters.queues[index].kind
        row = {"queue": index, "port": self._ports[index], "time_ns": record["time_ns"]}
        row["discipline"] = discipline(queue.scheme, counters.queues[index])
        for name, value in decode_statistics(queue.scheme, kind, bytes.fromhex(record["xstats"])).items():
            yield row | {"statistic": name, "value": value}

    def _row(self, index: int, summary: QueueSummary, histogram: Histogram | None, counters: Counters) -> Row:
        time = summary.duration_ns
        return self._queue_columns(index, counters) | {
            "rate_bps": self._rates.get(index),
            **vars(summary),
            "mean_bytes": summary.byte_ns / time if time else None,
            "mean_packets": summary.packet_ns / time if time else None,
            "bin_bytes": None if histogram is None else histogram.bin_bytes,
            "histogram_ns": None if histogram is None else histogram.ns.astype(np.int64),
        }

    def _queue_columns(self, index: int, counters: Counters) -> Row:
        """The columns that identify a queue."""
        queue = self._plan.queues[index]
        known = counters.queues[index] if index < len(counters.queues) else None
        return {
            "queue": index,
            "port": self._ports[index],
            "name": queue.name,
            "node": self._plan.nodes[queue.node].name,
            "interface": queue.interface,
            "role": queue.role,
            "discipline": discipline(queue.scheme, known),
        }
