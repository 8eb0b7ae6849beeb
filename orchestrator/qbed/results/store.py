# SPDX-License-Identifier: Apache-2.0
"""The store: finished cells, by the hash of all that they come from. What is in it need not be run again.

In virtual time a cell follows from its plan, which has the seed, from the toolchain that runs it, and from what makes
tables of its records. That hash is its key; a folder of that name has its tables, its captures, and a sealed record
with its row and the checksums of the others, as a run folder has them. Whatever is not what was written is no cell:
it is thrown away, and the cell is run.

A folder gets its name when it is whole, and runs have hard links to its files where they are on one file system; so
nothing here needs a lock, whoever runs, takes and throws away at the same time. Whoever is about to run a cell claims
it all the same, lest two do the same work.
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
from typing import Any

from qbed import __version__
from qbed.cache import cache_folder
from qbed.durable import move
from qbed.files import open_regular
from qbed.language.units import parse_size
from qbed.places import schemes_folder
from qbed.results import tables
from qbed.results.checksums import CELL_ROW, FILES, DamagedError, cell_damages, cell_record, read_cell_record
from qbed.results.identity import CELL_FORM, StoreError

USUAL_SIZE = "20 GB"
LEFT_AFTER_S = 24 * 3600
"""A folder that is being prepared for so long has nobody who prepares it."""
LOCK = "lock"
_MAKERS = ("network", "plan", "results", "schemes", "substrates", "telemetry")
"""The packages that make tables of what a guest wrote."""
_PYTHON = b"/run/qbed/tools/python/"
_LAUNCHES = b'"launches"'
_NEEDED_BY = {"python": _PYTHON, "finsy": _PYTHON, "frr_version": b"frr"}
"""What the plans have in them that need a part of the machine's own; other plans may have it, too."""


@dataclass(frozen=True)
class Stored:
    """A cell of the store. `used_s`: when it was taken last, in seconds since 1970."""

    key: str
    size_bytes: int
    used_s: float


@cache
def _makers() -> str:
    """A hash of what makes tables of records: two states of a checkout have the same version."""
    digest = hashlib.sha256(__version__.encode())
    package = Path(__file__).parents[1]
    files = [path for name in _MAKERS for path in sorted((package / name).rglob("*.py"))]
    for path in [*files, *sorted(schemes_folder().glob("[!.]*/scheme.yml"))]:
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def key(plan_sha256: str, provenance: Mapping[str, Any]) -> str:
    """What a cell is found by: its plan as the agent is given it, and what carries it out."""
    parts = [CELL_FORM, tables.VERSION, _makers(), dict(provenance), plan_sha256]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def cell_key(plan: bytes, provenance: Mapping[str, Any]) -> str:
    """The key of the cell with this plan. What of the toolchain is the machine's own counts where a plan has it run:
    a worker with another Python or FRR makes the same cell of any other.
    """
    used = {name: value for name, value in provenance.items() if _NEEDED_BY.get(name, b"") in plan}
    if _LAUNCHES in plan:
        used["programs"] = _executables(plan)
    return key(hashlib.sha256(plan).hexdigest(), used)


def _executables(plan: bytes) -> dict[str, str]:
    """The programs of the machine that a plan has as workload, by their hashes: what they load is not looked at."""
    found: dict[str, str] = {}
    try:
        launches = json.loads(plan).get("launches", ())
    except ValueError:  # a damaged plan, whose hash is none that anybody looks for
        return found
    for launch in launches:
        name = launch["argv"][0]
        if "/" in name and not name.startswith("/"):
            continue  # the lab's own: its text is in the plan
        place = shutil.which(name, path=launch["environment"]["PATH"])
        if place is not None:
            found[name] = _hash_of(place, Path(place).stat().st_mtime_ns)
    return found


@cache
def _hash_of(place: str, _changed_ns: int) -> str:
    with open_regular(place) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def usual_store() -> CellStore | None:
    """The user's, or what QBED_STORE says: a size (`50 GB`), or `off`. `StoreError` if it says something else."""
    said = os.environ.get("QBED_STORE") or USUAL_SIZE
    if said == "off":
        return None
    try:
        return CellStore(cache_folder() / "cells", parse_size(said))
    except ValueError as error:
        raise StoreError(f"QBED_STORE: expected `off` or a size such as `{USUAL_SIZE}`: {error}") from None


class CellStore:
    """Finished cells in a folder of at most so many bytes, but for what is being written."""

    def __init__(self, folder: Path, most_bytes: int) -> None:
        self.folder = folder
        self.most_bytes = most_bytes

    def place(self, key: str) -> Path:
        """Where a cell is, if it is here."""
        return self.folder / key[:2] / key

    def take(self, key: str, into: Path) -> dict[str, Any] | None:
        """The files of a cell into a folder; its row, or None if it is not here, or damaged."""
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
        """While this lasts, who claims the same cell waits; it ends with the process, whatever kills it.

        A byte of one file is locked, far beyond its end: there is nothing to tidy up.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError:  # a store that cannot be written has nothing to wait for
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
        """Whether a cell is here, and its record is what was written."""
        try:
            read_cell_record(self.place(key), 0)
        except DamagedError:
            return False
        return True

    def put(self, key: str, folder: Path, row: dict[str, Any]) -> None:
        """Keep the files of a cell's folder and what its row has of it alone; what cannot be kept is not."""
        place = self.place(key)
        beside = place.with_name(f".{key}.{os.getpid()}.tmp")
        try:
            beside.mkdir(parents=True)
            for path in folder.iterdir():
                if path.is_file() and path.name != CELL_ROW:
                    _link(path, beside / path.name)
            (beside / CELL_ROW).write_bytes(cell_record(beside, row | {"cell": 0}))
            move(beside, place)
        except OSError:  # somebody else was first, or the disk is full: the run is what matters
            shutil.rmtree(beside, ignore_errors=True)

    def drop(self, key: str) -> None:
        """Throw a cell away; whoever is taking it has it, or runs it."""
        with suppress(OSError):
            gone = self.place(key).rename(self.place(key).with_name(f".{key}.{os.getpid()}.tmp"))
            shutil.rmtree(gone, ignore_errors=True)

    def cells(self) -> Iterator[Stored]:
        """All cells, in no order."""
        for folder in self.folder.glob("??/*"):
            with suppress(OSError):  # thrown away in this moment
                if not folder.name.startswith("."):
                    size = sum(path.stat().st_size for path in folder.iterdir())
                    yield Stored(folder.name, size, (folder / CELL_ROW).stat().st_mtime)

    def shrink(self, most_bytes: int | None = None) -> list[Stored]:
        """Throw away the cells that were not used for longest, until no more than that is left; returns them."""
        for folder in self.folder.glob("??/.*.tmp"):
            with suppress(OSError):
                if time.time() - folder.stat().st_mtime > LEFT_AFTER_S:
                    shutil.rmtree(folder)
        cells = sorted(self.cells(), key=lambda cell: cell.used_s, reverse=True)
        room = self.most_bytes if most_bytes is None else most_bytes
        gone: list[Stored] = []
        for cell in cells:
            room -= cell.size_bytes
            if room < 0:
                self.drop(cell.key)
                gone.append(cell)
        return gone

    def verify(self) -> Iterator[DamagedError]:
        """All that is damaged; such cells are thrown away."""
        for cell in self.cells():
            damages = list(cell_damages(self.place(cell.key), 0))
            if damages:
                self.drop(cell.key)
            yield from damages


def _link(path: Path, place: Path) -> None:
    try:
        os.link(path, place)
    except OSError:  # another file system, or one without links
        shutil.copyfile(path, place)
