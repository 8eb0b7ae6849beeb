# SPDX-License-Identifier: Apache-2.0
"""Worker processes of the runner: each runs cells in sequence, with their guests, on the cores that it is pinned to."""

from __future__ import annotations

import gc
import hashlib
import json
import os
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

import pyarrow as pa

from qbed.base import crash_report
from qbed.base.errors import QbedError
from qbed.base.json_files import Row
from qbed.base.processes import end_with_parent, ignore, raise_on
from qbed.campaign.matrix import Cell, Matrix
from qbed.campaign.overlaps import without
from qbed.cells.store_cell import store_cell
from qbed.cells.wall_clock import only_late
from qbed.network.load import load_cell, read_lab
from qbed.plan.compile import compile_lab
from qbed.plan.model import Plan
from qbed.storage.cell_store import cell_key, default_store
from qbed.storage.run_folder import INPUTS, RunFolder
from qbed.substrates import DEFAULT, PART_TIMES, Limits, Substrate, SubstrateError, substrate

PROGRESS_EVERY_S = 0.2
STOPPING = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
"""Signals that are blocked in a worker until it handles them."""
MAX_RUNS = 3
"""Limit on runs of one cell on the wall clock while the machine is too late."""


@dataclass(frozen=True)
class CellWork(ABC):
    """The settings for the cells of one worker. `out`: the run folder."""

    out: Path
    limits: Limits = field(default_factory=Limits)
    keep: bool = False
    on: str = DEFAULT
    dilation: int = 1
    store: bool = True
    """Whether cells are read from the store and written to it."""

    @abstractmethod
    def describe(self, number: int) -> Row:
        """The columns of a cell that are known before it is compiled."""

    @abstractmethod
    def compile(self, number: int) -> tuple[Plan, bytes, Row]:
        """A cell's plan, its bytes, and its row with the settings that the plan has."""


@dataclass(frozen=True, kw_only=True)
class Task(CellWork):
    """The cells of a run: those of a matrix, over one lab."""

    lab: Path
    matrix: Matrix
    parts: int = 1
    """The number of parts of the cell that has most."""

    def describe(self, number: int) -> Row:
        return describe(self.matrix.cell(number), self)

    def compile(self, number: int) -> tuple[Plan, bytes, Row]:
        cell = self.matrix.cell(number)
        lab = load_cell(read_lab(self.lab), dict(cell.settings))
        cell.check(lab.source.values)
        plan = compile_lab(lab, cell.seed)
        settings = _json(without(cell.settings_of(lab.source.values), lab.unread))
        return plan, plan.dumps().encode(), self.describe(number) | {"settings": settings}

    def max_samples(self, number: int) -> int:
        """The maximum number of samples of a cell, from its plan and, on the wall clock, the time limit."""
        late_ns = 0 if substrate(self.on).clock == "virtual" else int(self.limits.cell_s * 1e9)
        return self.compile(number)[0].max_samples(late_ns)


@dataclass(frozen=True)
class Outcome:
    """The result of one cell. `fatal`: all other cells would fail, too. `stored`: it was in the store."""

    cell: int
    status: str
    error: str | None
    wall_s: float
    fatal: bool = False
    stored: bool = False
    parts: tuple[tuple[float, float], ...] = ()
    """Seconds for which each part of a divided cell computed and waited for others."""


def serve(pipe: Connection, task: Task, cores: Collection[int], parent: int) -> None:
    """Run the cells by their numbers from the pipe until it closes; send fractions and an `Outcome` each."""
    gc.freeze()  # a fork shares the runner's objects
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    raise_on(signal.SIGTERM, SystemExit, 143, once=True)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
    if not end_with_parent(parent, signal.SIGKILL):
        return
    on = substrate(task.on)
    if on.cells_at_once is None:  # elsewhere a cell has more than a core
        os.sched_setaffinity(0, cores)
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    worker = Worker(task, on)
    try:
        with on.many_cells():
            while True:
                pipe.send(worker.run(int(pipe.recv()), pipe))
    except (EOFError, BrokenPipeError):
        signal.signal(signal.SIGTERM, ignore)  # nothing is left to tidy up


class Worker:
    """Runs cells into a run folder."""

    def __init__(self, work: CellWork, on: Substrate | None = None) -> None:
        self._work = work
        self._run_folder = RunFolder(work.out)
        self._substrate = on or substrate(work.on)
        wanted = work.store and not work.keep and self._substrate.inputs is not None
        self._store = default_store() if wanted else None
        self._parts: tuple[tuple[float, float], ...] = ()

    def run(self, number: int, pipe: Connection | None = None) -> Outcome:
        """Run one cell; its outcome reports every error. An interrupted cell is removed."""
        try:
            return self._outcome(number, pipe)
        except SystemExit:
            self._run_folder.drop(number)
            raise

    def _outcome(self, number: int, pipe: Connection | None) -> Outcome:
        begun, known, self._parts = time.monotonic(), False, ()
        status, error, fatal = "failed", None, False
        row = self._work.describe(number)
        try:
            self._run_folder.begin(number)
            plan, content, row = self._work.compile(number)
            row |= {"plan_sha256": hashlib.sha256(content).hexdigest()}
            row, known = self._found(plan, content, row, number, pipe)
            status = str(row["status"])
            error = "; ".join(row["contradictions"]) or None
        except SubstrateError as problem:
            error, fatal = str(problem), True
        except OSError as problem:
            fatal = crash_report.is_full(problem)
            error = f"the disk is full: {self._work.out}" if fatal else crash_report.describe_os_error(problem)
        except (QbedError, pa.ArrowException) as problem:
            error = str(problem)
        except Exception as problem:
            error = crash_report.explain(problem)
        if error is not None and status == "failed":
            error = self._give_up(number, row, error, fatal)
        return Outcome(number, status, error, time.monotonic() - begun, fatal, known, self._parts)

    def _found(self, plan: Plan, content: bytes, row: Row, number: int, pipe: Connection | None) -> tuple[Row, bool]:
        """Finish a cell; returns its row, and whether it came from the store."""
        store, folder, inputs = self._store, self._run_folder.folder(number, ".tmp"), dict[str, str]()
        if self._substrate.inputs is not None:
            inputs = self._substrate.inputs.of(plan)
            row = row | {INPUTS: inputs}
        if store is None:
            return self._commit(number, row | self._run(plan, content, number, pipe)), False
        key = cell_key(content, inputs)
        if known := store.take(key, folder):
            return self._commit(number, row | known), True
        with store.claimed(key):
            if known := store.take(key, folder):  # another process ran it in the meantime
                return self._commit(number, row | known), True
            found = self._run(plan, content, number, pipe)
            row = self._commit(number, row | found)
            if row["status"] == "complete":
                store.put(key, self._run_folder.folder(number), found)
        return row, False

    def _commit(self, number: int, row: Row) -> Row:
        self._run_folder.commit(number, row, keep=self._work.keep or row["status"] == "invalid")
        return row

    def _run(self, plan: Plan, content: bytes, number: int, pipe: Connection | None) -> Row:
        """Run a cell, and again if the machine was too late; returns the measured columns of its row."""
        folder, warnings = self._run_folder.folder(number, ".tmp"), list[str]()
        while True:
            (folder / "work" / "plan.json").write_bytes(content)
            row = self._run_once(plan, folder, pipe)
            late = only_late(row)
            if late is None or len(warnings) == MAX_RUNS - 1:
                return row | {"warnings": [*row["warnings"], *warnings]}
            warnings.append(f"run {len(warnings) + 1} of this cell does not count: {late}")
            self._run_folder.begin(number)

    def _run_once(self, plan: Plan, folder: Path, pipe: Connection | None) -> Row:
        work = folder / "work"
        ready = self._substrate.cell(work, plan, self._work.dilation)
        sent_s = time.monotonic()

        def progress(fraction: float) -> None:
            nonlocal sent_s
            if pipe is not None and time.monotonic() - sent_s > PROGRESS_EVERY_S:
                sent_s = time.monotonic()
                with suppress(BrokenPipeError):  # the runner is stopping
                    pipe.send(fraction)

        ready.run(self._work.limits, progress)
        if plan.parts and (work / PART_TIMES).exists():
            rows = json.loads((work / PART_TIMES).read_text())
            self._parts = tuple((row["busy_s"], row["waited_s"]) for row in rows)
        return store_cell(work, plan, folder)

    def _give_up(self, number: int, row: Row, error: str, fatal: bool) -> str:
        """Keep the failed cell's folder and add its path to the error; on a full disk the folder is removed."""
        if fatal:
            self._run_folder.drop(number)
            return error
        try:
            folder = self._run_folder.fail(number, row | {"status": "failed", "error": error})
        except OSError as problem:
            self._run_folder.drop(number)
            return f"{error}; its folder cannot be kept: {crash_report.describe_os_error(problem)}"
        return f"{error}\n    kept: {folder}"


def describe(cell: Cell, task: Task) -> Row:
    """The columns of a cell that are known before it runs."""
    return {
        "cell": cell.number,
        **cell.values,
        "settings": _json(cell.settings),
        "substrate": task.on,
        "dilation": task.dilation,
    }


def _json(settings: Mapping[str, object]) -> str:
    return json.dumps(settings, sort_keys=True, default=str)
