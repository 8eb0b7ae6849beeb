# SPDX-License-Identifier: Apache-2.0
"""`qbed queue` and `qbed cell`: a campaign's cells by their keys, for other schedulers."""

from __future__ import annotations

from typing import Annotated

import typer

from qbed.base import terminal
from qbed.cli.run import CellSpace, LabFolder, StallTimeout, Trust, parse_seeds, parse_settings, parse_space


def register(app: typer.Typer) -> None:
    app.command()(queue)
    app.command()(cell)


def queue(
    lab: LabFolder,
    profile: Annotated[str | None, typer.Option(help="A profile of the campaign, such as `quick` or `paper`.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="FIELD=VALUE", help="A field of the lab, in every cell.")
    ] = None,
    seeds: Annotated[str | None, typer.Option(help="Seeds, such as `1,2,5` or `1..10`.")] = None,
    trust: Trust = False,
) -> None:
    """Queue the plans of a campaign's cells that the store does not have, and print their keys, one per line.

    `qbed cell KEY` runs a cell on any machine that shares the cache. `qbed run` then takes all cells from the store.
    """
    from qbed.runs.experiment import RunOptions, prepare
    from qbed.runs.queued import needed_store, queue_cells
    from qbed.substrates.rebuild import build_changed

    build_changed(terminal.print_status)
    needed_store()
    options = RunOptions(profile, None, parse_seeds(seeds) if seeds else None, parse_settings(set_ or []))
    experiment = prepare(lab, options)
    terminal.warn(experiment.warnings)
    stored_count = 0
    for mark, stored in queue_cells(experiment.task):
        stored_count += stored
        if not stored:
            terminal.print_line(mark)
    terminal.print_status(f"{len(experiment.task.matrix)} cells, {stored_count} of them in the store already")


def cell(
    key: Annotated[str, typer.Argument(help="A key that `qbed queue` printed.")],
    cell_timeout: Annotated[float, typer.Option(min=1, help="Seconds of wall clock for the cell.")] = 3600.0,
    stall_timeout: StallTimeout = 300.0,
    cell_space: CellSpace = "64 GB",
) -> None:
    """Run one cell of the queue into the store, unless the store has it.

    Exit status: 0, the cell is in the store; 1, it failed or is invalid and stays in the queue; 2, no such cell.
    """
    from qbed.runs.queued import run_queued
    from qbed.substrates import Limits

    outcome = run_queued(key, Limits(cell_timeout, stall_timeout, parse_space(cell_space)))
    if outcome.status != "complete":
        terminal.print_errors([f"the cell {outcome.status}: {outcome.error}"])
        raise typer.Exit(1)
    terminal.print_status("it was in the store" if outcome.stored else f"complete, in {outcome.wall_s:.1f} s")
