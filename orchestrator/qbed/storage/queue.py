# SPDX-License-Identifier: Apache-2.0
"""The queue: plans of cells that are to be run, in a folder beside the store's and with the same keys.

A plan describes a cell completely: any user with the same toolchain can run a queued one by `qbed cell KEY`. A complete
cell is put into the store, and its plan is removed from the queue. A failed or invalid cell is kept for inspection, as
a run folder of one cell, until it is run again. The queue is expendable: a run that needs a cell queues a lost plan
again.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from qbed.base.files import move, read_bytes
from qbed.base.json_files import LARGEST, Row
from qbed.storage.cell_store import CellStore, cell_key
from qbed.storage.checksums import DamagedError, cell_damages, read_cell_record
from qbed.storage.identity import StoreError
from qbed.storage.run_folder import RunFolder

PLAN = "plan.json"
EXPIRES_AFTER_S = 30 * 24 * 3600
"""Age after which a plan that was not run is removed."""
_KEY = re.compile(r"[0-9a-f]{64}")


class Queue:
    """The plans of queued cells by key."""

    def __init__(self, store: CellStore) -> None:
        self.store = store
        self.folder = store.folder.with_name("queue")

    def cell_folder(self, key: str) -> RunFolder:
        """The run folder of a queued cell, with the cell 0 only. `StoreError` if the key is malformed."""
        if not _KEY.fullmatch(key):
            raise StoreError(f"`{key[:100]}` is not the key of a cell: expected 64 hexadecimal digits")
        return RunFolder(self.folder / key[:2] / key)

    def add(self, key: str, plan: bytes) -> None:
        """Add a plan unless the queue contains one for the key."""
        folder = self.cell_folder(key).path
        if (folder / PLAN).exists():
            return
        beside = folder / f".{PLAN}.tmp"
        folder.mkdir(parents=True, exist_ok=True)
        beside.write_bytes(plan)
        move(beside, folder / PLAN)

    def plan(self, key: str, inputs: Callable[[bytes], Mapping[str, str]]) -> bytes:
        """Read a plan. `StoreError` if it is not queued, or has another key here.

        `inputs`: returns the inputs of a plan's cell on this machine; ValueError if the plan is damaged.
        """
        try:
            content = read_bytes(self.cell_folder(key).path / PLAN, LARGEST)
        except FileNotFoundError:
            raise StoreError(f"no plan is queued under {key}: `qbed queue LAB` queues those of a campaign") from None
        found = None
        with suppress(ValueError):  # a damaged plan has no key
            found = cell_key(content, inputs(content))
        if found != key:
            raise StoreError(
                f"the plan under {key} has another key here: it is damaged (delete it, and `qbed queue LAB` queues it"
                " again), or was queued with another toolchain or state of qbed"
            )
        return content

    def ended(self, key: str) -> tuple[Path, Row] | None:
        """The folder and row of an undamaged cell that failed or is invalid; None if there is none."""
        for name in ("000000", "000000.failed"):
            folder = self.cell_folder(key).cells / name
            with suppress(DamagedError):
                if not list(cell_damages(folder, 0)):
                    return folder, read_cell_record(folder, 0)
        return None

    def remove(self, key: str) -> None:
        """Remove a cell from the queue."""
        shutil.rmtree(self.cell_folder(key).path, ignore_errors=True)

    def keys(self) -> Iterator[str]:
        """The keys of all queued plans, in no order."""
        yield from (path.parent.name for path in self.folder.glob(f"??/*/{PLAN}"))

    def expire(self) -> None:
        """Remove the cells that were not run for `EXPIRES_AFTER_S`."""
        for folder in self.folder.glob("??/*"):
            with suppress(OSError):
                if time.time() - folder.stat().st_mtime > EXPIRES_AFTER_S:
                    shutil.rmtree(folder)
