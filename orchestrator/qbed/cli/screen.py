# SPDX-License-Identifier: Apache-2.0
"""Progress and result of a run on the terminal, and its files for CI."""

from __future__ import annotations

import time
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from qbed.base import terminal

if TYPE_CHECKING:  # loading these takes longer than most commands
    from rich.console import Console

    from qbed.live.exporter import Delivery
    from qbed.runs.experiment import Experiment, RunResult
    from qbed.runs.worker import Outcome

MAX_DAMAGED, MAX_WARNINGS = 10, 5
FLUSHING_EVERY_S = 10.0
"""Interval of the lines about telemetry that is still sent."""


class FailOn(StrEnum):
    """The events that make a run fail."""

    claims = "claims"
    verdicts = "verdicts"
    errors = "errors"


Junit = Annotated[Path | None, typer.Option(metavar="FILE", help="Write claims and cells as JUnit XML.")]
Summary = Annotated[Path | None, typer.Option(metavar="FILE", help="Append a summary of the result as Markdown.")]
Failing = Annotated[
    FailOn,
    typer.Option(
        help="Cause of exit status 1 beside failed and invalid cells. `claims`: results that exclude the expected "
        "verdict of a claim. `verdicts`: any verdict other than the expected one. `errors`: none."
    ),
]


def write_ci_files(
    ended: Sequence[tuple[Experiment, RunResult]], gaps: Sequence[str], junit: Path | None, summary: Path | None
) -> None:
    """Write the JUnit file and the Markdown summary."""
    from qbed.report.ci import Ended, write_junit, write_summary
    from qbed.runs.provenance import wall_times

    ended_runs = []
    for experiment, outcome in ended:
        parts = [str(experiment.identity["name"]), experiment.profile or "", "/".join(map(str, experiment.shard or ()))]
        on = [experiment.task.on] if len(ended) > 1 else []
        totals, run = outcome.totals, experiment.task.out
        counted = {"complete": totals.complete, "failed": totals.failed, "invalid": totals.invalid}
        name = " ".join(filter(None, [*parts, *on]))
        problems = [*outcome.problems, *gaps]
        differences, times = outcome.differences, wall_times(run)
        ended_runs.append(Ended(name, run, counted, outcome.wall_s, outcome.verdicts, differences, problems, times))
    if junit is not None:
        write_junit(junit, ended_runs)
    if summary is not None:
        write_summary(summary, ended_runs)


class Screen:
    """Shows the progress of a run: a bar on a terminal, and a line for each failed or invalid cell."""

    def __init__(self, cells: int, name: str) -> None:
        self.console = terminal.console(error=True)
        self.bar = Progress(
            TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(),
            TimeElapsedColumn(), TimeRemainingColumn(), console=self.console, disable=not self.console.is_terminal,
        )  # fmt: skip
        self._cells: TaskID = self.bar.add_task(name, total=cells)
        self._skipped = 0
        self._reasons: set[str] = set()
        self._flushing_at = -FLUSHING_EVERY_S

    def skipped(self, cells: int) -> None:
        if cells > self._skipped:
            self.console.print(f"{cells - self._skipped} cells are finished already")
        self._skipped = cells

    def damaged(self, files: list[str]) -> None:
        for text in files[:MAX_DAMAGED]:
            self.console.print(f"{text}: its cell is run again", style="yellow", soft_wrap=True)
        if len(files) > MAX_DAMAGED:
            self.console.print(f"... and {len(files) - MAX_DAMAGED} files more", style="yellow")

    def total(self, cells: int) -> None:
        self.bar.update(self._cells, total=cells)

    def waiting(self) -> None:
        self.console.print("another `qbed run` is writing to this folder: waiting for it")

    def discarded(self, difference: str) -> None:
        self.console.print(f"the folder held another run ({difference} differ): it was discarded", soft_wrap=True)

    def obsolete(self, text: str) -> None:
        self.console.print(text, style="yellow", soft_wrap=True)

    def progress(self, finished: int, running: float) -> None:
        self.bar.update(self._cells, completed=self._skipped + finished + running)

    def outcome(self, outcome: Outcome) -> None:
        if outcome.status == "complete":
            return
        text = outcome.error or ""
        reason = text.partition("\n")[0].partition("; its console")[0]
        shown = text if reason not in self._reasons else f"{reason}, as before"
        self._reasons.add(reason)
        line = terminal.shorten(f"cell {outcome.cell} {outcome.status}: {shown}")
        self.console.print(line, style="red", soft_wrap=True)

    def phase(self, name: str) -> None:
        self.bar.update(self._cells, description=name)

    def flushing(self, text: str) -> None:
        if (now := time.monotonic()) - self._flushing_at >= FLUSHING_EVERY_S:
            self._flushing_at = now
            self.console.print(terminal.shorten(text), soft_wrap=True)

    def delivered(self, result: Delivery | str) -> None:
        complete = not isinstance(result, str) and result.complete
        text = result if isinstance(result, str) else f"telemetry: {result.describe()}"
        text += "" if complete else "; `qbed samples RUN --send` sends the rest"
        self.console.print(terminal.shorten(text), style=None if complete else "red", soft_wrap=True)


def print_result(outcome: RunResult, console: Console, warnings: Sequence[str] = ()) -> None:
    """Print verdicts, differences, problems, warnings of the lab and the campaign, and totals."""
    from qbed.campaign.lock import NEXT_STEP
    from qbed.claims.verdict import caveats_of
    from qbed.report.ci import describe_verdict

    table = Table(box=None, pad_edge=False, show_header=False)
    for verdict in outcome.verdicts:
        style = "bold red" if verdict.contradicted else "dim" if verdict.verdict == "not judged" else "bold"
        expected = f", {verdict.expectation}" if verdict.expectation else ""
        table.add_row(
            Text(verdict.verdict + expected, style), verdict.name, terminal.shorten(describe_verdict(verdict))
        )
    if outcome.verdicts:
        console.print(table)
    for text, claims in caveats_of(outcome.verdicts).items():
        line = f"caution: {text}: {_listed(claims, len(outcome.verdicts))}"
        console.print(terminal.shorten(line), style="yellow", soft_wrap=True)
    for text in outcome.differences[:MAX_DAMAGED]:
        console.print(text, style="red", soft_wrap=True)
    if len(outcome.differences) > MAX_DAMAGED:
        console.print(f"... and {len(outcome.differences) - MAX_DAMAGED} cells more", style="red")
    if outcome.differences:
        console.print(NEXT_STEP, soft_wrap=True)
    for problem in outcome.problems:
        console.print(terminal.shorten(f"warning: {problem}"), style="yellow")
    for text in warnings[:MAX_WARNINGS]:
        console.print(terminal.shorten(f"warning: {text}"), style="yellow", soft_wrap=True)
    if len(warnings) > MAX_WARNINGS:
        console.print(f"... and {len(warnings) - MAX_WARNINGS} warnings more, at the start of the run", style="yellow")
    if outcome.images:
        console.print(outcome.images)
    totals = outcome.totals
    bad = "".join(
        f", {count} {name}" for name, count in (("failed", totals.failed), ("invalid", totals.invalid)) if count
    )
    stored = f" ({totals.stored} from the store)" if totals.stored else ""
    console.print(f"{totals.complete} of {totals.cells} cells complete{stored}{bad}, in {outcome.wall_s:.1f} s")
    if outcome.report is not None:
        terminal.print_line(outcome.report)


def _listed(claims: Sequence[str], total: int) -> str:
    return "all claims" if len(claims) == total > 1 else f"claim{'s' if len(claims) > 1 else ''} {', '.join(claims)}"
