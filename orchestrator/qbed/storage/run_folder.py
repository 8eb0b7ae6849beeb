# SPDX-License-Identifier: Apache-2.0
"""The run folder (docs/run-folder.md): cells are committed atomically, one by one, and merged as streams."""

from __future__ import annotations

import fcntl
import math
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path

import pyarrow as pa

from qbed.base.files import move
from qbed.base.json_files import FILES, Row, temporary_path, write_sealed
from qbed.cells.arrow import SERIES, count_samples, read_cell
from qbed.cells.wall_clock import only_late
from qbed.storage.axis_values import QuantityColumn
from qbed.storage.checksums import (
    CELL_ROW,
    MERGED,
    DamagedError,
    cell_damages,
    cell_record,
    check_cell,
    check_merged,
    damages,
    merged_damages,
    read_cell_record,
    record_checksums,
)
from qbed.storage.identity import IDENTITY, StoreError, read_any_identity, read_identity
from qbed.telemetry import tables
from qbed.telemetry.records import RAW_FILES

DISCARDED = ".discarded.json"
"""The name of `campaign.json` while its run is being discarded."""
CLAIMS = "claims.json"
INPUTS = "inputs"
"""The field of a cell's record with its inputs besides its plan (`qbed.substrates.Inputs`): values by name."""
TOOLCHAIN = "toolchain"
PARAMETERS = "parameters.json"
RUN_FILES = ("cells", "figures", "images.json", MERGED, CLAIMS, PARAMETERS, "meta.json", "report.html", "telemetry")
"""Files and folders that a run writes besides its tables."""
MANY_SAMPLES = 10_000_000
"""Fewer samples are read without a check against the plan, because compiling it costs more."""
MERGED_FILES = (*(f"{table}.parquet" for table in ("cells", *tables.SCHEMAS)), CLAIMS)
"""The files that `checksums.json` records, as far as they exist."""
SPILL = ".sql-{}.tmp"
"""The folder into which a query spills; one each, because two queries would write the same files."""
MERGE_ROWS = 1_000
MAX_MISSING = 1_000
_ENDED = re.compile(r"(\d{6,9})(?:\.failed)?")
MUST_MATCH = {
    "version": "the table formats",
    "matrix": "the axes and their values",
    "plans": "the plans (the lab file or what compiles it)",
    TOOLCHAIN: "the kernel, modules and agent",
    "substrate": "the substrate or its dilation",
    "cells": "the format of the cells' tables",
}
"""Fields that must be equal for a run to be continued; questions, views, claims and figures may change.

A run also continues with another toolchain, if finished cells have the same inputs with it.
"""
Current = Callable[[str], str]
"""The current value of an input by its name."""


class RunFolder:
    """A run folder. Different cells can be written concurrently; one runner at a time holds `lock`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.cells = path / "cells"

    # --- the run ---

    def claim(self, identity: Row, *, fresh: bool = False, current: Current | None = None) -> str | None:
        """Assign the folder to a campaign, or check that it is assigned to it; `StoreError` names what is different.

        `fresh`: discard another run, but no folder that is not a run folder; returns what was different. `current`: a
        run on another toolchain is no other run if one of its finished cells has these inputs.
        """
        known, discarded, different = self.path / IDENTITY, self.path / DISCARDED, None
        if known.exists():
            before = read_any_identity(self.path)
            fields = differing_fields(before, identity)
            if fields == [TOOLCHAIN] and current is not None and self._is_compatible(current):
                fields = []
            different = " and ".join(MUST_MATCH[field] for field in fields)
            if different and not fresh:
                raise StoreError(
                    f"{self.path} holds another run: {different} differ;"
                    " choose another --out, or discard that run with --fresh"
                )
            if different and not before.keys() >= {"version", "name", "plans", "matrix"}:
                raise StoreError(f"{known} is not the campaign of a run; choose another --out")
            if different:
                move(known, discarded)  # commits the removal of the old run
        if discarded.exists():
            self._empty()
        elif not known.exists() and self.path.exists() and {*self.path.iterdir()} - {temporary_path(known)}:
            raise StoreError(f"{self.path} is not empty and is no run folder; choose another --out")
        self.path.mkdir(parents=True, exist_ok=True)
        write_sealed(known, identity)  # first: after an interruption the folder is a run folder that can be continued
        self.cells.mkdir(exist_ok=True)
        return different or None

    def _empty(self) -> None:
        """Remove all that a run writes, and last the marker of the removal."""
        names = (*RUN_FILES, *(f"{table}.parquet" for table in ("cells", *tables.SCHEMAS)))
        for entry in (*(self.path / name for name in names), *self.path.glob(SPILL.format("*"))):
            _remove(entry)
        (self.path / DISCARDED).unlink()

    def identity(self) -> Row:
        """The folder's campaign.json, checked."""
        return read_identity(self.path)

    @contextmanager
    def lock(self, waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Lock the folder, and call `waiting` before waiting for another runner. The lock ends with the process."""
        descriptor = self._acquire(waiting)
        while not self._is_current(descriptor):  # the previous owner of the lock removed the folder
            os.close(descriptor)
            descriptor = self._acquire(waiting)
        try:
            yield
        finally:
            os.close(descriptor)

    def _acquire(self, waiting: Callable[[], None]) -> int:
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

    def _is_current(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(os.fstat(descriptor), self.path.stat())
        except FileNotFoundError:
            return False

    # --- its cells ---

    def obsolete(self, current: Current) -> dict[int, list[str]]:
        """The finished cells that have other inputs than `current`, by number: the names of these inputs.

        A cell without a valid record of its inputs has the name `inputs`. Cells with a damaged record are left out.
        """
        return {number: names for number, names in self._changed_inputs(current) if names}

    def remove_obsolete(self, current: Current) -> dict[int, list[str]]:
        """Remove the finished cells that have other inputs than `current`; returns them as `obsolete` does.

        Cells without a record of inputs stay: an older qbed ran them on the folder's toolchain.
        """
        found = {number: names for number, names in self.obsolete(current).items() if names != [INPUTS]}
        for number in found:
            _remove(self.folder(number))
        return found

    def _is_compatible(self, current: Current) -> bool:
        """Whether a run on another toolchain continues: a finished cell stays, or no cell has finished."""
        if not self._finished():
            return True
        changed = [names for _, names in self._changed_inputs(current)]
        return [] in changed and [INPUTS] not in changed

    def _changed_inputs(self, current: Current) -> Iterator[tuple[int, list[str]]]:
        """The finished cells with an undamaged record, and the names of their inputs that have changed."""
        for number in self._finished():
            with suppress(DamagedError):
                inputs = read_cell_record(self.folder(number), number).get(INPUTS)
                if isinstance(inputs, dict) and all(isinstance(value, str) for value in inputs.values()):
                    yield number, [name for name, value in inputs.items() if current(name) != value]
                else:
                    yield number, [INPUTS]

    def _finished(self) -> list[int]:
        """The numbers of the finished cells."""
        return [number for number, folder in self._ended() if folder == self.folder(number)]

    def _ended(self) -> Iterator[tuple[int, Path]]:
        """The numbers and folders of the cells that have ended."""
        for path in sorted(self.cells.glob("*")):
            if found := _ENDED.fullmatch(path.name):
                yield int(found[1]), path

    def survey(self, cells: Iterable[int]) -> tuple[list[int], list[DamagedError]]:
        """The cells that are still to be run, and the damaged files of those that were finished.

        A cell that is invalid only because the machine was late is to be run again.
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
        """All damaged files of a finished cell."""
        return cell_damages(self.folder(cell), cell)

    def folder(self, cell: int, state: str = "") -> Path:
        """The folder of a cell. `state`: empty if it is finished, `.failed` or `.tmp`."""
        return self.cells / f"{cell:06d}{state}"

    def begin(self, cell: int) -> Path:
        """Create an empty folder for the cell's results, with a folder `work` for the guest."""
        folder = self.folder(cell, ".tmp")
        for old in (
            folder,
            self.folder(cell, ".failed"),
            self.folder(cell),
        ):  # existing results are damaged or obsolete
            _remove(old)
        (folder / "work").mkdir(parents=True)
        return folder

    def commit(self, cell: int, row: Row, *, keep: bool) -> None:
        """Commit a finished cell with its tables in the folder of `begin`. `keep`: keep the guest's files."""
        folder = self.folder(cell, ".tmp")
        if not keep:
            for pattern in RAW_FILES:
                for file in (folder / "work" / "out").glob(pattern):
                    file.rename(folder / file.name)
            shutil.rmtree(folder / "work")
        (folder / CELL_ROW).write_bytes(cell_record(folder, row))
        move(folder, self.folder(cell))

    def fail(self, cell: int, row: Row) -> Path:
        """Commit a failed cell: keep its files without the tables; returns the folder."""
        folder = self.folder(cell, ".tmp")
        for part in folder.glob("*.arrow"):
            part.unlink()
        (folder / CELL_ROW).write_bytes(cell_record(folder, row))
        move(folder, self.folder(cell, ".failed"))
        return self.folder(cell, ".failed")

    def drop(self, cell: int) -> None:
        """Remove an interrupted cell."""
        shutil.rmtree(self.folder(cell, ".tmp"), ignore_errors=True)

    def verify(self) -> Iterator[DamagedError]:
        """All damaged files: those of the cells by number, then the merged ones."""
        identity = self.identity()
        ended = dict(self._ended())
        for number, folder in sorted(ended.items()):
            yield from cell_damages(folder, number)
        if not (self.path / MERGED).exists() and not self.table("cells").exists():
            return  # the run is unfinished
        if ended:  # without cells: a copy of the tables only
            missing = (number for number in self._cells(identity["matrix"], ended) if number not in ended)
            yield from (DamagedError(self.folder(number), "is missing") for number in islice(missing, MAX_MISSING))
        yield from merged_damages(self.path, MERGED_FILES)

    @staticmethod
    def _cells(matrix: Row, ended: Iterable[int]) -> Iterator[int]:
        """All cell numbers of a finished run; with `until`, up to the last finished one of each group."""
        sizes = [len(axis["values"]) for axis in matrix["axes"]]
        if "until" not in matrix:
            yield from range(math.prod(sizes))
            return
        last = {number // sizes[-1]: number for number in sorted(ended)}
        for group in range(math.prod(sizes[:-1])):
            yield from range(group * sizes[-1], last.get(group, group * sizes[-1]) + 1)

    def record(self, cell: int) -> Row | None:
        """The checked row of a cell that has ended; None if it has not."""
        for folder in (self.folder(cell), self.folder(cell, ".failed")):
            if folder.exists():
                return read_cell_record(folder, cell)
        return None

    def adopt(self, cell: int, other: RunFolder) -> bool:
        """Copy an ended cell from another run of the same campaign, unless it is finished already.

        Returns whether the cell is in this run.
        """
        for state in ("", ".failed"):
            source = other.folder(cell, state)
            if not source.exists() or self.folder(cell).exists():
                continue
            check_cell(source)
            into = self.begin(cell)
            _remove(into)
            shutil.copytree(source, into, symlinks=True, copy_function=_link)
            move(into, self.folder(cell, state))
            return True
        return self.folder(cell).exists()

    # --- their merger ---

    def merge(
        self,
        cells: Iterable[int],
        axes: Mapping[str, str],
        numbers: Sequence[QuantityColumn] = (),
        max_samples: Callable[[int], int] | None = None,
    ) -> None:
        """Merge the tables of these cells, in ascending order of their numbers; tables that no cell has are left out.

        `axes`: the types of the axes' columns and of those of `numbers`, as `tables.cells_schema` takes them.
        `max_samples`: the maximum number of samples of a cell, from its plan; called for cells with many. One record
        can stand for 4 * 10^9 samples, and a cell's files may be untrusted.
        """
        schemas = {"cells": tables.cells_schema(axes)} | tables.SCHEMAS
        files = {
            name: tables.TableFile(self.path / f".{name}.tmp", schema, wanted=name in ("cells", "flows", "queues"))
            for name, schema in schemas.items()
        }
        left = iter(cells)
        while rows := [self._add_cell(number, files, max_samples) for number in islice(left, MERGE_ROWS)]:
            for row in rows:
                row.update((column.column, column.by_text.get(str(row.get(column.axis)))) for column in numbers)
            with _reading(self.cells):
                files["cells"].add(pa.Table.from_pylist(rows, schema=schemas["cells"]))
        for name, file in files.items():
            file.close()
            written, place = self.path / f".{name}.tmp", self.table(name)
            if written.exists():
                move(written, place)
            else:
                place.unlink(missing_ok=True)
        record_checksums(self.path, [name for name in MERGED_FILES if (self.path / name).exists() and name != CLAIMS])

    def _add_cell(
        self, number: int, files: Mapping[str, tables.TableFile], max_samples: Callable[[int], int] | None
    ) -> Row:
        """Add a cell's tables; returns its row. `DamagedError` if a file differs from its record."""
        folder = self.folder(number)
        if not folder.exists():
            folder = self.folder(number, ".failed")
        row = read_cell_record(folder, number)
        table_files = {f"{name}.arrow": name for name in tables.SCHEMAS}
        for file, name in table_files.items():
            if file in row[FILES]:
                for damage in damages(folder, {file: row[FILES][file]}):
                    raise damage
                with _reading(folder / file):
                    if name == SERIES and max_samples is not None:
                        _check_samples(folder / file, number, max_samples)
                    for table in read_cell(folder / file, number):
                        files[name].add(table)
        return row

    def table(self, name: str) -> Path:
        return self.path / f"{name}.parquet"

    def tables(self) -> dict[str, Path]:
        """The merged tables by name; `StoreError` if there are none, or one is damaged."""
        if not self.table("cells").exists() and not (self.path / MERGED).exists():
            raise StoreError(
                f"{self.path} has no merged tables: its run is not finished; `qbed run --out {self.path}` continues it"
            )
        check_merged(self.path, [f"{name}.parquet" for name in ("cells", *tables.SCHEMAS)])
        return {name: self.table(name) for name in ("cells", *tables.SCHEMAS) if self.table(name).exists()}


def differing_fields(before: Row, now: Row) -> list[str]:
    """The fields of `MUST_MATCH` that two descriptions of runs do not share."""
    return [field for field in MUST_MATCH if before.get(field) != now.get(field)]


def _check_samples(file: Path, number: int, max_samples: Callable[[int], int]) -> None:
    found = count_samples(file)
    if found > MANY_SAMPLES and found > (limit := max_samples(number)):
        raise DamagedError(file, f"claims {found} samples; the plan of cell {number} allows at most {limit}")


@contextmanager
def _reading(file: Path) -> Iterator[None]:
    """Turn errors from undamaged tables with another schema into `DamagedError`: the files may be untrusted."""
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
    except OSError:  # another file system, or no support for hard links
        shutil.copyfile(path, place, follow_symlinks=False)
