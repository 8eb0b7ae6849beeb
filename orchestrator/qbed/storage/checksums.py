# SPDX-License-Identifier: Apache-2.0
"""Checksums that detect damaged results: a record contains the checksums of its files and of itself.

The record of a cell is `cell.json`, that of the merged tables and claims is `checksums.json`. Readers check a file
against its record first. This module does not import Arrow, as `qbed.storage.identity`.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from io import FileIO
from pathlib import Path
from typing import TypeVar

from qbed.base.json_files import FILES, LARGEST, Row, sealed, unsealed, write_sealed
from qbed.storage.identity import StoreError

CELL_ROW, MERGED = "cell.json", "checksums.json"
CHUNK_BYTES = 1 << 20
REMEDY = "`qbed run` of the same campaign into this folder repairs it"

_Read = TypeVar("_Read")


class DamagedError(StoreError):
    """A file of a run folder is missing or differs from its record."""

    def __init__(self, file: Path, what: str) -> None:
        super().__init__(f"{file} {what}; {REMEDY}")
        self.file, self.what = file, what


def cell_record(folder: Path, row: Row) -> bytes:
    """The content of a cell's record: its row of `cells`, and the checksums of all files in its folder."""
    return sealed(row | {FILES: {name: _digest(f"{folder}/{name}") for name in _files_in(folder)}})


def _files_in(folder: Path) -> Iterator[str]:
    for path, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(files):
            if stat.S_ISREG(os.lstat(f"{path}/{name}").st_mode):
                yield os.path.relpath(f"{path}/{name}", folder)


def read_cell_record(folder: Path, number: int) -> Row:
    """Read and check a cell's record, but not its files."""
    value = _read_record(f"{folder}/{CELL_ROW}")
    if value.get("cell") != number:
        raise DamagedError(folder / CELL_ROW, f"is the record of another cell, {value.get('cell')}")
    return value


def cell_damages(folder: Path, number: int) -> Iterator[DamagedError]:
    """All damaged files of a cell that has ended."""
    try:
        files = read_cell_record(folder, number)[FILES]
    except DamagedError as error:
        yield error
    else:
        yield from damages(folder, files)


def check_cell(folder: Path) -> None:
    """Raise `DamagedError` for the first damaged file of a cell that has ended."""
    for error in cell_damages(folder, int(folder.name.partition(".")[0])):
        raise error


def damages(folder: Path, files: Mapping[str, str]) -> Iterator[DamagedError]:
    """The damaged ones of `files`, which maps paths to checksums."""
    for name, digest in files.items():
        try:
            if _digest(f"{folder}/{name}") != digest:
                yield DamagedError(folder / name, "is not what was written")
        except DamagedError as error:
            yield error


def record_checksums(run: Path, names: Iterable[str], *, more: bool = False) -> None:
    """Record the current checksums of these files of a run folder. `more`: keep the recorded ones."""
    known = _read_record(f"{run}/{MERGED}")[FILES] if more else {}
    write_sealed(run / MERGED, {FILES: known | {name: _digest(f"{run}/{name}") for name in names}})


def merged_damages(run: Path, names: Iterable[str]) -> Iterator[DamagedError]:
    """The damaged ones of these files of a run folder, as far as they are recorded or exist."""
    try:
        files = _read_record(f"{run}/{MERGED}")[FILES]
    except DamagedError as error:
        yield error
        return
    for name in names:
        if name in files:
            yield from damages(run, {name: files[name]})
        elif os.path.lexists(run / name):
            yield DamagedError(run / name, "is not one of the merged tables")


def check_merged(run: Path, names: Iterable[str]) -> None:
    """Raise `DamagedError` for the first of `merged_damages`."""
    for error in merged_damages(run, names):
        raise error


def _read_record(path: str) -> Row:
    value = _read_regular(path, lambda file: unsealed(file.read(LARGEST) or b""))
    if not isinstance(value.get(FILES), dict):
        raise DamagedError(Path(path), "lists no files")
    return value


def _digest(path: str) -> str:
    return _read_regular(path, _sha256)


def _sha256(file: FileIO) -> str:
    digest = hashlib.sha256()
    while chunk := file.read(CHUNK_BYTES):
        digest.update(chunk)
    return digest.hexdigest()


def _read_regular(path: str, read: Callable[[FileIO], _Read]) -> _Read:
    """Apply `read` to a regular file; anything else is refused, since opening a FIFO would block.

    The path is a `str`: constructing a `Path` takes as long as reading the file.
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
    except ValueError:  # invalid content, or a NUL in the path
        raise DamagedError(Path(path), "is not what was written") from None
