# SPDX-License-Identifier: Apache-2.0
"""The first record, by lab time, in which one table of two cells differs.

Rows are paired by their object (a port, a flow, an exchange), never by their position in the file: a table is
sorted by time only within a queue, or by the order in which exchanges end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qbed.base.json_files import Row
from qbed.claims.sql import SqlRow, quoted

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection as Connection

Key = tuple[tuple[bool, Any], ...]
Instants = Callable[[Row], tuple[int | None, ...]]

SAMPLES = {
    "queue_events": ("port",),
    "queue_series": ("port",),
    "sojourn_series": ("port", "ecn", "dscp"),
    "tcp_info": ("flow",),
    "rates": ("flow",),
    "routes": ("node", "link", "destination"),
    "statistics": ("port", "statistic"),
    "flow_statistics": ("flow", "statistic"),
}
"""Tables whose rows belong to one instant, `time_ns`, the finest first; and the columns that pair rows."""
INTERVALS = {
    "exchanges": ("workload", "client", "server", "session", "exchange"),
    "probes": ("flow", "probe"),
    "flows": ("flow",),
    "programs": ("program",),
}
"""Tables whose rows describe an object that begins and ends."""
TOTALS = {
    "queues": ("queue",),
    "sojourns": ("queue", "ecn", "dscp"),
    "windows": ("from_ns", "until_ns", "span"),
    "queue_windows": ("from_ns", "until_ns", "span", "queue"),
    "sojourn_windows": ("from_ns", "until_ns", "span", "queue", "ecn", "dscp"),
    "flow_windows": ("from_ns", "until_ns", "span", "flow"),
    "interfaces": ("link", "port", "node"),
    "switches": ("node",),
    "p4_arrays": ("node", "name", "index"),
    "program_records": ("program", "record", "path", "element"),
}
"""Tables without a time."""
BATCH = 1_000
SLICES = 4_096


@dataclass(frozen=True)
class Pair:
    """The rows of two cells; None: the cell has no such row. `time_ns`: the time at which the rows begin to differ."""

    time_ns: int | None
    first: Row | None
    second: Row | None


@dataclass(frozen=True)
class CellTable:
    """One table of one cell. `file` is None where the run does not have it: it has no rows."""

    connection: Connection
    file: Path | None
    cell: int

    def select(self, what: str, rest: str = "") -> Connection:
        sql = f"SELECT {what} FROM read_parquet(?) WHERE cell = ? {rest}"
        return self.connection.cursor().execute(sql, [str(self.file), self.cell])

    def is_empty(self) -> bool:
        return self.file is None or self.select("1", "LIMIT 1").fetchone() is None

    def columns(self) -> list[str]:
        if self.file is None:
            return []
        return [column[0] for column in self.select("* EXCLUDE (cell)", "LIMIT 0").description]

    def bounds(self) -> list[int]:
        """The first and the last instant of its rows."""
        if self.file is None:
            return []
        return [time for time in self.select("min(time_ns), max(time_ns)").fetchone() or () if time is not None]

    def hashes(self, names: list[str], begin: int, width_ns: int) -> dict[int, tuple[int, int]]:
        """Number of rows and sum of their hashes, by slice of lab time."""
        if self.file is None:
            return {}
        what = f"(time_ns - ({begin})) // {width_ns} AS slice, count(*), sum(hash({', '.join(map(quoted, names))}))"
        return {number: (count, total) for number, count, total in self.select(what, "GROUP BY slice").fetchall()}

    def rows(self, names: list[str], rest: str) -> Iterator[SqlRow]:
        if self.file is None:
            return
        cursor = self.select(", ".join(map(quoted, names)), rest)
        while rows := cursor.fetchmany(BATCH):
            yield from rows


def first_sample(name: str, tables: tuple[CellTable, CellTable]) -> Pair | None:
    """The earliest row that only one of two tables has, and the other table's first one for the same port or flow."""
    names = _common_columns(tables)
    rows = _first_slice(tables, names)
    if rows is None:
        return None
    counts = [Counter(tuple(map(_frozen, row)) for row in some) for some in rows]
    missing = (_missing(names, *counts), _missing(names, *counts[::-1]))
    first, second = _pick(*missing, SAMPLES[name]), _pick(*missing[::-1], SAMPLES[name])
    return Pair(min(row["time_ns"] for row in (first, second) if row is not None), first, second)


def _missing(names: list[str], first: Counter[SqlRow], second: Counter[SqlRow]) -> list[Row]:
    """The rows that only one of two cells has, in their order."""
    return [dict(zip(names, row, strict=True)) for row in (first - second).elements()]


def _first_slice(tables: tuple[CellTable, CellTable], names: list[str]) -> list[list[SqlRow]] | None:
    """The rows of both tables in the first slice of lab time in which they differ; reads no more of them."""
    times = [time for table in tables for time in table.bounds()]
    if not times:
        return None
    begin = min(times)
    width = (max(times) - begin) // SLICES + 1
    first, second = (table.hashes(names, begin, width) for table in tables)
    differing = [number for number in first.keys() | second.keys() if first.get(number) != second.get(number)]
    if not differing:
        return None
    begin += min(differing) * width
    rest = f"AND time_ns >= {begin} AND time_ns < {begin + width} ORDER BY time_ns"
    return [list(table.rows(names, rest)) for table in tables]


def _pick(first: list[Row], second: list[Row], key: tuple[str, ...]) -> Row | None:
    """The first row of `first`; if `second` begins earlier, the row with the key of its first row."""
    if not first or not second or first[0]["time_ns"] < second[0]["time_ns"]:
        return first[0] if first else None
    wanted = [second[0].get(name) for name in key]
    paired = (row for row in first if [row.get(name) for name in key] == wanted)
    if first[0]["time_ns"] == second[0]["time_ns"]:
        return next(paired, first[0])
    return next(paired, None)


def first_interval(name: str, tables: tuple[CellTable, CellTable], end_ns: int | None) -> Pair | None:
    """The pair of rows that differ at the earliest instant.

    `end_ns`: the lab's end, at which the rows of unfinished objects are written. A probe without a reply differs at its
    sending time.
    """
    end_ns = None if name == "probes" else end_ns
    found = (
        Pair(_differs_ns(_instants_of(name), first, second, end_ns), first, second)
        for first, second in _pairs(tables, INTERVALS[name])
    )
    return min(found, key=lambda pair: by_time(pair.time_ns), default=None)


def first_total(name: str, tables: tuple[CellTable, CellTable]) -> Pair | None:
    """The first pair of rows that differ, in the order of their key."""
    return next((Pair(None, first, second) for first, second in _pairs(tables, TOTALS[name])), None)


def by_time(time_ns: int | None) -> float:
    """Order of instants; unknown ones are the last."""
    return float("inf") if time_ns is None else time_ns


def _differs_ns(instants: Instants, first: Row | None, second: Row | None, end_ns: int | None) -> int | None:
    """The time at which two rows begin to differ: their first unequal instant, else their last instant."""
    if first is None or second is None:
        row = first or second or {}
        return next((time for time in instants(row) if time is not None), end_ns)
    for pair in zip(instants(first), instants(second), strict=True):
        if pair[0] != pair[1]:
            return min(time for time in pair if time is not None)
    if instants(first)[-1] is None and end_ns is not None:
        return end_ns
    return max((time for time in instants(first) if time is not None), default=None)


def _instants_of(name: str) -> Instants:
    """The instants of a row in chronological order."""
    if name == "probes":
        return _instants_of_probe
    return lambda row: tuple(row.get(column) for column in ("start_ns", "connected_ns", "first_byte_ns", "end_ns"))


def _instants_of_probe(row: Row) -> tuple[int | None, ...]:
    delays = (row.get("forward_ns"), row.get("rtt_ns"))
    return (row["sent_ns"], *(None if delay is None else row["sent_ns"] + delay for delay in delays))


def _pairs(tables: tuple[CellTable, CellTable], key: tuple[str, ...]) -> Iterator[tuple[Row | None, Row | None]]:
    """The rows that differ, paired by their key."""
    names = _common_columns(tables)
    order = f"ORDER BY {', '.join(f'{quoted(name)} NULLS FIRST' for name in key)}"
    left, right = (table.rows(names, order) for table in tables)
    places = [names.index(name) for name in key]
    for first, second in _merged(left, right, lambda row: tuple((row[at] is not None, row[at]) for at in places)):
        if first != second:
            yield _named(names, first), _named(names, second)


def _merged(
    left: Iterable[SqlRow], right: Iterable[SqlRow], key: Callable[[SqlRow], Key]
) -> Iterator[tuple[SqlRow | None, SqlRow | None]]:
    """Merge two sorted sequences: generate pairs of rows with equal keys."""
    left_rows, right_rows = iter(left), iter(right)
    first, second = next(left_rows, None), next(right_rows, None)
    while first is not None or second is not None:
        if second is None or (first is not None and key(first) < key(second)):
            yield first, None
            first = next(left_rows, None)
        elif first is None or key(second) < key(first):
            yield None, second
            second = next(right_rows, None)
        else:
            yield first, second
            first, second = next(left_rows, None), next(right_rows, None)


def _named(names: list[str], row: SqlRow | None) -> Row | None:
    return None if row is None else dict(zip(names, row, strict=True))


def _frozen(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


def _common_columns(tables: tuple[CellTable, CellTable]) -> list[str]:
    first, second = (table.columns() for table in tables)
    return [name for name in first if name in second] if first and second else first or second
