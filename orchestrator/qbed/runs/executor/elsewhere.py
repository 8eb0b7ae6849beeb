# SPDX-License-Identifier: Apache-2.0
"""Cells that others run: to them a cell is its key and plan. What comes back goes by the store into the run folder.

An engine (`dask`, `slurm`) starts `qbed cell KEY` somewhere, however often it must: a worker that dies costs what it
was doing. What it has finished is in a store, and asked for again it costs nothing.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

from qbed.errors import QbedError
from qbed.results.checksums import FILES
from qbed.results.folder import RunFolder
from qbed.results.queue import Queue
from qbed.results.store import cell_key
from qbed.runs.executor import Book, interruptible
from qbed.runs.filed import needed_store
from qbed.runs.worker import Outcome, Task, Worker
from qbed.substrates import Limits, substrate

LOOK_EVERY_S = 1.0
_Cells = dict[str, list[int]]
"""The numbers of cells by their keys: several may be one."""


class ElsewhereError(QbedError):
    """These cells cannot be run by others."""

    exit_status = 2


@dataclass(frozen=True)
class Returned:
    """A cell whose engine is done with it: it is in this machine's store or, not complete, in its queue.

    `error`: why it is in neither.
    """

    key: str
    wall_s: float
    error: str | None = None


class Engine(Protocol):
    """Has cells run somewhere."""

    def begin(self, queue: Queue, limits: Limits) -> None:
        """Cells of this queue will come; `QbedError` if they cannot be run."""

    def room(self) -> int:
        """How many cells it makes sense to have submitted at once."""

    def submit(self, key: str, plan: bytes) -> None:
        """Have a cell run."""

    def ended(self, wait_s: float) -> Iterator[Returned]:
        """Cells that have ended since; it waits so long for one at most."""

    def stop(self) -> None:
        """Nobody wants the others any more."""


@dataclass(frozen=True)
class ElsewhereExecutor:
    """An `Executor` around an engine."""

    engine: Engine
    cores: tuple[int, ...] = ()
    """None of this machine's."""

    def run(self, task: Task, cells: Iterable[int], book: Book) -> None:
        if substrate(task.on).provenance is None or task.keep or not task.store:
            raise ElsewhereError(
                "cells that others run come back through the store: expected cells of virtual time, without --keep and"
                " --no-store"
            )
        queue = Queue(needed_store())
        worker = Worker(task)
        pending: _Cells = {}
        numbers = iter(cells)
        self.engine.begin(queue, task.limits)
        with interruptible():
            try:
                more = True
                while more or pending:
                    more = more and self._fill(task, worker, queue, numbers, pending, book)
                    for returned in self.engine.ended(LOOK_EVERY_S) if pending else ():
                        for number in pending.pop(returned.key, ()):
                            book.note(_taken(task, worker, queue, number, returned))
                    book.progress(0.0)
            finally:
                self.engine.stop()

    def _fill(
        self, task: Task, worker: Worker, queue: Queue, numbers: Iterator[int], pending: _Cells, book: Book
    ) -> bool:
        """Submit cells as long as there is room; False: there are no more."""
        room = self.engine.room()
        while len(pending) < room:
            number = next(numbers, None)
            if number is None:
                return False
            mark, content = _plan(task, number)
            if mark in pending:
                pending[mark].append(number)
            elif not mark or queue.store.has(mark):
                book.note(worker.run(number))  # it is there, or says what is wrong with it
            else:
                self.engine.submit(mark, content)
                pending[mark] = [number]
        return True


def command_of(key: str, limits: Limits) -> list[str]:
    """The command that runs a cell."""
    times = ["--cell-timeout", str(limits.cell_s), "--stall-timeout", str(limits.stall_s)]
    return [sys.executable, "-m", "qbed", "cell", key, *times, "--cell-space", f"{limits.space_bytes} B"]


def _plan(task: Task, number: int) -> tuple[str, bytes]:
    """A cell's key and plan; no key for one that has no plan."""
    provenance = substrate(task.on).provenance
    assert provenance is not None
    try:
        _, content, _ = task.compile(number)
    except QbedError:
        return "", b""
    return cell_key(content, provenance), content


def _taken(task: Task, worker: Worker, queue: Queue, number: int, returned: Returned) -> Outcome:
    """Have a cell that has ended in the run folder."""
    if queue.store.has(returned.key):
        queue.remove(returned.key)
        return replace(worker.run(number), stored=False, wall_s=returned.wall_s)
    run, row = RunFolder(task.out), task.describe(number)
    ended = queue.ended(returned.key)
    if ended is None:
        error = returned.error or "it has ended, and left nothing"
        run.begin(number)
        kept = run.fail(number, row | {"status": "failed", "error": error})
        return Outcome(number, "failed", f"{error}\n    kept: {kept}", returned.wall_s)
    folder, found = ended
    del found[FILES], found["cell"]
    row = found | row
    into = run.begin(number)
    shutil.copytree(folder, into, symlinks=True, dirs_exist_ok=True)
    queue.remove(returned.key)
    if row["status"] == "failed":
        kept = run.fail(number, row)
        return Outcome(number, "failed", f"{row['error']}\n    kept: {kept}", returned.wall_s)
    run.commit(number, row, keep=True)
    return Outcome(number, row["status"], "; ".join(row.get("contradictions") or ()), returned.wall_s)
