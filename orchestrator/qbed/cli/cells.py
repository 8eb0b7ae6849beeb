# SPDX-License-Identifier: Apache-2.0
"""`qbed cells`: the cells of a run, finished or going on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from qbed.base import terminal


def register(app: typer.Typer) -> None:
    app.command()(cells)


def cells(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object per line.")] = False,
) -> None:
    """List the cells that have ended, with their axes, status and results, also during the run."""
    from qbed.storage.listing import Listing, lines

    listing = Listing(folder)
    try:
        for line in (json.dumps(row) for row in listing.rows()) if as_json else lines(listing):
            terminal.write_stdout(line + "\n")
        terminal.flush()
    except BrokenPipeError:  # the reader has closed the pipe
        terminal.discard_stdout()
    else:
        terminal.print_status(listing.summary())
