# SPDX-License-Identifier: Apache-2.0
"""What is damaged is never taken for a result: a record has the checksums of the files it stands for, and its own.

A cell's record is its `cell.json`, that of the merged tables and the claims is `checksums.json`. Whoever reads a file
that has a record checks it first. Without the store, as `qbed.results.identity`.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from io import FileIO
from pathlib import Path
from typing import Any, TypeVar

from qbed.json_files import LARGEST, sealed, unsealed, write_sealed
from qbed.results.identity import StoreError, any_identity, with_checksums

CELL_ROW, MERGED = "cell.json", "checksums.json"
PIECE_BYTES = 1 << 20
FILES = "files"
"""A record's field: the SHA-256 of each file, by its path within the record's folder."""
REMEDY = "`qbed run` of the same campaign into this folder makes it anew"
UNKNOWN = "is of an earlier qbed, without checksums: nobody can say whether it is whole"
"""What is said of a run from before there were any."""

_Read = TypeVar("_Read")


class DamagedError(StoreError):
    """A file of a run folder is not what was written."""

    def __init__(self, file: Path, what: str) -> None:
        super().__init__(f"{file} {what}; {REMEDY}")
        self.file, self.what = file, what


def cell_record(folder: Path, row: dict[str, Any]) -> bytes:
    """What is to be a cell's record: its row of `cells`, and all files that are in its folder."""
    return sealed(row | {FILES: {name: _digest(f"{folder}/{name}") for name in _files_in(folder)}})


def _files_in(folder: Path) -> Iterator[str]:
    for path, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(files):
            if stat.S_ISREG(os.lstat(f"{path}/{name}").st_mode):
                yield os.path.relpath(f"{path}/{name}", folder)


def read_cell_record(folder: Path, number: int) -> dict[str, Any]:
    """A cell's record, checked; its files are not."""
    value = _read_record(f"{folder}/{CELL_ROW}")
    if value.get("cell") != number:
        raise DamagedError(folder / CELL_ROW, f"is that of another cell, {value.get('cell')}")
    return value


def cell_damages(folder: Path, number: int) -> Iterator[DamagedError]:
    """All that is damaged of a cell that has ended."""
    try:
        files = read_cell_record(folder, number)[FILES]
    except DamagedError as error:
        yield error
    else:
        yield from damages(folder, files)


def check_cell(folder: Path) -> None:
    """`DamagedError` for the first of what is damaged of a cell that has ended."""
    for error in cell_damages(folder, int(folder.name.partition(".")[0])):
        raise error


def damages(folder: Path, files: Mapping[str, str]) -> Iterator[DamagedError]:
    """Which of these files, with their checksums, are damaged."""
    for name, digest in files.items():
        try:
            if _digest(f"{folder}/{name}") != digest:
                yield DamagedError(folder / name, "is not what was written")
        except DamagedError as error:
            yield error


def vouch(run: Path, names: Iterable[str], *, more: bool = False) -> None:
    """Record these files of a run folder as they are now; `more`: and what is recorded already."""
    known = _read_record(f"{run}/{MERGED}")[FILES] if more else {}
    write_sealed(run / MERGED, {FILES: known | {name: _digest(f"{run}/{name}") for name in names}})


def merged_damages(run: Path, names: Iterable[str]) -> Iterator[DamagedError]:
    """Which of these files of a run folder, of those that are recorded or there, are damaged.

    A run from before there were checksums has none to check.
    """
    try:
        files = _read_record(f"{run}/{MERGED}")[FILES]
    except DamagedError as error:
        if has_checksums(run):
            yield error
        return
    for name in names:
        if name in files:
            yield from damages(run, {name: files[name]})
        elif os.path.lexists(run / name):
            yield DamagedError(run / name, "is not of the merged tables")


def check_merged(run: Path, names: Iterable[str]) -> None:
    """`DamagedError` for the first of `merged_damages`."""
    for error in merged_damages(run, names):
        raise error


def has_checksums(run: Path) -> bool:
    """Whether a run is of a time when there were checksums."""
    return (run / MERGED).exists() or with_checksums(any_identity(run))


def _read_record(path: str) -> dict[str, Any]:
    value = _opened(path, lambda file: unsealed(file.read(LARGEST) or b""))
    if not isinstance(value.get(FILES), dict):
        raise DamagedError(Path(path), "names no files")
    return value


def _digest(path: str) -> str:
    return _opened(path, _sha256)


def _sha256(file: FileIO) -> str:
    digest = hashlib.sha256()
    while piece := file.read(PIECE_BYTES):
        digest.update(piece)
    return digest.hexdigest()


def _opened(path: str, read: Callable[[FileIO], _Read]) -> _Read:
    """What is read of a file, and of nothing but a file: to open a FIFO would not end.

    A text, for thousands of cells: a `Path` takes as long as the file.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        with FileIO(descriptor) as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise DamagedError(Path(path), "is no file")
            return read(file)
    except FileNotFoundError:
        raise DamagedError(Path(path), "is missing") from None
    except OSError as error:
        no_file = error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR)
        raise DamagedError(Path(path), "is no file" if no_file else f"cannot be read: {error.strerror}") from None
    except ValueError:  # what was read, or a NUL in the path
        raise DamagedError(Path(path), "is not what was written") from None
