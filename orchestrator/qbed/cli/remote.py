# SPDX-License-Identifier: Apache-2.0
"""`qbed --server URL`: campaigns on a service (`qbed serve`), which look and end as they do here."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import typer
from rich.table import Table

from qbed.base import terminal
from qbed.base.errors import LabError
from qbed.base.json_files import Row
from qbed.service import SERVER, TOKEN, connected

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

    from qbed.runs.experiment import RunOptions, RunResult, Screen
    from qbed.service.client import Client

    class Shown(Screen, Protocol):
        """A screen with a bar."""

        bar: Progress

    PrintResult = Callable[[RunResult, Console], None]


def register(app: typer.Typer) -> None:
    app.command()(jobs)


def connect() -> Client:
    """The service that `--server` or the environment names."""
    return connected(os.environ.get(SERVER), os.environ.get(TOKEN))


def jobs() -> None:
    """List the campaigns of a service: `qbed --server URL jobs`."""
    table = Table(box=None, pad_edge=False)
    for title in ("JOB", "LAB", "PROFILE", "STATE", "CELLS"):
        table.add_column(title, no_wrap=True)
    for job in connect().get("/jobs"):
        cells = "-" if job["cells"] is None else f"{int(job['done'] or 0)} of {job['cells']}"
        state = job["state"] + (f" ({job['exit_status']})" if job["exit_status"] else "")
        table.add_row(str(job["id"]), job["name"], job["request"]["profile"] or "-", state, cells)
    terminal.console().print(table)


def run(
    lab: Path,
    options: RunOptions,
    show: Callable[[int, str], Shown],
    print_result: PrintResult,
    *,
    images: bool,
    fresh: bool,
) -> None:
    """Run a campaign on the service, show it, and bring its results here; ends as `qbed run` does."""
    from qbed.service.submission import bring, submit

    client = connect()
    job = submit(client, lab, options, images=images)
    try:
        outcome, messages = _watch(client, job, show)
        status = int(client.get(f"/jobs/{job}")["exit_status"] or 0)
        if outcome is None:
            raise _EndedError(messages, status)
        place = bring(client, job, options, fresh=fresh)
    except KeyboardInterrupt:
        client.post(f"/jobs/{job}/cancel")
        terminal.print_status(f"stopped; job {job} is cancelled, its finished cells are kept on {client.url}")
        raise typer.Exit(130) from None
    print_result(replace(outcome, report=place / "report.html"), terminal.console(error=True))
    if status:
        raise typer.Exit(status)


class _EndedError(LabError):
    """A job without a conclusion."""

    def __init__(self, messages: list[str], status: int) -> None:
        super().__init__(messages or ["the job was cancelled; its finished cells are kept there"])
        self.exit_status = status or 130


def _watch(client: Client, job: int, show: Callable[[int, str], Shown]) -> tuple[RunResult | None, list[str]]:
    """Show a job's events as those of a run here; its conclusion, or why there is none."""
    outcome: RunResult | None = None
    messages: list[str] = []
    screen: Shown | None = None
    with ExitStack() as stack:
        for event in client.events(job):
            kind = event["event"]
            if kind == "cells" and screen is None:
                screen = show(event["total"], "cells")
                stack.enter_context(screen.bar)
            elif kind == "cells" and screen is not None:
                screen.total(event["total"])
            elif kind == "warnings":
                terminal.warn(event["texts"])
            elif kind == "refused":
                messages = event["messages"]
            elif kind == "attempt":
                messages, outcome = [], None
            elif kind == "concluded":
                outcome = _conclusion(event)
            elif screen is not None:
                _show(screen, event)
    return outcome, messages


def _conclusion(event: Row) -> RunResult:
    from qbed.claims.verdict import Verdict
    from qbed.runs.executor import Totals
    from qbed.runs.experiment import RunResult

    verdicts = [Verdict.model_validate(verdict) for verdict in event["verdicts"]]
    totals, problems = Totals(**event["totals"]), event["problems"]
    return RunResult(totals, verdicts, Path(), event["wall_s"], problems, event["differences"])


def _show(screen: Shown, event: Row) -> None:
    from qbed.runs.worker import Outcome

    match event.pop("event"):
        case "skipped":
            screen.skipped(event["cells"])
        case "damaged":
            screen.damaged(event["files"])
        case "waiting":
            screen.waiting()
        case "progress":
            screen.progress(event["finished"], event["running"])
        case "outcome":
            screen.outcome(Outcome(**event))
        case "phase":
            screen.phase(event["name"])
        case "flushing":
            screen.flushing(event["text"])
