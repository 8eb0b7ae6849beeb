# SPDX-License-Identifier: Apache-2.0
"""The store: a cache of finished cells by the hash of their inputs. A cell in the store is not run again.

In virtual time a cell is determined by its plan, which contains the seed, by the parts of the toolchain and the
programs that it loads, and by the code that makes tables of its records. Their hash is the cell's key. The folder of
that name contains the tables, the captures, and a sealed record with the row of `cells` and the checksums of the other
files, as in a run folder. A damaged entry is removed, and its cell is run.

A folder is renamed to its key when it is complete, and runs have hard links to its files if they are on the same file
system. Concurrent readers and writers therefore need no lock. Claiming a cell before a run only avoids double work.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import struct
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from qbed import __version__
from qbed.base.cache import cache_folder
from qbed.base.files import move
from qbed.base.json_files import FILES, Row
from qbed.config.units import parse_size
from qbed.storage.checksums import CELL_ROW, DamagedError, cell_damages, cell_record, read_cell_record
from qbed.storage.identity import CELL_FORM, StoreError
from qbed.telemetry import tables

DEFAULT_SIZE = "20 GB"
ABANDONED_AFTER_S = 24 * 3600
"""Age after which an unfinished entry counts as abandoned."""
LOCK = "lock"
_CODE_PACKAGES = ("cells", "network", "p4", "plan", "schemes", "substrates", "telemetry")
"""The packages that determine a cell's tables."""


@dataclass(frozen=True)
class Stored:
    """A cell of the store. `used_s`: time of the last use, in seconds since the epoch."""

    key: str
    size_bytes: int
    used_s: float


@cache
def _code_hash() -> str:
    """A hash of the code that makes tables; the version does not distinguish two states of a checkout."""
    digest = hashlib.sha256(__version__.encode())
    package = Path(__file__).parents[1]
    files = [path for name in _CODE_PACKAGES for path in sorted((package / name).rglob("*.py"))]
    for path in files:
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def key(plan_sha256: str, inputs: Mapping[str, object]) -> str:
    """The key of a cell: a hash of its plan in the agent's form, of its inputs, and of the code that makes tables."""
    parts = [CELL_FORM, tables.VERSION, _code_hash(), dict(inputs), plan_sha256]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def cell_key(plan: bytes, inputs: Mapping[str, str]) -> str:
    """The key of the cell with this plan and these inputs (`qbed.substrates.Inputs`)."""
    return key(hashlib.sha256(plan).hexdigest(), inputs)


def default_store() -> CellStore | None:
    """The user's store. QBED_STORE sets its size (`50 GB`), or `off`. `StoreError` for another value."""
    setting = os.environ.get("QBED_STORE") or DEFAULT_SIZE
    if setting == "off":
        return None
    try:
        return CellStore(cache_folder() / "cells", parse_size(setting))
    except ValueError as error:
        raise StoreError(f"QBED_STORE: expected `off` or a size such as `{DEFAULT_SIZE}`: {error}") from None


class CellStore:
    """Finished cells in a folder of at most `max_bytes`, without unfinished entries."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self.folder = folder
        self.max_bytes = max_bytes

    def place(self, key: str) -> Path:
        """The folder of a cell, which may not exist."""
        return self.folder / key[:2] / key

    def take(self, key: str, into: Path) -> Row | None:
        """Link the files of a cell into a folder; returns its row, or None if it is missing or damaged."""
        folder = self.place(key)
        try:
            row = read_cell_record(folder, 0)
            for damage in cell_damages(folder, 0):
                raise damage
            for name in row[FILES]:
                _link(folder / name, into / name)
            os.utime(folder / CELL_ROW)
        except (DamagedError, OSError):
            for path in into.glob("*.*"):
                path.unlink()
            self.drop(key)
            return None
        del row[FILES], row["cell"]
        return row

    @contextmanager
    def claimed(self, key: str) -> Iterator[None]:
        """Hold an exclusive lock on a cell; the kernel releases it when the process ends.

        The lock is on a byte beyond the end of one file: no file per cell is left behind.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError:  # a store that cannot be written needs no lock
            yield
            return
        try:
            with suppress(OSError):  # a file system without locks
                wanted = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, int(key[:15], 16), 1, 0)
                fcntl.fcntl(descriptor, fcntl.F_OFD_SETLKW, wanted)
            yield
        finally:
            os.close(descriptor)

    def has(self, key: str) -> bool:
        """Whether the store contains a cell with an undamaged record."""
        try:
            read_cell_record(self.place(key), 0)
        except DamagedError:
            return False
        return True

    def put(self, key: str, folder: Path, row: Row) -> None:
        """Store the files of a cell's folder and its row without number and axes; errors are ignored."""
        place = self.place(key)
        beside = place.with_name(f".{key}.{os.getpid()}.tmp")
        try:
            beside.mkdir(parents=True)
            for path in folder.iterdir():
                if path.is_file() and path.name != CELL_ROW:
                    _link(path, beside / path.name)
            (beside / CELL_ROW).write_bytes(cell_record(beside, row | {"cell": 0}))
            move(beside, place)
        except OSError:  # another process was first, or the disk is full: the run does not depend on it
            shutil.rmtree(beside, ignore_errors=True)

    def drop(self, key: str) -> None:
        """Remove a cell; a concurrent reader either has its files or runs the cell."""
        with suppress(OSError):
            removed = self.place(key).rename(self.place(key).with_name(f".{key}.{os.getpid()}.tmp"))
            shutil.rmtree(removed, ignore_errors=True)

    def cells(self) -> Iterator[Stored]:
        """All cells, in no order."""
        for folder in self.folder.glob("??/*"):
            with suppress(OSError):  # removed concurrently
                if not folder.name.startswith("."):
                    size = sum(path.stat().st_size for path in folder.iterdir())
                    yield Stored(folder.name, size, (folder / CELL_ROW).stat().st_mtime)

    def shrink(self, max_bytes: int | None = None) -> list[Stored]:
        """Remove the least recently used cells until at most `max_bytes` are left; returns them."""
        for folder in self.folder.glob("??/.*.tmp"):
            with suppress(OSError):
                if time.time() - folder.stat().st_mtime > ABANDONED_AFTER_S:
                    shutil.rmtree(folder)
        cells = sorted(self.cells(), key=lambda cell: cell.used_s, reverse=True)
        left = self.max_bytes if max_bytes is None else max_bytes
        removed: list[Stored] = []
        for cell in cells:
            left -= cell.size_bytes
            if left < 0:
                self.drop(cell.key)
                removed.append(cell)
        return removed

    def verify(self) -> Iterator[DamagedError]:
        """Generate the damages of all cells, and remove damaged cells."""
        for cell in self.cells():
            damages = list(cell_damages(self.place(cell.key), 0))
            if damages:
                self.drop(cell.key)
            yield from damages


def _link(path: Path, place: Path) -> None:
    try:
        os.link(path, place)
    except OSError:  # another file system, or no support for hard links
        shutil.copyfile(path, place)
