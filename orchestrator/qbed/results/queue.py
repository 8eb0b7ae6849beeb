# SPDX-License-Identifier: Apache-2.0
"""The queue: plans of cells that somebody is to run, beside the store and under the same keys.

Whoever files a plan may ask anybody with the same toolchain to run `qbed cell KEY`: a plan says all of a cell. What is
complete goes into the store, and its plan leaves the queue; a cell that failed or is invalid stays here to be looked
at, as a run folder of one cell, until it is tried again. Nothing depends on what is here: a plan that is lost is filed
again by the run that wants its cell.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from qbed.durable import move
from qbed.files import read_bytes
from qbed.json_files import LARGEST
from qbed.results.checksums import DamagedError, cell_damages, read_cell_record
from qbed.results.folder import RunFolder
from qbed.results.identity import StoreError
from qbed.results.store import CellStore, cell_key

PLAN = "plan.json"
FORGOTTEN_AFTER_S = 30 * 24 * 3600
"""A plan that nobody has run for so long, nobody will."""
_KEY = re.compile(r"[0-9a-f]{64}")


class Queue:
    """Plans by their cells' keys, in a folder beside the store's."""

    def __init__(self, store: CellStore) -> None:
        self.store = store
        self.folder = store.folder.with_name("queue")

    def of(self, mark: str) -> RunFolder:
        """Where a cell is run: a run folder whose only cell is 0. `StoreError` if that is no key."""
        if not _KEY.fullmatch(mark):
            raise StoreError(f"`{mark[:100]}` is no key of a cell: expected 64 hexadecimal digits")
        return RunFolder(self.folder / mark[:2] / mark)

    def file(self, mark: str, plan: bytes) -> None:
        """Have a plan here; one that lies here already stays."""
        folder = self.of(mark).path
        if (folder / PLAN).exists():
            return
        beside = folder / f".{PLAN}.tmp"
        folder.mkdir(parents=True, exist_ok=True)
        beside.write_bytes(plan)
        move(beside, folder / PLAN)

    def plan(self, mark: str, provenance: Mapping[str, Any]) -> bytes:
        """A plan. `StoreError`: nobody filed it, or what would carry it out here makes another cell of it."""
        try:
            content = read_bytes(self.of(mark).path / PLAN, LARGEST)
        except FileNotFoundError:
            raise StoreError(f"no plan is filed under {mark}: `qbed queue LAB` files those of a campaign") from None
        if cell_key(content, provenance) != mark:
            raise StoreError(
                f"the plan under {mark} is another cell here: it is damaged (`qbed queue LAB` files it anew where it is"
                " deleted), or was filed with another toolchain or state of qbed"
            )
        return content

    def ended(self, mark: str) -> tuple[Path, dict[str, Any]] | None:
        """The folder and row of a cell that ended here without being complete; None: there is none that is whole."""
        for name in ("000000", "000000.failed"):
            folder = self.of(mark).cells / name
            with suppress(DamagedError):
                if not list(cell_damages(folder, 0)):
                    return folder, read_cell_record(folder, 0)
        return None

    def leave(self, mark: str) -> None:
        """Nobody wants this cell any more."""
        shutil.rmtree(self.of(mark).path, ignore_errors=True)

    def keys(self) -> Iterator[str]:
        """All whose plans are here, in no order."""
        yield from (path.parent.name for path in self.folder.glob(f"??/*/{PLAN}"))

    def tidy(self) -> None:
        """Forget what nobody has run for long."""
        for folder in self.folder.glob("??/*"):
            with suppress(OSError):
                if time.time() - folder.stat().st_mtime > FORGOTTEN_AFTER_S:
                    shutil.rmtree(folder)
