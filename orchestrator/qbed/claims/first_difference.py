# SPDX-License-Identifier: Apache-2.0
"""The first record, by lab time, in which one table of two cells differs.

Rows are paired by what they are of (a port, a flow, an exchange), never by their position in the file: a table is
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
}
"""Tables of which a row is of one instant, `time_ns`, the finest first; and the columns that pair rows."""
INTERVALS = {
    "exchanges": ("workload", "client", "server", "session", "exchange"),
    "probes": ("flow", "probe"),
    "flows": ("flow",),
    "programs": ("program",),
}
"""Tables of which a row is of something that begins and ends."""
TOTALS = {
    "queues": ("queue",),
    "sojourns": ("queue", "ecn", "dscp"),
    "windows": ("from_ns", "until_ns", "span"),
    "queue_windows": ("from_ns", "until_ns", "span", "queue"),
    "sojourn_windows": ("from_ns", "until_ns", "span", "queue", "ecn", "dscp"),
    "flow_windows": ("from_ns", "until_ns", "span", "flow"),
    "interfaces": ("link", "port", "node"),
    "switches": ("node",),
    "program_records": ("program", "record", "path", "element"),
}
"""Tables without a time."""
BATCH = 1_000
SLICES = 4_096


@dataclass(frozen=True)
class Pair:
    """The row of either cell; None: it has no such row. `time_ns`: when they begin to differ."""

    time_ns: int | None
    one: Row | None
    other: Row | None


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
        """By number of a slice of lab time: how many rows it has, and the sum of their hashes."""
        if self.file is None:
            return {}
        what = f"(time_ns - ({begin})) // {width_ns} AS slice, count(*), sum(hash({', '.join(map(quoted, names))}))"
        return {number: (count, total) for number, count, total in self.select(what, "GROUP BY slice").fetchall()}

    def rows(self, names: list[str], rest: str) -> Iterator[SqlRow]:
        if self.file is None:
            return
        cursor = self.select(", ".join(map(quoted, names)), rest)
        while some := cursor.fetchmany(BATCH):
            yield from some


def first_sample(name: str, tables: tuple[CellTable, CellTable]) -> Pair | None:
    """The earliest row that only one of two tables has, and the other's first one of the same port or flow."""
    names = _common_columns(tables)
    rows = _first_slice(tables, names)
    if rows is None:
        return None
    counts = [Counter(tuple(map(_frozen, row)) for row in some) for some in rows]
    left = [_missing(names, first, second) for first, second in (counts, counts[::-1])]
    one, other = (_pick(first, second, SAMPLES[name]) for first, second in (left, left[::-1]))
    return Pair(min(row["time_ns"] for row in (one, other) if row is not None), one, other)


def _missing(names: list[str], first: Counter[SqlRow], second: Counter[SqlRow]) -> list[Row]:
    """The rows that only one of two cells has, in their order."""
    return [dict(zip(names, row, strict=True)) for row in (first - second).elements()]


def _first_slice(tables: tuple[CellTable, CellTable], names: list[str]) -> list[list[SqlRow]] | None:
    """The rows of both in the first slice of lab time in which they differ. Nothing of their size stays in memory."""
    times = [time for table in tables for time in table.bounds()]
    if not times:
        return None
    begin = min(times)
    width = (max(times) - begin) // SLICES + 1
    one, other = (table.hashes(names, begin, width) for table in tables)
    differing = [number for number in one.keys() | other.keys() if one.get(number) != other.get(number)]
    if not differing:
        return None
    first = begin + min(differing) * width
    rest = f"AND time_ns >= {first} AND time_ns < {first + width} ORDER BY time_ns"
    return [list(table.rows(names, rest)) for table in tables]


def _pick(first: list[Row], second: list[Row], key: tuple[str, ...]) -> Row | None:
    """The first of my rows, or that which belongs to your first row if yours is the earlier."""
    if not first or not second or first[0]["time_ns"] < second[0]["time_ns"]:
        return first[0] if first else None
    wanted = [second[0].get(name) for name in key]
    paired = (row for row in first if [row.get(name) for name in key] == wanted)
    if first[0]["time_ns"] == second[0]["time_ns"]:
        return next(paired, first[0])
    return next(paired, None)


def first_interval(name: str, tables: tuple[CellTable, CellTable], end_ns: int | None) -> Pair | None:
    """The pair of rows that differ at the earliest instant.

    `end_ns`: the lab's end, when the row of what goes on was made. A probe that is not back differs when it was sent.
    """
    end_ns = None if name == "probes" else end_ns
    found = (
        Pair(_differs_ns(_instants_of(name), one, other, end_ns), one, other)
        for one, other in _pairs(tables, INTERVALS[name])
    )
    return min(found, key=lambda pair: by_time(pair.time_ns), default=None)


def first_total(name: str, tables: tuple[CellTable, CellTable]) -> Pair | None:
    """The first pair of rows that differ, in the order of their key."""
    return next((Pair(None, one, other) for one, other in _pairs(tables, TOTALS[name])), None)


def by_time(time_ns: int | None) -> float:
    """Order of instants; unknown ones are the last."""
    return float("inf") if time_ns is None else time_ns


def _differs_ns(instants: Instants, one: Row | None, other: Row | None, end_ns: int | None) -> int | None:
    """When two rows begin to differ: at the first instant that is not that of the other, else at the last one."""
    if one is None or other is None:
        row = one or other or {}
        return next((time for time in instants(row) if time is not None), end_ns)
    for pair in zip(instants(one), instants(other), strict=True):
        if pair[0] != pair[1]:
            return min(time for time in pair if time is not None)
    if instants(one)[-1] is None and end_ns is not None:
        return end_ns
    return max((time for time in instants(one) if time is not None), default=None)


def _instants_of(name: str) -> Instants:
    """The instants of a row, in the order in which they come to pass."""
    if name == "probes":
        return _instants_of_probe
    names = ("start_ns", "connected_ns", "first_byte_ns", "end_ns")
    return lambda row: tuple(row.get(one) for one in names)


def _instants_of_probe(row: Row) -> tuple[int | None, ...]:
    ways = (row.get("there_ns"), row.get("rtt_ns"))
    return (row["sent_ns"], *(None if way is None else row["sent_ns"] + way for way in ways))


def _pairs(tables: tuple[CellTable, CellTable], key: tuple[str, ...]) -> Iterator[tuple[Row | None, Row | None]]:
    """The rows that differ, paired by their key."""
    names = _common_columns(tables)
    order = f"ORDER BY {', '.join(f'{quoted(name)} NULLS FIRST' for name in key)}"
    one, other = (table.rows(names, order) for table in tables)
    places = [names.index(name) for name in key]
    for first, second in _merged(one, other, lambda row: tuple((row[at] is not None, row[at]) for at in places)):
        if first != second:
            yield _named(names, first), _named(names, second)


def _merged(
    one: Iterable[SqlRow], other: Iterable[SqlRow], key: Callable[[SqlRow], Key]
) -> Iterator[tuple[SqlRow | None, SqlRow | None]]:
    """Two sorted sequences, row beside row of the same key."""
    ones, others = iter(one), iter(other)
    first, second = next(ones, None), next(others, None)
    while first is not None or second is not None:
        if second is None or (first is not None and key(first) < key(second)):
            yield first, None
            first = next(ones, None)
        elif first is None or key(second) < key(first):
            yield None, second
            second = next(others, None)
        else:
            yield first, second
            first, second = next(ones, None), next(others, None)


def _named(names: list[str], row: SqlRow | None) -> Row | None:
    return None if row is None else dict(zip(names, row, strict=True))


def _frozen(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


def _common_columns(tables: tuple[CellTable, CellTable]) -> list[str]:
    one, other = (table.columns() for table in tables)
    return [name for name in one if name in other] if one and other else one or other
