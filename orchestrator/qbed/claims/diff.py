# SPDX-License-Identifier: Apache-2.0
"""Where two runs part: the first cell that did something else, and in it the first record that differs."""

from __future__ import annotations

import ipaddress
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qbed.claims.sql import confined, quoted
from qbed.results.folder import RunFolder
from qbed.results.identity import StoreError, read_identity

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection as Connection

Row = dict[str, Any]
TIMED = (
    *("queue_events", "queue_series", "sojourn_series", "tcp_info", "rates", "routes", "statistics"),
    *("exchanges", "probes", "flows"),
)
"""Tables whose records have a time, the finest first: of equal times, the first one tells most."""
SUMMED = ("queues", "sojourns", "queue_windows", "sojourn_windows", "flow_windows", "switches")
BATCH = 1_000


@dataclass(frozen=True)
class Parting:
    """The first record of a table that differs; None: that run has no more. `time_ns`: of a table with times."""

    table: str
    time_ns: int | None
    one: Row | None
    other: Row | None

    def __str__(self) -> str:
        when = "" if self.time_ns is None else f" at {self.time_ns / 1e6:.6f} ms"
        return f"{self.table}{when}: " + " / ".join(self._said(row, rest) for row, rest in self._pairs())

    def _pairs(self) -> Iterator[tuple[Row | None, Row | None]]:
        yield self.one, self.other
        yield self.other, self.one

    def _said(self, row: Row | None, other: Row | None) -> str:
        if row is None:
            return "no more"
        if self.table == "queue_events":
            return packet(row)
        names = ("port", "flow", "probe", "node", "workload", "session", "exchange")
        who = " ".join(f"{name} {row[name]}" for name in names if row.get(name) is not None)
        differ = {name: value for name, value in row.items() if other is None or other.get(name) != value}
        return f"{who}: " + ", ".join(f"{name} {value}" for name, value in differ.items() if value is not None)


def packet(event: Row) -> str:
    """What happened to which packet."""
    said = f"{event['port']} {event['op']} packet {event['packet']}, {event['bytes']} bytes"
    if event["family"] in (4, 6):
        ends = (f"{_address(event, end)}:{event[port]}" for end, port in (("saddr", "sport"), ("daddr", "dport")))
        said += f", {' > '.join(ends)} protocol {event['protocol']}"
    if event["protocol"] == 6:
        said += f" seq {event['tcp_seq']} ack {event['tcp_ack']}"
    return f"{said}; {event['queue_packets']} packets in the queue"


def _address(event: Row, end: str) -> str:
    data = bytes(event[end])
    return str(ipaddress.IPv4Address(data[:4])) if event["family"] == 4 else f"[{ipaddress.IPv6Address(data)}]"


class Difference:
    """Two run folders whose cells are compared where they have the same axes and values."""

    def __init__(self, one: Path, other: Path) -> None:
        self.runs = (one, other)
        self._tables = tuple(RunFolder(run).tables() for run in self.runs)
        axes = [{axis["name"] for axis in read_identity(run)["matrix"]["axes"]} for run in self.runs]
        self.axes = sorted(axes[0] & axes[1])

    def __enter__(self) -> Difference:
        self._connections = [confined(tables.values()) for tables in self._tables]
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._connections:
            connection.close()

    def cells(self) -> Iterator[tuple[str, tuple[int, int], bool]]:
        """What a cell is called, its numbers in both runs, whether it did the same. `StoreError`: they share none."""
        found = []
        for connection, tables in zip(self._connections, self._tables, strict=True):
            found.append(dict(self._traces(connection, tables["cells"])))
        one, other = found
        if not one.keys() & other.keys():
            raise StoreError(f"{self.runs[0]} and {self.runs[1]} have no cell in common")
        for values, (number, trace) in one.items():
            if values in other:
                name = ", ".join(f"{axis}={value}" for axis, value in zip(self.axes, values, strict=True))
                yield name, (number, other[values][0]), trace == other[values][1]

    def _traces(self, connection: Connection, cells: Path) -> Iterator[tuple[tuple[Any, ...], tuple[int, str | None]]]:
        """By its axes: a cell's number and trace."""
        wanted = [*self.axes, "cell", "trace_sha256"]
        described = connection.execute("SELECT * FROM read_parquet(?) LIMIT 0", [str(cells)]).description
        there = {column[0] for column in described}
        if missing := [name for name in wanted if name not in there]:
            raise StoreError(
                f"{cells} has no column `{missing[0]}`: it is of an earlier qbed, or not whole, and does not say"
                " what its cells did; run its campaign again into another folder"
            )
        columns = ", ".join(map(quoted, wanted))
        rows = connection.execute(f"SELECT {columns} FROM read_parquet(?) ORDER BY cell", [str(cells)]).fetchall()
        yield from ((tuple(row[:-2]), (row[-2], row[-1])) for row in rows)

    def parting(self, numbers: tuple[int, int]) -> Parting | None:
        """Where two cells part first; None: nothing that was observed differs."""
        timed = [found for name in TIMED if (found := self._first(name, numbers)) is not None]
        if timed:
            return min(timed, key=lambda found: found.time_ns or 0)
        return next((found for name in SUMMED if (found := self._first(name, numbers)) is not None), None)

    def _first(self, name: str, numbers: tuple[int, int]) -> Parting | None:
        rows = [
            _rows(connection, tables.get(name), number)
            for connection, tables, number in zip(self._connections, self._tables, numbers, strict=True)
        ]
        for one, other in itertools.zip_longest(*rows):
            if one != other:
                times = [time for row in (one, other) if (time := _time(row)) is not None]
                return Parting(name, min(times, default=None), one, other)
        return None


def _time(row: Row | None) -> int | None:
    """When it was over, or of what was not: when it began."""
    names = ("time_ns", "end_ns", "start_ns", "sent_ns")
    return next((row[name] for name in names if row.get(name) is not None), None) if row is not None else None


def _rows(connection: Connection, table: Path | None, cell: int) -> Iterator[Row]:
    if table is None:
        return
    cursor = connection.cursor().execute(
        "SELECT * EXCLUDE (cell) FROM read_parquet(?) WHERE cell = ?", [str(table), cell]
    )
    names = [column[0] for column in cursor.description]
    while some := cursor.fetchmany(BATCH):
        yield from (dict(zip(names, row, strict=True)) for row in some)
