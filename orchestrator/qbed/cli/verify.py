# SPDX-License-Identifier: Apache-2.0
"""`qbed verify`: check a run folder against its checksums."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from qbed.base import terminal


def register(app: typer.Typer) -> None:
    app.command()(verify)


def verify(folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")]) -> None:
    """Check every file of a run's cells and its merged tables against the checksums that were written with them.

    Print a line for each damaged or missing file. Exit status 1: there is one.
    """
    from qbed.storage.checksums import REMEDY
    from qbed.storage.identity import StoreError
    from qbed.storage.run_folder import RunFolder

    damaged = 0
    try:
        for error in RunFolder(folder).verify():
            terminal.print_line(f"{error.file} {error.what}")
            damaged += 1
    except StoreError as error:
        terminal.print_errors([error])
        raise typer.Exit(1) from None
    if damaged:
        terminal.print_status(f"damaged files: {damaged}; {REMEDY}")
        raise typer.Exit(1)
    terminal.print_status(f"{folder}: all files are undamaged")
