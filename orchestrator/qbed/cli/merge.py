# SPDX-License-Identifier: Apache-2.0
"""`qbed merge`: one run of what several machines ran, a part each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from qbed.base import terminal
from qbed.cli.run import LabFolder, Trust, parse_seeds, parse_settings
from qbed.cli.screen import Failing, FailOn, Junit, Screen, Summary, print_result, write_ci_files


def register(app: typer.Typer) -> None:
    app.command()(merge)


def merge(
    lab: LabFolder,
    shards: Annotated[list[Path], typer.Argument(metavar="SHARD...", help="Run folders of `qbed run --shard`.")],
    profile: Annotated[str | None, typer.Option(help="The profile of the shards.")] = None,
    out: Annotated[Path | None, typer.Option(help="The run folder to write.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="FIELD=VALUE", help="The value with which the shards were run.")
    ] = None,
    seeds: Annotated[str | None, typer.Option(help="The value with which the shards were run.")] = None,
    images: Annotated[bool, typer.Option(help="Also write the figures as files.")] = True,
    locked: Annotated[bool, typer.Option("--locked", help="Fail if a cell differs from the campaign's lock.")] = False,
    trust: Trust = False,
    junit: Junit = None,
    summary: Summary = None,
    fail_on: Failing = FailOn.claims,
) -> None:
    """Merge the cells of a campaign's shards, judge its claims and write the report, as `qbed run` does.

    No cell is run, and the shards are not changed. Exit status: as `qbed run`; 1 also if a cell is in no shard.
    """
    from qbed.runs.executor.local import LocalExecutor
    from qbed.runs.experiment import RunOptions, prepare, run_campaign
    from qbed.storage.run_folder import RunFolder

    options = RunOptions(
        profile, out, parse_seeds(seeds) if seeds else None, parse_settings(set_ or []), store=False,
        lock="compare" if locked else None,
    )  # fmt: skip
    experiment = prepare(lab, options)
    terminal.warn(experiment.warnings)
    screen = Screen(len(experiment.task.matrix), "cells")
    folders = [RunFolder(shard) for shard in shards]
    with screen.bar:
        outcome = run_campaign(experiment, LocalExecutor([]), screen, images=images, shards=folders)
    print_result(outcome, screen.console)
    write_ci_files([(experiment, outcome)], [], junit, summary)
    if outcome.failed(fail_on.value):
        raise typer.Exit(1)
