# SPDX-License-Identifier: Apache-2.0
"""Executors, which run a campaign's cells: `local`, or on remote workers by the command `qbed cell KEY`.

An executor runs the given cells, stores each ended one in the run folder, and adds its outcome to an `OutcomeLog`. It
neither chooses the cells nor evaluates their results.
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

from qbed.base.errors import QbedError
from qbed.runs.worker import Outcome, Task

WALL_TIMES = "wall.ndjson"


class RunStoppedError(QbedError):
    """The run was stopped; what was finished is kept."""

    exit_status = 130


class RunAbortedError(QbedError):
    """No cell can run."""


class Watcher(Protocol):
    """Receives progress and outcomes of a run."""

    def progress(self, finished: int, running: float) -> None:
        """`finished` cells of this run are done; the running ones are worth `running` cells."""

    def outcome(self, outcome: Outcome) -> None:
        """A cell has ended."""


@dataclass
class Totals:
    """Numbers of the cells of one run by outcome."""

    cells: int
    skipped: int
    complete: int = 0
    stored: int = 0
    """Complete cells that were in the store."""
    failed: int = 0
    invalid: int = 0

    @property
    def ended(self) -> int:
        """Cells that ended in this run."""
        return self.complete + self.failed + self.invalid


class Executor(Protocol):
    """Runs cells. `cores`: the cores of this machine that it uses."""

    @property
    def cores(self) -> Sequence[int]: ...

    def run(self, task: Task, cells: Iterable[int], log: OutcomeLog) -> None:
        """Run these cells of a task, and log their outcomes. On KeyboardInterrupt all cells are stopped."""


class OutcomeLog:
    """Records outcomes: updates the totals, appends wall times to a file, and notifies the watcher."""

    def __init__(self, task: Task, totals: Totals, watcher: Watcher) -> None:
        self.totals = totals
        self._watcher = watcher
        self._times = (task.out / "cells" / WALL_TIMES).open("a")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._times.close()

    def add(self, outcome: Outcome) -> None:
        """Record the outcome of an ended cell; `RunAbortedError` if it is fatal."""
        setattr(self.totals, outcome.status, getattr(self.totals, outcome.status) + 1)
        self.totals.stored += outcome.stored
        parts = {"parts": [[round(seconds, 3) for seconds in part] for part in outcome.parts]} if outcome.parts else {}
        self._times.write(json.dumps({"cell": outcome.cell, "wall_s": round(outcome.wall_s, 3), **parts}) + "\n")
        self._times.flush()
        self._watcher.outcome(outcome)
        if outcome.fatal:
            raise RunAbortedError(f"{outcome.error}; finished cells are kept, and a later run goes on from there")

    def progress(self, running: float) -> None:
        """Report the progress of the running cells as a sum of fractions."""
        self._watcher.progress(self.totals.ended, running)


@contextmanager
def interruptible() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into KeyboardInterrupt; no effect outside the main thread."""
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
