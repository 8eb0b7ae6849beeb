# SPDX-License-Identifier: Apache-2.0
"""Where a campaign's cells are run: `local`, or by others, to whom a cell is its key (`qbed cell KEY`).

An executor is given cells and writes what comes of each into a `Book`. Which cells those are, and what is made of their
results, is none of its business; that a cell that has ended is in the run folder is.
"""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import Protocol, Self

from qbed.errors import QbedError
from qbed.runs.worker import Outcome, Task

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

    @property
    def ended(self) -> int:
        """Of this run."""
        return self.complete + self.failed + self.invalid


class Executor(Protocol):
    """A way to have cells run. `cores`: those of this machine that it has cells on."""

    @property
    def cores(self) -> Sequence[int]: ...

    def run(self, task: Task, cells: Iterable[int], book: Book) -> None:
        """Have these cells of a task in its run folder, and each one's outcome in the book. Whoever interrupts it
        (KeyboardInterrupt) leaves no cell running.
        """


class Book:
    """Keeps how the cells of a run go: counts, wall times, and whoever watches."""

    def __init__(self, task: Task, totals: Totals, watcher: Watcher) -> None:
        self.totals = totals
        self._watcher = watcher
        self._times = (task.out / "cells" / WALL_TIMES).open("a")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._times.close()

    def note(self, outcome: Outcome) -> None:
        """A cell has ended; `RunAbortedError` if no other would fare better."""
        setattr(self.totals, outcome.status, getattr(self.totals, outcome.status) + 1)
        self.totals.stored += outcome.stored
        self._times.write(json.dumps({"cell": outcome.cell, "wall_s": round(outcome.wall_s, 3)}) + "\n")
        self._times.flush()
        self._watcher.outcome(outcome)
        if outcome.fatal:
            raise RunAbortedError(f"{outcome.error}; finished cells are kept, and a later run goes on from there")

    def progress(self, running: float) -> None:
        """So many cells' worth of work is done of those that are running."""
        self._watcher.progress(self.totals.ended, running)


@contextmanager
def interruptible() -> Iterator[None]:
    """SIGTERM and SIGHUP stop the run as Ctrl-C does; in a thread beside the main one nothing does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
