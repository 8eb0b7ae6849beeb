# SPDX-License-Identifier: Apache-2.0
"""The first difference of two runs: the first cell with another trace, and in it the first different record."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import duckdb

from qbed.base.json_files import Row
from qbed.claims.first_difference import (
    INTERVALS,
    SAMPLES,
    TOTALS,
    CellTable,
    Pair,
    by_time,
    first_interval,
    first_sample,
    first_total,
)
from qbed.claims.sql import Connection, SqlRow, confined, one_line, quoted
from qbed.storage.identity import StoreError, read_identity
from qbed.storage.run_folder import RunFolder

NOT_SET = "as in the lab file"


@dataclass(frozen=True)
class Input:
    """A different input of two runs: a setting, the lab file, the toolchain."""

    name: str
    first: object
    second: object

    def __str__(self) -> str:
        return f"{self.name}: {self.first} / {self.second}"


@dataclass(frozen=True)
class RecordDifference:
    """The first different record of a table; None: the run has no such record."""

    table: str
    time_ns: int | None
    first: Row | None
    second: Row | None

    def __str__(self) -> str:
        when = "" if self.time_ns is None else f" at {self.time_ns / 1e6:.6f} ms"
        return f"{self.table}{when}: " + " / ".join(
            self._describe(row, counterpart) for row, counterpart in self._pairs()
        )

    def _pairs(self) -> Iterator[tuple[Row | None, Row | None]]:
        yield self.first, self.second
        yield self.second, self.first

    def _describe(self, row: Row | None, counterpart: Row | None) -> str:
        if row is None:
            return "no such record"
        if self.table == "queue_events":
            late = "" if row["time_ns"] == self.time_ns else f"at {row['time_ns'] / 1e6:.6f} ms "
            return late + packet(row)
        names = ("port", "flow", "probe", "node", "workload", "session", "exchange", "program", "statistic", "span")
        key = " ".join(f"{name} {row[name]}" for name in names if row.get(name) is not None)
        differ = {name: value for name, value in row.items() if counterpart is None or counterpart.get(name) != value}
        return f"{key}: " + ", ".join(f"{name} {value}" for name, value in differ.items() if value is not None)


def packet(event: Row) -> str:
    """Describe a packet event."""
    text = f"{event['port']} {event['op']} packet {event['packet']}, {event['bytes']} bytes"
    if event["family"] in (4, 6):
        ends = (f"{_address(event, end)}:{event[port]}" for end, port in (("saddr", "sport"), ("daddr", "dport")))
        text += f", {' > '.join(ends)} protocol {event['protocol']}"
    if event["protocol"] == 6:
        text += f" seq {event['tcp_seq']} ack {event['tcp_ack']}"
    return f"{text}; {event['queue_packets']} packets in the queue"


def _address(event: Row, end: str) -> str:
    data = bytes(event[end])
    return str(ipaddress.IPv4Address(data[:4])) if event["family"] == 4 else f"[{ipaddress.IPv6Address(data)}]"


class Difference:
    """Two run folders. Cells with the same axes and values are compared."""

    def __init__(self, first: Path, second: Path) -> None:
        self.runs = (first, second)
        self._tables = tuple(RunFolder(run).tables() for run in self.runs)
        self._identities = tuple(read_identity(run) for run in self.runs)
        axes = [{axis["name"] for axis in identity["matrix"]["axes"]} for identity in self._identities]
        self.axes = sorted(axes[0] & axes[1])

    def __enter__(self) -> Difference:
        self._connections = [confined(tables.values()) for tables in self._tables]
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._connections:
            connection.close()

    def cells(self) -> Iterator[tuple[str, tuple[int, int], bool]]:
        """Generate each shared cell: name, both numbers, equality of the traces. `StoreError` if there is none."""
        found = []
        for connection, tables in zip(self._connections, self._tables, strict=True):
            found.append(dict(self._traces(connection, tables["cells"])))
        first, second = found
        if not first.keys() & second.keys():
            raise StoreError(f"{self.runs[0]} and {self.runs[1]} have no cell in common")
        for values, (number, trace) in first.items():
            if values in second:
                name = ", ".join(f"{axis}={value}" for axis, value in zip(self.axes, values, strict=True))
                yield name, (number, second[values][0]), trace == second[values][1]

    def _traces(self, connection: Connection, cells: Path) -> Iterator[tuple[SqlRow, tuple[int, str | None]]]:
        """Number and trace of each cell by its axes."""
        columns = ", ".join(map(quoted, [*self.axes, "cell", "trace_sha256"]))
        sql = f"SELECT {columns} FROM read_parquet(?) ORDER BY cell"
        try:
            rows = connection.execute(sql, [str(cells)]).fetchall()
        except duckdb.Error as error:
            raise StoreError(f"{cells} is damaged: it lacks columns of this version: {one_line(error)}") from None
        yield from ((tuple(row[:-2]), (row[-2], row[-1])) for row in rows)

    def inputs(self, numbers: tuple[int, int]) -> list[Input]:
        """The differing inputs of two cells: first their settings, then lab file and toolchain."""
        first, second = map(self._settings, range(2), numbers)
        names = [*first, *(name for name in second if name not in first)]
        found = [Input(name, first.get(name, NOT_SET), second.get(name, NOT_SET)) for name in names]
        before, after = map(_made_of, self._identities)
        found += [Input(name, before.get(name, "none"), after.get(name, "none")) for name in (before | after)]
        return [item for item in found if item.first != item.second]

    def _settings(self, run: int, number: int) -> Row:
        """The settings of a cell and its substrate."""
        sql = "SELECT settings, substrate, dilation FROM read_parquet(?) WHERE cell = ?"
        row = self._connections[run].execute(sql, [str(self._tables[run]["cells"]), number]).fetchone()
        text, substrate, dilation = row or (None, None, None)
        try:
            settings = json.loads(text or "{}")
        except (ValueError, RecursionError):
            settings = None
        return (settings if isinstance(settings, dict) else {"settings": text}) | {
            "substrate": substrate,
            "dilation": dilation,
        }

    def first_difference(self, numbers: tuple[int, int]) -> RecordDifference | None:
        """The first difference of two cells by lab time; None: all observations are equal.

        What only one of them observed comes last: which tables a cell has is a matter of its lab's `observe`.
        """
        shared: list[RecordDifference] = []
        single: list[RecordDifference] = []
        for name in (*SAMPLES, *INTERVALS, *TOTALS):
            if (tables := self._cell_tables(name, numbers)) is not None:
                empty = [table.is_empty() for table in tables]
                if (pair := self._first(name, tables, numbers)) is not None:
                    (single if any(empty) else shared).append(
                        RecordDifference(name, pair.time_ns, pair.first, pair.second)
                    )
        return min(shared or single, key=lambda found: by_time(found.time_ns), default=None)

    def _first(self, name: str, tables: tuple[CellTable, CellTable], numbers: tuple[int, int]) -> Pair | None:
        if name in SAMPLES:
            return first_sample(name, tables)
        return first_interval(name, tables, self._end_ns(numbers)) if name in INTERVALS else first_total(name, tables)

    def _cell_tables(self, name: str, numbers: tuple[int, int]) -> tuple[CellTable, CellTable] | None:
        """A table of both cells; None: neither run has it."""
        files = [tables.get(name) for tables in self._tables]
        first, second = (
            CellTable(connection, file, number)
            for connection, file, number in zip(self._connections, files, numbers, strict=True)
        )
        return None if files == [None, None] else (first, second)

    def _end_ns(self, numbers: tuple[int, int]) -> int | None:
        """The earlier end of the lab in two cells. Records of unfinished objects are read then."""
        sql = "SELECT end_ns FROM read_parquet(?) WHERE cell = ?"
        rows = [
            connection.execute(sql, [str(tables["cells"]), number]).fetchone()
            for connection, tables, number in zip(self._connections, self._tables, numbers, strict=True)
        ]
        return min((row[0] for row in rows if row is not None and row[0] is not None), default=None)


def _made_of(identity: Row) -> Row:
    toolchain = identity.get("toolchain", {})
    return {"lab file's sha256": str(identity.get("lab_sha256"))[:12]} | {
        f"toolchain's {name}": value for name, value in toolchain.items()
    }
