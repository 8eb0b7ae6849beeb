# SPDX-License-Identifier: Apache-2.0
"""Run a campaign's cells in parallel on this machine, with one worker process on each allowed core.

Workers die with the runner, and guests with their worker, however it is killed; finished cells are kept. A worker is a
fork of the runner, since a new Python would import for longer than a small cell takes. A fork would copy the locks of
other threads, so the workers of a runner that has some (a notebook) are new processes.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkContext, SpawnContext
from multiprocessing.process import BaseProcess

from qbed.base.processes import ignore
from qbed.runs.executor import OutcomeLog, interruptible
from qbed.runs.worker import STOPPING, Outcome, Task, serve
from qbed.storage.run_folder import RunFolder

STOP_S = 15.0


class _Process:
    """One worker process, from the runner's side."""

    def __init__(self, task: Task, cores: tuple[int, ...]) -> None:
        context = _start_method()
        self.pipe: Connection
        self.pipe, child_end = context.Pipe()
        self.process: BaseProcess = context.Process(
            target=serve, args=(child_end, task, cores, os.getpid()), name=f"qbed-worker-{cores[0]}"
        )
        self.cores = cores
        self.cell: int | None = None
        self.fraction = 0.0
        self.process.start()
        child_end.close()

    def assign(self, cell: int) -> None:
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


@dataclass(frozen=True)
class LocalExecutor:
    """An `Executor`: a worker process for each of these cores, a cell at a time. Where cells have several parts, a
    worker has as many of this machine's cores, and there are fewer workers.
    """

    cores: list[int]

    def run(self, task: Task, cells: Iterable[int], log: OutcomeLog) -> None:
        todo = iter(cells)
        workers: list[_Process] = []
        with interruptible():
            try:
                for cores, number in zip(groups(self.cores, task.parts), todo, strict=False):
                    with _uninterrupted():
                        workers.append(_Process(task, cores))
                    workers[-1].assign(number)
                while any(worker.cell is not None for worker in workers):
                    for outcome in _next(workers, task, todo):
                        log.add(outcome)
                    log.progress(sum(worker.fraction for worker in workers if worker.cell is not None))
            finally:
                _stop_all(workers)


def _start_method() -> SpawnContext | ForkContext:
    if threading.active_count() == 1:
        return multiprocessing.get_context("fork")
    return multiprocessing.get_context("spawn")


def groups(cores: list[int], parts: int) -> list[tuple[int, ...]]:
    """The cores of each worker, if a cell needs a core for each of so many parts."""
    if parts == 1:
        return [(core,) for core in cores]
    allowed = sorted(os.sched_getaffinity(0))
    count = min(len(cores), max(1, len(allowed) // parts))
    return [tuple(allowed[first : first + parts]) for first in range(0, count * parts, parts)]


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
                workers[workers.index(worker)] = worker = _Process(task, worker.cores)
        if isinstance(message, float):
            worker.fraction = message
            continue
        outcomes.append(message)
        worker.cell = None
        number = next(todo, None)
        if number is not None and not message.fatal:
            worker.assign(number)
    return outcomes


def _died(worker: _Process, task: Task, number: int) -> Outcome:
    """The worker itself was killed (the kernel's out-of-memory killer does that)."""
    code = worker.process.exitcode or 0
    how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
    error = f"the worker process was {how}"
    with suppress(OSError):
        RunFolder(task.out).fail(number, task.describe(number) | {"status": "failed", "error": error})
    return Outcome(number, "failed", error, 0.0)


def _stop_all(workers: list[_Process]) -> None:
    before = signal.signal(signal.SIGINT, ignore)  # an impatient second Ctrl-C must not leave guests behind
    try:
        for worker in workers:
            worker.stop()
        for worker in workers:
            worker.join()
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Defer SIGINT, SIGTERM and SIGHUP; a process that is started meanwhile has them blocked until it handles them.

    The mask alone is not sufficient: a signal that another thread receives still runs the handler on this one.
    """
    if isinstance(_start_method(), SpawnContext):
        resource_tracker.ensure_running()  # else the first new Python starts it, and that unblocks the signals
    received: list[int] = []
    handlers = {number: signal.signal(number, lambda number, _frame: received.append(number)) for number in STOPPING}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for stopping, handler in handlers.items():
            signal.signal(stopping, handler)
    for number in received:
        signal.raise_signal(number)
