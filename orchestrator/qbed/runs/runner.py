# SPDX-License-Identifier: Apache-2.0
"""The runner: a campaign's cells in parallel, one worker process on each allowed core.

Workers die with the runner and guests with their worker, whatever kills it; what a cell has finished stays.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import Protocol

from qbed.errors import QbedError
from qbed.results.folder import RunFolder
from qbed.runs.worker import Outcome, Task, describe, heard, serve

STOP_S = 15.0
WALL_TIMES = "wall.ndjson"


class RunStoppedError(QbedError):
    """The run was stopped; what was finished is kept."""

    exit_status = 130


class RunAbortedError(QbedError):
    """No cell can run."""


class Watcher(Protocol):
    """Is told how the run goes."""

    def progress(self, finished: int, running: float) -> None:
        """`finished` cells of this run are done; the running ones are worth `running` cells."""

    def outcome(self, outcome: Outcome) -> None:
        """A cell has ended."""


@dataclass
class Totals:
    """How the cells of one run went."""

    cells: int
    skipped: int
    complete: int = 0
    stored: int = 0
    """Of these, how many came from the store."""
    failed: int = 0
    invalid: int = 0


class _Process:
    """One worker process, from the runner's side."""

    def __init__(self, task: Task, core: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe: Connection
        self.pipe, theirs = context.Pipe()
        self.process: BaseProcess = context.Process(
            target=serve, args=(theirs, task, core, os.getpid()), name=f"qbed-worker-{core}"
        )
        self.core = core
        self.cell: int | None = None
        self.fraction = 0.0
        self.process.start()
        theirs.close()

    def give(self, cell: int) -> None:
        self.cell, self.fraction = cell, 0.0
        with suppress(OSError):  # a dead worker shows itself at the next wait
            self.pipe.send(cell)

    def stop(self) -> None:
        self.pipe.close()
        self.process.terminate()

    def join(self) -> None:
        self.process.join(STOP_S)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


def run_cells(task: Task, open_cells: list[int], cores: list[int], watcher: Watcher) -> Totals:
    """Run the cells that are not finished yet. `RunStoppedError`, `RunAbortedError`: what is finished is kept."""
    totals = Totals(len(task.matrix), len(task.matrix) - len(open_cells))
    todo = iter(open_cells)
    workers: list[_Process] = []
    with _interruptible(), (task.out / "cells" / WALL_TIMES).open("a") as times:
        try:
            for core, number in zip(cores, todo, strict=False):
                with _uninterrupted():
                    workers.append(_Process(task, core))
                workers[-1].give(number)
            done = 0
            while any(worker.cell is not None for worker in workers):
                for outcome in _next(workers, task, todo):
                    done += 1
                    setattr(totals, outcome.status, getattr(totals, outcome.status) + 1)
                    totals.stored += outcome.stored
                    times.write(json.dumps({"cell": outcome.cell, "wall_s": round(outcome.wall_s, 3)}) + "\n")
                    times.flush()
                    watcher.outcome(outcome)
                    if outcome.fatal:
                        raise RunAbortedError(
                            f"{outcome.error}; finished cells are kept, and a later run goes on from there"
                        )
                watcher.progress(done, sum(worker.fraction for worker in workers if worker.cell is not None))
        except KeyboardInterrupt:
            left = len(open_cells) - totals.complete - totals.failed - totals.invalid
            raise RunStoppedError(
                f"stopped; finished cells are kept in {task.out}, {left} are left: the same command goes on from there"
            ) from None
        finally:
            _stop_all(workers)
    return totals


def _next(workers: list[_Process], task: Task, todo: Iterator[int]) -> list[Outcome]:
    """Wait for messages and hand out the next cells; a worker that died is replaced."""
    outcomes: list[Outcome] = []
    by_pipe: dict[object, _Process] = {worker.pipe: worker for worker in workers if worker.cell is not None}
    for pipe in wait(list(by_pipe)):  # type: ignore[arg-type]
        worker = by_pipe[pipe]
        cell = worker.cell
        assert cell is not None
        try:
            message: float | Outcome = worker.pipe.recv()
        except (EOFError, OSError):
            worker.join()
            message = _died(worker, task, cell)
            with _uninterrupted():
                workers[workers.index(worker)] = worker = _Process(task, worker.core)
        if isinstance(message, float):
            worker.fraction = message
            continue
        outcomes.append(message)
        worker.cell = None
        number = next(todo, None)
        if number is not None and not message.fatal:
            worker.give(number)
    return outcomes


def _died(worker: _Process, task: Task, number: int) -> Outcome:
    """The worker itself was killed (the kernel's out-of-memory killer does that)."""
    code = worker.process.exitcode or 0
    how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
    cell = task.matrix.cell(number)
    error = f"the worker process was {how}"
    with suppress(OSError):
        RunFolder(task.out).fail(number, describe(cell, task) | {"status": "failed", "error": error})
    return Outcome(number, "failed", error, 0.0)


def _stop_all(workers: list[_Process]) -> None:
    before = signal.signal(signal.SIGINT, heard)  # an impatient second Ctrl-C must not leave guests behind
    try:
        for worker in workers:
            worker.stop()
        for worker in workers:
            worker.join()
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """A Ctrl-C waits until the end; a process that starts meanwhile has it blocked, until it is ready to ignore it.

    The mask alone would not do: a signal that another thread takes still runs the handler on this one.
    """
    resource_tracker.ensure_running()  # else the first process starts it, and that unblocks the signal
    came: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, _frame: came.append(number))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGINT, handler)
    for number in came:
        signal.raise_signal(number)


@contextmanager
def _interruptible() -> Iterator[None]:
    """SIGTERM and SIGHUP stop the run as Ctrl-C does."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
