# SPDX-License-Identifier: Apache-2.0
"""Run cells on remote workers by the command `qbed cell KEY`. Results come through the store into the run folder.

An engine (`dask`, `slurm`) starts the command on a worker, and again if the worker dies. Finished cells are in a store
and are not run again.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

from qbed.base.errors import QbedError
from qbed.base.json_files import FILES
from qbed.runs.executor import OutcomeLog, interruptible
from qbed.runs.queued import needed_store
from qbed.runs.worker import Outcome, Task, Worker
from qbed.storage.cell_store import cell_key
from qbed.storage.queue import Queue
from qbed.storage.run_folder import RunFolder
from qbed.substrates import Limits, substrate

LOOK_EVERY_S = 1.0
_Cells = dict[str, list[int]]
"""The numbers of cells by key; several cells may have the same key."""


class CommandError(QbedError):
    """These cells cannot be run on remote workers."""

    exit_status = 2


@dataclass(frozen=True)
class Returned:
    """A cell that its engine has ended: it is in the local store if it is complete, else in the local queue.

    `error`: why it is in neither.
    """

    key: str
    wall_s: float
    error: str | None = None


class Engine(Protocol):
    """Starts cells on workers."""

    def begin(self, queue: Queue, limits: Limits) -> None:
        """Prepare to run cells of this queue; `QbedError` if they cannot be run."""

    def room(self) -> int:
        """The number of cells that should be submitted at once."""

    def submit(self, key: str, plan: bytes) -> None:
        """Submit a cell."""

    def ended(self, wait_s: float) -> Iterator[Returned]:
        """Generate the cells that have ended since the last call; wait at most `wait_s` for one."""

    def stop(self) -> None:
        """Cancel all other cells."""


@dataclass(frozen=True)
class CommandExecutor:
    """An `Executor` around an engine."""

    engine: Engine
    cores: tuple[int, ...] = ()
    """Empty: no cores of this machine are used."""

    def run(self, task: Task, cells: Iterable[int], log: OutcomeLog) -> None:
        if substrate(task.on).inputs is None or task.keep or not task.store:
            raise CommandError(
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
                    more = more and self._fill(task, worker, queue, numbers, pending, log)
                    for returned in self.engine.ended(LOOK_EVERY_S) if pending else ():
                        for number in pending.pop(returned.key, ()):
                            log.add(_taken(task, worker, queue, number, returned))
                    log.progress(0.0)
            finally:
                self.engine.stop()

    def _fill(
        self, task: Task, worker: Worker, queue: Queue, numbers: Iterator[int], pending: _Cells, log: OutcomeLog
    ) -> bool:
        """Submit cells as long as there is room; False: there are no more."""
        room = self.engine.room()
        while len(pending) < room:
            number = next(numbers, None)
            if number is None:
                return False
            key, content = _plan(task, number)
            if key in pending:
                pending[key].append(number)
            elif not key or queue.store.has(key):
                log.add(worker.run(number))  # take it from the store, or report its error
            else:
                self.engine.submit(key, content)
                pending[key] = [number]
        return True


def command_of(key: str, limits: Limits) -> list[str]:
    """The command that runs a cell."""
    times = ["--cell-timeout", str(limits.cell_s), "--stall-timeout", str(limits.stall_s)]
    return [sys.executable, "-m", "qbed", "cell", key, *times, "--cell-space", f"{limits.space_bytes} B"]


def _plan(task: Task, number: int) -> tuple[str, bytes]:
    """A cell's key and plan; the key is empty if the cell does not compile."""
    inputs = substrate(task.on).inputs
    assert inputs is not None
    try:
        plan, content, _ = task.compile(number)
    except QbedError:
        return "", b""
    return cell_key(content, inputs.of(plan)), content


def _taken(task: Task, worker: Worker, queue: Queue, number: int, returned: Returned) -> Outcome:
    """Move an ended cell to the run folder."""
    if queue.store.has(returned.key):
        queue.remove(returned.key)
        return replace(worker.run(number), stored=False, wall_s=returned.wall_s)
    run, row = RunFolder(task.out), task.describe(number)
    ended = queue.ended(returned.key)
    if ended is None:
        error = returned.error or "it has ended without a result"
        run.begin(number)
        failed_folder = run.fail(number, row | {"status": "failed", "error": error})
        return Outcome(number, "failed", f"{error}\n    kept: {failed_folder}", returned.wall_s)
    folder, found = ended
    del found[FILES], found["cell"]
    row = found | row
    into = run.begin(number)
    shutil.copytree(folder, into, symlinks=True, dirs_exist_ok=True)
    queue.remove(returned.key)
    if row["status"] == "failed":
        failed_folder = run.fail(number, row)
        return Outcome(number, "failed", f"{row['error']}\n    kept: {failed_folder}", returned.wall_s)
    run.commit(number, row, keep=True)
    return Outcome(number, row["status"], "; ".join(row.get("contradictions") or ()), returned.wall_s)
