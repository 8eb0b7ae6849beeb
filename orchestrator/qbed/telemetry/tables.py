# SPDX-License-Identifier: Apache-2.0
"""The tables of a run folder: their columns, and Parquet files with bytes that depend only on their rows.

docs/run-folder.md describes every column. A change of meaning raises `VERSION`. `qbed.cells.arrow` has the
tables of the cells from which they are merged.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from qbed.base.json_files import FILES, SEAL
from qbed.telemetry.flow_samples import FIELDS
from qbed.telemetry.taps import INTEGRALS, SAMPLE_FIELDS

VERSION = 1
ROW_GROUP_ROWS = 1 << 17
MAX_WAITING = 256

NAME = pa.dictionary(pa.int32(), pa.string())


def _schema(name: str, fields: dict[str, pa.DataType]) -> pa.Schema:
    return pa.schema(
        [pa.field("cell", pa.int32(), nullable=False), *(pa.field(*item) for item in fields.items())],
        metadata={"qbed.table": name, "qbed.version": str(VERSION)},
    )


def _ints(*names: str) -> dict[str, pa.DataType]:
    return {name: pa.int64() for name in names}


FLOWS = _schema(
    "flows",
    {
        "flow": pa.int32(),
        "workload": pa.int32(),
        "label": pa.string(),
        "transport": pa.string(),
        "congestion_control": pa.string(),
        "src": pa.string(),
        "dst": pa.string(),
        "src_address": pa.string(),
        "dst_address": pa.string(),
        "src_port": pa.int32(),
        "dst_port": pa.int32(),
        **_ints("size_bytes", "start_ns", "connected_ns", "end_ns", "received_bytes", "sent_bytes"),
        "status": pa.string(),
        "error": pa.string(),
        **_ints("retransmits", "timeouts", "ce_marks", "segments_sent", "segments_received", "min_rtt_ns", "rtt_ns"),
        "ecn": pa.bool_(),
        "dscp": pa.uint8(),
        **_ints("fct_ns", "ideal_fct_ns"),
        "slowdown": pa.float64(),
        "goodput_bps": pa.float64(),
    },
)

QUEUES = _schema(
    "queues",
    {
        "queue": pa.int32(),
        "port": pa.string(),
        "name": pa.string(),
        "node": pa.string(),
        "interface": pa.string(),
        "role": pa.string(),
        "discipline": pa.string(),
        **_ints("rate_bps", "duration_ns", "byte_ns", "packet_ns"),
        "mean_bytes": pa.float64(),
        "mean_packets": pa.float64(),
        **_ints("max_bytes", "max_packets"),
        **_ints("offered_packets", "offered_bytes", "sent_packets", "sent_bytes", "dropped_packets", "dropped_bytes"),
        **_ints("marked_packets", "queue_packets", "queue_bytes", "start_queue_packets", "start_queue_bytes"),
        **_ints("bin_bytes"),
        "histogram_ns": pa.list_(pa.int64()),
        "xstats": pa.map_(pa.string(), pa.float64()),
    },
)

QUEUE_SERIES = _schema(
    "queue_series",
    {
        "queue": pa.int32(),
        "port": NAME,
        **_ints("time_ns", "interval_ns", "byte_ns", "packet_ns"),
        **{name: pa.float64() if name in INTEGRALS else pa.int64() for name in SAMPLE_FIELDS[1:]},
    },
)

QUEUE_EVENTS = _schema(
    "queue_events",
    {
        "queue": pa.int32(),
        "port": NAME,
        "time_ns": pa.int64(),
        "op": NAME,
        "ecn": pa.uint8(),
        "family": pa.uint8(),
        "protocol": pa.uint8(),
        **_ints("bytes", "queue_bytes", "queue_packets", "packet"),
        "sport": pa.uint16(),
        "dport": pa.uint16(),
        "tcp_seq": pa.uint32(),
        "tcp_ack": pa.uint32(),
        "payload": pa.uint16(),
        "tcp_flags": pa.uint8(),
        "saddr": pa.binary(16),
        "daddr": pa.binary(16),
    },
)

_CLASS = {"ecn": pa.string(), "dscp": pa.int16()}
SOJOURNS = _schema(
    "sojourns",
    {
        **{name: QUEUES.field(name).type for name in ("queue", "port", "node", "interface", "role", "discipline")},
        **_CLASS,
        "packets": pa.int64(),
        "mean_ns": pa.float64(),
        **_ints("max_ns", "p50_ns", "p99_ns", "p999_ns"),
        **{name: pa.list_(pa.int64()) for name in ("bin_from_ns", "bin_to_ns", "bin_packets")},
    },
)

SOJOURN_SERIES = _schema(
    "sojourn_series",
    {
        "queue": pa.int32(),
        "port": NAME,
        **_CLASS,
        **_ints("time_ns", "interval_ns", "packets"),
        "mean_ns": pa.float64(),
        **_ints("max_ns", "p50_ns", "p99_ns"),
    },
)

TCP_INFO, RATES = (
    _schema(
        table, {"flow": pa.int32(), **_ints("time_ns", *names)} | ({"state": pa.string()} if "state" in names else {})
    )
    for table, names in FIELDS.items()
)

FLOW_STATISTICS = _schema(
    "flow_statistics",
    {
        "flow": pa.int32(),
        "congestion_control": NAME,
        "time_ns": pa.int64(),
        "statistic": NAME,
        "value": pa.int64(),
    },
)

ROUTES = _schema(
    "routes",
    {
        "time_ns": pa.int64(),
        "node": pa.string(),
        "change": pa.string(),
        "link": pa.string(),
        "destination": pa.string(),
        "protocol": pa.string(),
        "interfaces": pa.list_(pa.string()),
        "gateways": pa.list_(pa.string()),
    },
)

INTERFACES = _schema(
    "interfaces",
    {
        "link": pa.string(),
        "port": NAME,
        "node": pa.string(),
        "interface": pa.string(),
        **_ints("rx_packets", "tx_packets", "interface_dropped", "socket_dropped", "device_dropped"),
    },
)

STATISTICS = _schema(
    "statistics",
    {
        "queue": pa.int32(),
        "port": NAME,
        "discipline": NAME,
        "time_ns": pa.int64(),
        "statistic": NAME,
        "value": pa.float64(),
    },
)

_WINDOW = {"span": pa.string(), **_ints("from_ns", "until_ns")}
WINDOWS = _schema(
    "windows",
    {
        **_WINDOW,
        **_ints("flows_started", "flows_complete", "received_bytes"),
        "goodput_bps": pa.float64(),
        **_ints("dropped_packets", "marked_packets"),
    },
)

QUEUE_WINDOWS = _schema(
    "queue_windows",
    {**_WINDOW, **{item.name: item.type for item in QUEUES if item.name not in ("cell", "xstats")}},
)

SOJOURN_WINDOWS = _schema(
    "sojourn_windows",
    {**_WINDOW, **{item.name: item.type for item in SOJOURNS if item.name != "cell"}},
)

FLOW_WINDOWS = _schema(
    "flow_windows",
    {
        **_WINDOW,
        **{name: FLOWS.field(name).type for name in ("flow", "workload", "label", "transport")},
        **{name: FLOWS.field(name).type for name in ("congestion_control", "src", "dst")},
        **_ints("active_ns", "received_bytes"),
        "goodput_bps": pa.float64(),
    },
)

SWITCHES = _schema(
    "switches",
    {
        "node": pa.string(),
        "p4_program": pa.string(),
        **_ints("received_packets", "ingress_packets", "egress_packets", "sent_packets"),
        **_ints("cloned_packets", "replicated_packets", "resubmitted_packets", "recirculated_packets"),
        **_ints("parser_errors", "checksum_errors"),
        "drops": pa.map_(pa.string(), pa.int64()),
    },
)

P4_ARRAYS = _schema(
    "p4_arrays",
    {
        "node": pa.string(),
        "p4_program": pa.string(),
        "name": pa.string(),
        "index": pa.int64(),
        "packets": pa.uint64(),
        "bytes": pa.uint64(),
        "value": pa.uint64(),
        **{f"{color}_packets": pa.uint64() for color in ("green", "yellow", "red")},
    },
)

EXCHANGES = _schema(
    "exchanges",
    {
        "workload": pa.int32(),
        "label": NAME,
        "client": NAME,
        "server": NAME,
        "session": pa.int64(),
        "exchange": pa.int64(),
        "connection": pa.int64(),
        **_ints("start_ns", "connected_ns", "first_byte_ns", "end_ns", "request_bytes", "response_bytes"),
        "status": NAME,
        "error": pa.string(),
        **_ints("latency_ns", "query_ns"),
    },
)

PROGRAMS = _schema(
    "programs",
    {
        "program": pa.int32(),
        "label": pa.string(),
        "node": pa.string(),
        "argv": pa.list_(pa.string()),
        **_ints("start_ns", "end_ns", "exit_status"),
        "stopped": pa.bool_(),
        **_ints("records", "stdout_bytes", "stderr_bytes"),
        "stdout": pa.string(),
        "stderr": pa.string(),
    },
)

PROGRAM_RECORDS = _schema(
    "program_records",
    {
        "program": pa.int32(),
        "label": pa.string(),
        "node": pa.string(),
        "record": pa.int64(),
        "path": pa.string(),
        "element": pa.int64(),
        "numbers": pa.map_(pa.string(), pa.float64()),
        "texts": pa.map_(pa.string(), pa.string()),
    },
)

PROBES = _schema(
    "probes",
    {
        "flow": pa.int32(),
        "workload": pa.int32(),
        "label": NAME,
        "src": NAME,
        "dst": NAME,
        "dscp": pa.uint8(),
        **_ints("probe", "sent_ns", "rtt_ns", "forward_ns", "reverse_ns", "ipdv_ns"),
        "lost": pa.bool_(),
    },
)

_CELLS: dict[str, pa.DataType] = {
    "seed": pa.int64(),
    "status": pa.string(),
    "error": pa.string(),
    "substrate": pa.string(),
    **_ints("dilation", "duration_ns", "end_ns"),
    "bottleneck": pa.string(),
    **_ints("flows", "flows_complete", "flows_failed", "flows_unlimited", "received_bytes", "retransmits", "timeouts"),
    **_ints("dropped_packets", "marked_packets", "lost_packets"),
    "goodput_bps": pa.float64(),
    "contradictions": pa.list_(pa.string()),
    "warnings": pa.list_(pa.string()),
    "evidence": pa.string(),
    "plan_sha256": pa.string(),
    "trace_sha256": pa.string(),
    "settings": pa.string(),
}

SCHEMAS: dict[str, pa.Schema] = {
    "flows": FLOWS,
    "queues": QUEUES,
    "queue_series": QUEUE_SERIES,
    "queue_events": QUEUE_EVENTS,
    "sojourns": SOJOURNS,
    "sojourn_series": SOJOURN_SERIES,
    "tcp_info": TCP_INFO,
    "rates": RATES,
    "routes": ROUTES,
    "interfaces": INTERFACES,
    "switches": SWITCHES,
    "p4_arrays": P4_ARRAYS,
    "statistics": STATISTICS,
    "flow_statistics": FLOW_STATISTICS,
    "windows": WINDOWS,
    "queue_windows": QUEUE_WINDOWS,
    "sojourn_windows": SOJOURN_WINDOWS,
    "flow_windows": FLOW_WINDOWS,
    "exchanges": EXCHANGES,
    "programs": PROGRAMS,
    "program_records": PROGRAM_RECORDS,
    "probes": PROBES,
}
CELL_SCHEMAS: dict[str, pa.Schema] = {name: schema.remove(0) for name, schema in SCHEMAS.items()}
"""The schemas of one cell's tables, without the column `cell`."""
_TAKEN = {"cell", FILES, SEAL, *_CELLS, *(name for schema in SCHEMAS.values() for name in schema.names)}
RESERVED_COLUMNS = frozenset(_TAKEN - {"seed"})


def cells_schema(axes: Mapping[str, str]) -> pa.Schema:
    """The schema of `cells`: the axes as columns (name -> `int`, `float`, `bool` or `str`), then what was measured."""
    kinds = {"int": pa.int64(), "float": pa.float64(), "bool": pa.bool_(), "str": pa.string()}
    columns = {name: kinds[kind] for name, kind in axes.items() if name != "seed"}
    return _schema("cells", {**columns, **_CELLS})


def traces_of(run: Path) -> Iterator[tuple[int, str | None]]:
    """Generate the number and the trace of each cell of a run folder."""
    with pq.ParquetFile(run / "cells.parquet") as file:
        for batch in file.iter_batches(columns=["cell", "trace_sha256"]):
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


class TableFile:
    """A Parquet file in row groups of a fixed size. Its bytes depend only on its rows.

    Memory: one row group. The file appears with the first row group, or at `close` if it is `wanted` even when empty.
    """

    def __init__(self, path: Path, schema: pa.Schema, *, wanted: bool = True) -> None:
        self.rows = 0
        self._path = path
        self._schema = schema
        self._wanted = wanted
        self._writer: pq.ParquetWriter | None = None
        self._gathered: list[pa.Table] = []
        self._waiting: list[pa.Table] = []
        self._held = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        elif self._writer is not None:
            with contextlib.suppress(OSError):
                self._writer.close()

    def add(self, table: pa.Table) -> None:
        """Append an Arrow table of this file's schema."""
        self._waiting.append(table)
        self._held += table.num_rows
        self.rows += table.num_rows
        while self._held >= ROW_GROUP_ROWS:
            held = self._gather()
            self._write(held.slice(0, ROW_GROUP_ROWS))
            self._waiting, self._held = [held.slice(ROW_GROUP_ROWS)], self._held - ROW_GROUP_ROWS
        if len(self._waiting) > MAX_WAITING:  # a small table costs far more than its rows
            self._gathered.append(_combined(self._waiting))
            self._waiting = []

    def close(self) -> None:
        if self._held or (self._wanted and self._writer is None):
            self._write(self._gather())
        if self._writer is not None:
            self._writer.close()

    def _gather(self) -> pa.Table:
        held = _combined([*self._gathered, *self._waiting] or [self._schema.empty_table()])
        self._gathered, self._waiting = [], []
        return held

    def _write(self, table: pa.Table) -> None:
        if self._writer is None:
            self._writer = self._open()
        self._writer.write_table(table, ROW_GROUP_ROWS)

    def _open(self) -> Any:
        return pq.ParquetWriter(
            self._path, self._schema, compression="zstd", compression_level=3, version="2.6", store_schema=True
        )


def _combined(tables: list[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables).unify_dictionaries().combine_chunks()


def write_table(path: Path, schema: pa.Schema, batches: Iterable[pa.Table]) -> None:
    """Write `batches` (Arrow tables of this schema) to one file."""
    with TableFile(path, schema) as file:
        for batch in batches:
            file.add(batch)
