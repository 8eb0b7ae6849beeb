# SPDX-License-Identifier: Apache-2.0
"""The run folder (docs/run-folder.md): cells come in one by one, each complete or not at all; streaming merges them."""

from __future__ import annotations

import fcntl
import math
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from qbed.durable import move
from qbed.json_files import beside, write_sealed
from qbed.results import tables
from qbed.results.cell_tables import SERIES, read_cell, samples_in
from qbed.results.checksums import (
    CELL_ROW,
    FILES,
    MERGED,
    UNKNOWN,
    DamagedError,
    cell_damages,
    cell_record,
    check_cell,
    check_merged,
    damages,
    has_checksums,
    merged_damages,
    read_cell_record,
    vouch,
)
from qbed.results.identity import IDENTITY, StoreError, any_identity, read_identity
from qbed.results.numbers import Numbers
from qbed.results.wall import only_late
from qbed.telemetry.records import RAW_FILES

DISCARDED = ".discarded.json"
"""What `campaign.json` is called from when its run is thrown away until nothing of it is left."""
CLAIMS = "claims.json"
OWN = ("cells", "figures", MERGED, CLAIMS, "meta.json", "report.html", "telemetry")
"""What a run writes besides its tables."""
MANY_SAMPLES = 10_000_000
"""Fewer are read whatever the plan says: to compile it costs more."""
MERGED_FILES = (*(f"{table}.parquet" for table in ("cells", *tables.SCHEMAS)), CLAIMS)
"""What `checksums.json` is the record of, as far as a run has it."""
SPILL = ".sql-{}.tmp"
"""Where a query puts what does not fit into memory: a folder each, or two would write into the same files."""
MERGE_ROWS = 1_000
MOST_MISSING = 1_000
_ENDED = re.compile(r"(\d{6,9})(?:\.failed)?")
SAME = {
    "version": "the table formats",
    "matrix": "the axes and their values",
    "plans": "the plans (the lab file or what compiles it)",
    "toolchain": "the kernel, modules and agent",
    "substrate": "the substrate or its dilation",
    "cells": "the form of the cells' tables",
}
"""What must be equal for a run to be continued; questions, views, claims and figures may change."""


class RunFolder:
    """A run folder. Writers of different cells do not disturb each other; one runner at a time holds `lock`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.cells = path / "cells"

    # --- the run ---

    def claim(self, identity: dict[str, Any], *, fresh: bool = False) -> str | None:
        """Make the folder this campaign's, or check that it is; `StoreError` names what is different.

        `fresh`: another run is thrown away, but nothing that is no run's; returns what was different, if anything was.
        """
        known, discarded, different = self.path / IDENTITY, self.path / DISCARDED, None
        if known.exists():
            before = any_identity(self.path)
            different = " and ".join(what for key, what in SAME.items() if before.get(key) != identity.get(key))
            if different and not fresh:
                raise StoreError(
                    f"{self.path} holds another run: {different} differ;"
                    " choose another --out, or throw that run away with --fresh"
                )
            if different and not before.keys() >= {"version", "name", "plans", "matrix"}:
                raise StoreError(f"{known} is no campaign of a run; choose another --out")
            if different:
                move(known, discarded)  # from here on, whatever happens, the old run is gone
        if discarded.exists():
            self._empty()
        elif not known.exists() and self.path.exists() and {*self.path.iterdir()} - {beside(known)}:
            raise StoreError(f"{self.path} is not empty and is no run folder; choose another --out")
        self.path.mkdir(parents=True, exist_ok=True)
        write_sealed(known, identity)  # first: what has ended in between is a run folder, and another run goes on
        self.cells.mkdir(exist_ok=True)
        return different or None

    def _empty(self) -> None:
        """Remove what a run writes; the mark that it is to go goes last."""
        names = (*OWN, *(f"{table}.parquet" for table in ("cells", *tables.SCHEMAS)))
        for place in (*(self.path / name for name in names), *self.path.glob(SPILL.format("*"))):
            _remove(place)
        (self.path / DISCARDED).unlink()

    def identity(self) -> dict[str, Any]:
        """What the folder's results are of."""
        return read_identity(self.path)

    @contextmanager
    def lock(self, waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Keep other runners out, and wait for one that is here (`waiting` is told). The lock goes with the process."""
        descriptor = self._locked(waiting)
        while not self._is(descriptor):  # whoever had the lock has thrown the folder away
            os.close(descriptor)
            descriptor = self._locked(waiting)
        try:
            yield
        finally:
            os.close(descriptor)

    def _locked(self, waiting: Callable[[], None]) -> int:
        self.path.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                waiting()
                fcntl.flock(descriptor, fcntl.LOCK_EX)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _is(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(os.fstat(descriptor), self.path.stat())
        except FileNotFoundError:
            return False

    # --- its cells ---

    def survey(self, cells: Iterable[int]) -> tuple[list[int], list[DamagedError]]:
        """Which of these cells are still to be run, and what is damaged of those that had been. One that was invalid
        because the machine was late is to be run.
        """
        to_run, found = [], []
        for number in cells:
            if self.folder(number).exists():
                damaged = list(self.damages(number))
                found += damaged
                if not damaged and only_late(read_cell_record(self.folder(number), number)) is None:
                    continue
            to_run.append(number)
        return to_run, found

    def damages(self, cell: int) -> Iterator[DamagedError]:
        """All that is damaged of a finished cell."""
        return cell_damages(self.folder(cell), cell)

    def folder(self, cell: int, state: str = "") -> Path:
        """Where a cell is: one that is finished, or what is `.failed` or `.tmp`."""
        return self.cells / f"{cell:06d}{state}"

    def begin(self, cell: int) -> Path:
        """An empty folder in which the cell's results are prepared, with a folder `work` for the guest."""
        folder = self.folder(cell, ".tmp")
        for old in (folder, self.folder(cell, ".failed"), self.folder(cell)):  # one that is there is no good
            _remove(old)
        (folder / "work").mkdir(parents=True)
        return folder

    def commit(self, cell: int, row: dict[str, Any], *, keep: bool) -> None:
        """The cell is finished: its tables are in the folder of `begin`. `keep`: with what the guest wrote."""
        folder = self.folder(cell, ".tmp")
        if not keep:
            for kept in RAW_FILES:
                for file in (folder / "work" / "out").glob(kept):
                    file.rename(folder / file.name)
            shutil.rmtree(folder / "work")
        (folder / CELL_ROW).write_bytes(cell_record(folder, row))
        move(folder, self.folder(cell))

    def fail(self, cell: int, row: dict[str, Any]) -> Path:
        """The cell is broken: keep what there is, and no table; returns the folder."""
        folder = self.folder(cell, ".tmp")
        for part in folder.glob("*.arrow"):
            part.unlink()
        (folder / CELL_ROW).write_bytes(cell_record(folder, row))
        move(folder, self.folder(cell, ".failed"))
        return self.folder(cell, ".failed")

    def drop(self, cell: int) -> None:
        """Forget a cell that was interrupted."""
        shutil.rmtree(self.folder(cell, ".tmp"), ignore_errors=True)

    def verify(self) -> Iterator[DamagedError]:
        """All that is damaged: of the cells by their numbers, then of what was merged from them."""
        identity = self.identity()
        if not has_checksums(self.path):
            raise StoreError(f"{self.path} {UNKNOWN}")
        ended = {int(found[1]): found[0] for path in self.cells.glob("*") if (found := _ENDED.fullmatch(path.name))}
        for number, name in sorted(ended.items()):
            yield from cell_damages(self.cells / name, number)
        if not (self.path / MERGED).exists() and not self.table("cells").exists():
            return  # it goes on, or was stopped
        if ended:  # somebody may hand on the tables alone
            missing = (number for number in self._cells(identity["matrix"], ended) if number not in ended)
            yield from (DamagedError(self.folder(number), "is missing") for number in islice(missing, MOST_MISSING))
        yield from merged_damages(self.path, MERGED_FILES)

    @staticmethod
    def _cells(matrix: Mapping[str, Any], ended: Iterable[int]) -> Iterator[int]:
        """All numbers that a finished run has; of one with as many seeds as it takes, up to the last of each group."""
        sizes = [len(axis["values"]) for axis in matrix["axes"]]
        if "until" not in matrix:
            yield from range(math.prod(sizes))
            return
        last = {number // sizes[-1]: number for number in sorted(ended)}
        for group in range(math.prod(sizes[:-1])):
            yield from range(group * sizes[-1], last.get(group, group * sizes[-1]) + 1)

    def record(self, cell: int) -> dict[str, Any] | None:
        """The row of a cell that has ended, checked; None if it has not."""
        for folder in (self.folder(cell), self.folder(cell, ".failed")):
            if folder.exists():
                return read_cell_record(folder, cell)
        return None

    def adopt(self, cell: int, other: RunFolder) -> bool:
        """Take a cell that has ended from another run of the same campaign, unless it is finished here already."""
        for state in ("", ".failed"):
            theirs = other.folder(cell, state)
            if not theirs.exists() or self.folder(cell).exists():
                continue
            check_cell(theirs)
            into = self.begin(cell)
            _remove(into)
            shutil.copytree(theirs, into, symlinks=True, copy_function=_link)
            move(into, self.folder(cell, state))
            return True
        return self.folder(cell).exists()

    # --- their merger ---

    def merge(
        self,
        cells: Iterable[int],
        axes: Mapping[str, str],
        numbers: Sequence[Numbers] = (),
        most_samples: Callable[[int], int] | None = None,
    ) -> None:
        """Merge the tables of these cells, in this order, that of their numbers; a table that none has is left out.

        `axes`: the type of each axis' column and of those of `numbers`, as `tables.cells_schema` takes them.
        `most_samples`: of a cell, by its plan; it is asked where a cell has many. One record can say that it stands for
        four thousand million, and a cell may be a stranger's.
        """
        schemas = {"cells": tables.cells_schema(axes)} | tables.SCHEMAS
        files = {
            name: tables.TableFile(self.path / f".{name}.tmp", schema, wanted=name in ("cells", "flows", "queues"))
            for name, schema in schemas.items()
        }
        left = iter(cells)
        while rows := [self._add_cell(number, files, most_samples) for number in islice(left, MERGE_ROWS)]:
            for row in rows:
                row.update((one.column, one.by_text.get(str(row.get(one.axis)))) for one in numbers)
            with _of_our_form(self.cells):
                files["cells"].add(pa.Table.from_pylist(rows, schema=schemas["cells"]))
        for name, file in files.items():
            file.close()
            written, place = self.path / f".{name}.tmp", self.table(name)
            if written.exists():
                move(written, place)
            else:
                place.unlink(missing_ok=True)
        vouch(self.path, [name for name in MERGED_FILES if (self.path / name).exists() and name != CLAIMS])

    def _add_cell(
        self, number: int, files: Mapping[str, tables.TableFile], most_samples: Callable[[int], int] | None
    ) -> dict[str, Any]:
        """Add a cell's tables; returns its row. `DamagedError` if it is not what was written."""
        folder = self.folder(number)
        if not folder.exists():
            folder = self.folder(number, ".failed")
        row = read_cell_record(folder, number)
        here = {f"{name}.arrow": name for name in tables.SCHEMAS}
        for file, name in here.items():
            if file in row[FILES]:
                for damage in damages(folder, {file: row[FILES][file]}):
                    raise damage
                with _of_our_form(folder / file):
                    if name == SERIES and most_samples is not None:
                        _check_samples(folder / file, number, most_samples)
                    for table in read_cell(folder / file, number):
                        files[name].add(table)
        return row

    def table(self, name: str) -> Path:
        return self.path / f"{name}.parquet"

    def tables(self) -> dict[str, Path]:
        """The merged tables, by name; `StoreError` if there are none, or one is damaged."""
        if not self.table("cells").exists() and not (self.path / MERGED).exists():
            raise StoreError(
                f"{self.path} has no merged tables: its run is not finished;"
                f" `qbed run --out {self.path}` goes on with it"
            )
        check_merged(self.path, [f"{name}.parquet" for name in ("cells", *tables.SCHEMAS)])
        return {name: self.table(name) for name in ("cells", *tables.SCHEMAS) if self.table(name).exists()}


def _check_samples(file: Path, number: int, most_samples: Callable[[int], int]) -> None:
    found = samples_in(file)
    if found > MANY_SAMPLES and found > (most := most_samples(number)):
        raise DamagedError(file, f"says it has {found} samples; the plan of cell {number} makes at most {most}")


@contextmanager
def _of_our_form(file: Path) -> Iterator[None]:
    """What was written is whole, but may be somebody else's."""
    try:
        yield
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise DamagedError(file, f"holds no rows of this version: {error}") from error


def _remove(place: Path) -> None:
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)


def _link(path: str, place: str) -> None:
    try:
        os.link(path, place, follow_symlinks=False)
    except OSError:  # another file system, or one without links
        shutil.copyfile(path, place, follow_symlinks=False)
