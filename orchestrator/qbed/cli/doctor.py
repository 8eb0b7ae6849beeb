# SPDX-License-Identifier: Apache-2.0
"""`qbed doctor`: what this machine lacks, and how to mend it."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

_MARKS = {"good": "[green]ok[/]      ", "optional": "[yellow]optional[/]", "missing": "[red]missing[/] "}


def register(app: typer.Typer) -> None:
    app.command()(doctor)


def doctor(
    on: Annotated[
        str | None, typer.Option("--on", help="A substrate; all of them without it, and only virtual time is needed.")
    ] = None,
) -> None:
    """Say what this machine lacks, and how to mend it.

    Exit status 1: something that is needed is missing.
    """
    from qbed.runs.doctor import examine_machine

    console = Console(soft_wrap=True, highlight=False)
    bad = False
    for finding in examine_machine(on):
        bad = bad or finding.state == "missing"
        console.print(f"{_MARKS[finding.state]}  [bold]{finding.name}[/]: ", end="")
        console.print(finding.text, markup=False)
        if finding.mend:
            console.print(f"            mend: {finding.mend}", markup=False)
    raise typer.Exit(1 if bad else 0)
