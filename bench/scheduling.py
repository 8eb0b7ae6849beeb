# SPDX-License-Identifier: Apache-2.0
"""The overhead of a cell beyond its guest: plan, folder on the disk, scheduling; and the cost of a stored cell."""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from bench.harness import Figure, cores, pinned
from bench.merge import LAB
from qbed import substrates
from qbed.campaign.file import Campaign
from qbed.campaign.matrix import build_matrix
from qbed.plan.model import Plan
from qbed.runs.executor import OutcomeLog, Totals
from qbed.runs.executor.local import LocalExecutor
from qbed.runs.worker import Outcome, Task, Worker
from qbed.storage.run_folder import RunFolder
from qbed.substrates import Limits, Progress
from qbed.substrates.virtual.substrate import VirtualSubstrate

CELLS = 30


class Turns:
    """A `Watcher`: when cells ended, and how long they took."""

    def __init__(self) -> None:
        self.at: list[float] = []
        self.took: list[float] = []

    def progress(self, finished: int, running: float) -> None:
        pass

    def outcome(self, outcome: Outcome) -> None:
        assert outcome.status == "complete", outcome.error
        self.at.append(time.monotonic())
        self.took.append(outcome.wall_s)

    def between(self) -> list[float]:
        """From one cell's end to the next one's, beyond what that took."""
        return [now - before - took for before, now, took in zip(self.at, self.at[1:], self.took[1:], strict=False)]


@dataclass
class Timed:
    """A `Cell` of a substrate, which says how long its guest took."""

    cell: substrates.Cell
    took: list[float]

    def run(self, limits: Limits, progress: Progress) -> None:
        begun = time.monotonic()
        self.cell.run(limits, progress)
        self.took.append(time.monotonic() - begun)


class Watched(VirtualSubstrate):
    """Virtual time, with a clock beside it."""

    took: ClassVar[list[float]] = []

    def cell(self, folder: Path, plan: Plan, dilation: int = 1) -> Any:
        return Timed(super().cell(folder, plan, dilation), self.took)


def task_of(out: Path, *, store: bool) -> Task:
    """A campaign of some cells, and its run folder."""
    (out.parent / "lab.yml").write_text(LAB)
    matrix = build_matrix(Campaign(question="?", axes={"seed": [*range(1, CELLS + 1)]}))
    task = Task(out, store=store, lab=out.parent / "lab.yml", matrix=matrix)
    RunFolder(out).claim({"version": 1, "name": "cell", "plans": "", "matrix": matrix.describe()})
    return task


def beside_the_guest(out: Path) -> list[float]:
    """The time of each cell's worker beyond its guest."""
    worker = Worker(task_of(out, store=False), Watched())
    Watched.took.clear()
    with pinned(cores()[-1]):
        outcomes = [worker.run(number) for number in range(CELLS)]
    assert all(outcome.status == "complete" for outcome in outcomes)
    return [outcome.wall_s - guest for outcome, guest in zip(outcomes, Watched.took, strict=True)]


def turns(out: Path, *, store: bool) -> Turns:
    """A campaign on one core."""
    found, task = Turns(), task_of(out, store=store)
    with OutcomeLog(task, Totals(CELLS, 0), found) as log:
        LocalExecutor([cores()[-1]]).run(task, range(CELLS), log)
    return found


def measure(rounds: int) -> list[Figure]:
    folder = Path(tempfile.mkdtemp(prefix="qbed-bench-"))
    os.environ |= {"QBED_CACHE": str(folder / "cache"), "QBED_STORE": "1 GB"}
    beside: list[float] = []
    between: list[float] = []
    stored: list[float] = []
    try:
        turns(folder / "first", store=True)
        for number in range(rounds):
            beside += beside_the_guest(folder / f"beside-{number}")
            between += turns(folder / f"run-{number}", store=False).between()
            taken = turns(folder / f"stored-{number}", store=True)
            stored += [took + more for took, more in zip(taken.took[1:], taken.between(), strict=True)]
    finally:
        shutil.rmtree(folder)
    plan_ms, between_ms = (1000 * statistics.median(values) for values in (beside, between))
    return [
        Figure("a cell's plan, tables and folder, beyond its guest", plan_ms, "ms"),
        Figure("from one cell's end to the next one's start", between_ms, "ms"),
        Figure("scheduling overhead of a cell", plan_ms + between_ms, "ms", 50),
        Figure("a cell from the store", 1000 * statistics.median(stored), "ms", 50),
    ]
