# SPDX-License-Identifier: Apache-2.0
"""A worker process of the runner: pinned to one core, it runs one cell after the other, its guest on the same core."""

from __future__ import annotations

import ctypes
import errno
import hashlib
import json
import os
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pyarrow as pa

from qbed import faults
from qbed.campaign.matrix import Cell, Matrix
from qbed.errors import QbedError
from qbed.network.load import load_lab
from qbed.plan.compile import compile_lab
from qbed.plan.model import Plan
from qbed.results.cell import store_cell
from qbed.results.folder import RunFolder
from qbed.results.store import key, usual_store
from qbed.substrates import DEFAULT, Limits, Substrate, SubstrateError, substrate

PROGRESS_EVERY_S = 0.2


@dataclass(frozen=True)
class Task:
    """What all cells of a run have in common."""

    lab: Path
    out: Path
    matrix: Matrix
    limits: Limits = field(default_factory=Limits)
    keep: bool = False
    on: str = DEFAULT
    dilation: int = 1
    store: bool = True
    """Whether cells that the store has are taken from there, and finished ones put there."""


@dataclass(frozen=True)
class Outcome:
    """How one cell went. `fatal`: no other cell would fare better. `stored`: it came from the store."""

    cell: int
    status: str
    error: str | None
    wall_s: float
    fatal: bool = False
    stored: bool = False


def serve(pipe: Connection, task: Task, core: int, parent: int) -> None:
    """Run the cells whose numbers come through the pipe, until it closes. Sends fractions and an `Outcome` each."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    signal.signal(signal.SIGTERM, _stop)
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: no worker outlives its runner
    if os.getppid() != parent:
        return
    if substrate(task.on).cells_at_once is None:  # elsewhere a cell has more than a core
        os.sched_setaffinity(0, {core})
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    worker = Worker(task)
    try:
        while True:
            pipe.send(worker.run(int(pipe.recv()), pipe))
    except (EOFError, BrokenPipeError):
        signal.signal(signal.SIGTERM, heard)  # nothing is left to tidy up


def heard(*_: object) -> None:
    """Changes nothing any more. Were the signal ignored instead, Python would complain of one that came just before."""


def _stop(*_: object) -> None:
    signal.signal(signal.SIGTERM, heard)
    raise SystemExit(143)


class Worker:
    """Runs cells into a run folder."""

    def __init__(self, task: Task, on: Substrate | None = None) -> None:
        self._task = task
        self._run_folder = RunFolder(task.out)
        self._substrate = on or substrate(task.on)
        wanted = task.store and not task.keep and self._substrate.provenance is not None
        self._store = usual_store() if wanted else None

    def run(self, number: int, pipe: Connection | None = None) -> Outcome:
        """Run one cell; whatever goes wrong with it is its outcome. Of one that is stopped nothing stays."""
        try:
            return self._outcome(number, pipe)
        except SystemExit:
            self._run_folder.drop(number)
            raise

    def _outcome(self, number: int, pipe: Connection | None) -> Outcome:
        begun, known = time.monotonic(), None
        cell = self._task.matrix.cell(number)
        status, error, fatal = "failed", None, False
        row = describe(cell, self._task)
        try:
            folder = self._run_folder.begin(number)
            plan, row = self._compile(cell, row, folder / "work")
            mark = self._mark(folder / "work")
            known = self._store.take(mark, folder) if self._store else None
            found = known or self._run(plan, folder, pipe)
            status = str(found["status"])
            error = "; ".join(found["contradictions"]) or None
            finished = self._run_folder.commit(number, row | found, keep=self._task.keep or status == "invalid")
            if self._store and known is None and status == "complete":
                self._store.put(mark, finished, found)
        except SubstrateError as problem:
            error, fatal = str(problem), True
        except OSError as problem:
            fatal = problem.errno in (errno.ENOSPC, errno.EDQUOT)
            error = (
                f"the disk is full: {self._task.out}" if fatal else f"{problem.strerror or problem}: {problem.filename}"
            )
        except (QbedError, pa.ArrowException) as problem:
            error = str(problem)
        except Exception as problem:
            error = faults.explain(problem)
        if error is not None and status == "failed":
            error = self._give_up(cell, row, error, fatal)
        return Outcome(number, status, error, time.monotonic() - begun, fatal, known is not None)

    def _compile(self, cell: Cell, row: dict[str, Any], work: Path) -> tuple[Plan, dict[str, Any]]:
        """The cell's plan, which is written for the substrate, and its row with the settings that the plan has."""
        lab = load_lab(self._task.lab, dict(cell.settings))
        cell.check(lab.source.values)
        plan = compile_lab(lab, cell.seed)
        (work / "plan.json").write_text(plan.dumps())
        return plan, row | {"settings": _json(cell.settings_of(lab.source.values))}

    def _mark(self, work: Path) -> str:
        """What the store knows the cell by; nothing, where it is not asked."""
        provenance = self._substrate.provenance
        if self._store is None or provenance is None:
            return ""
        with (work / "plan.json").open("rb") as plan:
            return key(hashlib.file_digest(plan, "sha256").hexdigest(), provenance)

    def _run(self, plan: Plan, folder: Path, pipe: Connection | None) -> dict[str, Any]:
        """Run a cell; returns what its row has of it."""
        work = folder / "work"
        ready = self._substrate.cell(work, plan, self._task.dilation)
        told = time.monotonic()

        def progress(fraction: float) -> None:
            nonlocal told
            if pipe is not None and time.monotonic() - told > PROGRESS_EVERY_S:
                told = time.monotonic()
                with suppress(BrokenPipeError):  # the runner stops, and says so in a moment
                    pipe.send(fraction)

        ready.run(self._task.limits, progress)
        return store_cell(work, plan, folder)

    def _give_up(self, cell: Cell, row: dict[str, Any], error: str, fatal: bool) -> str:
        """Keep the broken cell's folder and name it; on a full disk nothing can be kept."""
        if fatal:
            self._run_folder.drop(cell.number)
            return error
        try:
            folder = self._run_folder.fail(cell.number, row | {"status": "failed", "error": error})
        except OSError as problem:
            self._run_folder.drop(cell.number)
            return f"{error}; its folder cannot be kept: {problem.strerror}"
        return f"{error}\n    kept: {folder}"


def describe(cell: Cell, task: Task) -> dict[str, Any]:
    """What is known of a cell before it ran."""
    return {
        "cell": cell.number,
        **cell.values,
        "settings": _json(cell.settings),
        "substrate": task.on,
        "dilation": task.dilation,
    }


def _json(settings: Mapping[str, Any]) -> str:
    return json.dumps(settings, sort_keys=True, default=str)
