# SPDX-License-Identifier: Apache-2.0
"""The run folder (docs/run-folder.md): cells come in one by one, each complete or not at all; streaming merges them."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from qbed.json_files import write_json
from qbed.results import tables
from qbed.results.identity import IDENTITY, StoreError, read_identity

DISCARDED = ".discarded.json"
"""What `campaign.json` is called from when its run is thrown away until nothing of it is left."""
OWN = ("cells", "figures", "claims.json", "meta.json", "report.html")
"""What a run writes besides its tables."""
SPILL = ".sql-{}.tmp"
"""Where a query puts what does not fit into memory: a folder each, or two would write into the same files."""
CELL_ROW = "cell.json"
MERGE_ROWS = 1_000
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
            before = self.identity()
            different = " and ".join(what for key, what in SAME.items() if before.get(key) != identity.get(key))
            if different and not fresh:
                raise StoreError(
                    f"{self.path} holds another run: {different} differ;"
                    " choose another --out, or throw that run away with --fresh"
                )
            if different and not before.keys() >= {"version", "name", "plans", "matrix"}:
                raise StoreError(f"{known} is no campaign of a run; choose another --out")
            if different:
                known.replace(discarded)  # from here on, whatever happens, the old run is gone
        if discarded.exists():
            self._empty()
        elif not known.exists() and self.path.exists() and any(self.path.iterdir()):
            raise StoreError(f"{self.path} is not empty and is no run folder; choose another --out")
        self.cells.mkdir(parents=True, exist_ok=True)
        write_json(known, identity)
        return different or None

    def _empty(self) -> None:
        """Remove what a run writes; the mark that it is to go goes last."""
        names = (*OWN, *(f"{table}.parquet" for table in ("cells", *tables.SCHEMAS)))
        for place in (*(self.path / name for name in names), *self.path.glob(SPILL.format("*"))):
            if place.is_dir() and not place.is_symlink():
                shutil.rmtree(place)
            else:
                place.unlink(missing_ok=True)
        (self.path / DISCARDED).unlink()

    def identity(self) -> dict[str, Any]:
        """What the folder's results are of."""
        return read_identity(self.path)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other runners out; the lock goes with the process."""
        self.path.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        except BlockingIOError:
            raise StoreError(f"another `qbed run` is writing to {self.path}") from None
        finally:
            os.close(descriptor)

    # --- its cells ---

    def finished(self, cell: int) -> bool:
        """Whether the cell's results are there."""
        return (self._of(cell) / CELL_ROW).exists()

    def _of(self, cell: int, state: str = "") -> Path:
        return self.cells / f"{cell:06d}{state}"

    def begin(self, cell: int) -> Path:
        """An empty folder in which the cell's results are prepared, with a folder `work` for the guest."""
        folder = self._of(cell, ".tmp")
        for old in (folder, self._of(cell, ".failed")):
            shutil.rmtree(old, ignore_errors=True)
        (folder / "work").mkdir(parents=True)
        return folder

    def commit(self, cell: int, row: dict[str, Any], *, keep: bool) -> None:
        """The cell is finished: its tables are in the folder of `begin`. `keep`: with what the guest wrote."""
        folder = self._of(cell, ".tmp")
        if not keep:
            for capture in (folder / "work" / "out").glob("*.pcap"):
                capture.rename(folder / capture.name)
            shutil.rmtree(folder / "work")
        write_json(folder / CELL_ROW, row)
        folder.rename(self._of(cell))

    def fail(self, cell: int, row: dict[str, Any]) -> Path:
        """The cell is broken: keep what there is, and no table; returns the folder."""
        folder = self._of(cell, ".tmp")
        for part in folder.glob("*.arrow"):
            part.unlink()
        write_json(folder / CELL_ROW, row)
        return folder.rename(self._of(cell, ".failed"))

    def drop(self, cell: int) -> None:
        """Forget a cell that was interrupted."""
        shutil.rmtree(self._of(cell, ".tmp"), ignore_errors=True)

    # --- their merger ---

    def merge(self, cells: int, axes: Mapping[str, str]) -> None:
        """Merge the tables of so many cells, in the order of their numbers; a table that no cell has is left out.

        `axes`: the type of each axis, as `tables.cells_schema` takes them.
        """
        schemas = {"cells": tables.cells_schema(axes)} | tables.SCHEMAS
        files = {
            name: tables.TableFile(self.path / f".{name}.tmp", schema, wanted=name in ("cells", "flows", "queues"))
            for name, schema in schemas.items()
        }
        rows: list[dict[str, Any]] = []
        for number in range(cells):
            folder, names = self._ended(number)
            rows.append(json.loads((folder / CELL_ROW).read_bytes()))
            for name in names:
                if name.endswith(".arrow"):
                    for table in tables.read_cell(folder / name):
                        files[name.removesuffix(".arrow")].add(table)
            if len(rows) == MERGE_ROWS or number == cells - 1:
                files["cells"].add(pa.Table.from_pylist(rows, schema=schemas["cells"]))
                rows.clear()
        for name, file in files.items():
            file.close()
            written, place = self.path / f".{name}.tmp", self.table(name)
            if written.exists():
                written.replace(place)
            else:
                place.unlink(missing_ok=True)

    def table(self, name: str) -> Path:
        return self.path / f"{name}.parquet"

    def _ended(self, number: int) -> tuple[Path, list[str]]:
        """The folder of a cell that is finished or failed, and what is in it."""
        folder = self._of(number)
        try:
            return folder, [entry.name for entry in os.scandir(folder)]
        except FileNotFoundError:
            folder = self._of(number, ".failed")
            return folder, [entry.name for entry in os.scandir(folder)]
