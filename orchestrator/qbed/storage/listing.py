# SPDX-License-Identifier: Apache-2.0
"""List the cells of a run folder, one row each: from the merged table, or cell by cell while a run is active.

This module does not import Arrow: loading it takes as long as listing 10,000 cells.
"""

from __future__ import annotations

import fcntl
import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from qbed.base.json_files import Row
from qbed.storage.checksums import DamagedError, check_merged, read_cell_record
from qbed.storage.identity import StoreError, read_identity

COUNTS = ("flows_complete", "flows", "flows_unlimited", "dropped_packets", "marked_packets", "retransmits", "timeouts")
COLUMNS = ("cell", "status", "error", "bottleneck", "goodput_bps", *COUNTS, "contradictions", "warnings")
_SHOWN = {"goodput (Mbit/s)": 16, "flows": 17, "drops": 10, "marks": 10, "retransmits": 11, "timeouts": 8}
_STATUS = 8
_NUMBERS, _NUMBER = ("cell", "goodput_bps", *COUNTS), int | float | None


class Listing:
    """The cells of a run folder. `QbedError` if the folder is none."""

    def __init__(self, run: Path) -> None:
        self.run = run
        matrix = read_identity(run)["matrix"]
        axes = {axis["name"]: axis["values"] for axis in matrix["axes"]}
        self.axes: dict[str, list[object]] = {name: values for name, values in axes.items() if len(values) > 1}
        self.counted: Counter[str] = Counter()
        """Numbers of the generated cells by status; final when `rows` is exhausted."""
        self._open = "until" in matrix  # the number of seeds is unknown
        self._cells = 1
        for values in axes.values():
            self._cells *= len(values)

    def rows(self, offset: int = 0) -> Iterator[Row]:
        """Generate the cells that have ended in ascending order, with the columns of the list.

        `offset`: the number of cells to leave out first; their records are not read.
        """
        running = self._is_running()
        merged = (self.run / "cells.parquet").exists() and not running
        for row in self._from_table(offset) if merged else self._from_folders(running, offset):
            if not isinstance(row["status"], str) or not all(isinstance(row[name], _NUMBER) for name in _NUMBERS):
                raise StoreError(f"{self.run} is damaged: columns of its cells have other types than a run writes")
            self.counted[row["status"]] += 1
            yield row

    def summary(self) -> str:
        """The number of cells in words, with the number of each status."""
        known = self.counted.total() if self._open else self._cells
        counted = self.counted | Counter({"to come": known - self.counted.total()})
        return f"{known} cells: " + ", ".join(f"{count} {name}" for name, count in counted.items() if count)

    def _is_running(self) -> bool:
        """Whether a `qbed run` has the folder's lock."""
        descriptor = os.open(self.run, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def _from_table(self, offset: int) -> Iterator[Row]:
        import duckdb

        check_merged(self.run, ["cells.parquet"])
        names = dict.fromkeys(("cell", *self.axes, *COLUMNS))
        columns = ", ".join(f'"{name}"' for name in names)
        table = str(self.run / "cells.parquet")
        try:
            with duckdb.connect() as connection:
                present = connection.execute("DESCRIBE SELECT * FROM read_parquet(?)", [table]).fetchall()
                if "flows_unlimited" not in {row[0] for row in present}:  # a run of an earlier qbed
                    columns = columns.replace('"flows_unlimited"', "0 AS flows_unlimited")
                ordered = f"SELECT {columns} FROM read_parquet(?) ORDER BY cell OFFSET ?"
                found = connection.execute(ordered, [table, offset])
                while batch := found.fetchmany(1000):
                    yield from (dict(zip(names, row, strict=True)) for row in batch)
        except duckdb.Error as error:
            text = " ".join(str(error).split())
            raise StoreError(f"{table} is damaged: {text}; `qbed run` makes it again") from None

    def _from_folders(self, running: bool, offset: int) -> Iterator[Row]:
        cells = self.run / "cells"
        columns = tuple(dict.fromkeys(("cell", *self.axes, *COLUMNS)))
        with os.scandir(cells) as entries:
            names = sorted(entry.name for entry in entries)
        left = offset
        for name in names:
            if name.endswith(".tmp"):
                self.counted["running"] += running  # without a runner: left by one that was killed
            elif name[:6].isdigit() and left:
                left -= 1
            elif name[:6].isdigit():
                try:
                    row = read_cell_record(cells / name, int(name[:6]))
                except DamagedError as error:
                    if not error.file.exists():  # a failed cell is being run again
                        continue
                    row = {**dict.fromkeys(self.axes, "-"), "cell": int(name[:6]), "status": "damaged"}
                    row["error"] = f"{error.file} {error.what}"
                yield {column: row.get(column) for column in columns}


def lines(listing: Listing) -> Iterator[str]:
    """Format the list line by line. The column of unknown width is the last, so that no line waits for another."""
    widths = {name: max(len(str(item)) for item in (name, *values)) for name, values in listing.axes.items()}
    head = [f"{'cell':>6}", *(name.ljust(width) for name, width in widths.items()), "status".ljust(_STATUS)]
    yield "  ".join([*head, *(name.rjust(width) for name, width in _SHOWN.items()), "bottleneck"])
    for row in listing.rows():
        start = [f"{row['cell']:>6}", *(str(row[name]).ljust(width) for name, width in widths.items())]
        start.append(row["status"].ljust(_STATUS))
        yield "  ".join([*start, *_numbers(row), _last(row)]).rstrip()


def _numbers(row: Row) -> Iterator[str]:
    goodput = row["goodput_bps"]
    values = (
        "-" if goodput is None else f"{goodput / 1e6:.1f}",
        "-" if row["flows"] is None else flows_text(row["flows_complete"], row["flows"], row["flows_unlimited"]),
        *("-" if row[name] is None else str(row[name]) for name in COUNTS[3:]),
    )
    return (value.rjust(width) for value, width in zip(values, _SHOWN.values(), strict=True))


def flows_text(complete: int, flows: int, unlimited: int | None, number: Callable[[int], str] = str) -> str:
    """Complete flows of those with a size, and flows without a size, which run to the end: `3 / 5, 2 to end`."""
    if not unlimited:
        return f"{number(complete)} / {number(flows)}"
    limited = f"{number(complete)} / {number(flows - unlimited)}, " if flows > unlimited else ""
    return f"{limited}{number(unlimited)} to end"


def _last(row: Row) -> str:
    """The bottleneck of a complete cell, or the first line of another cell's first problem."""
    if row["status"] == "complete":
        return str(row["bottleneck"] or "-")
    contradictions = row["contradictions"] if isinstance(row["contradictions"], list) else None
    return str((contradictions or [row["error"] or "-"])[0]).partition("\n")[0]
