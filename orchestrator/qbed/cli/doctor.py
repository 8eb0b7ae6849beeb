# SPDX-License-Identifier: Apache-2.0
"""`qbed doctor`: what this machine lacks, and how to fix it."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from qbed.base import terminal

_MARKS = {"good": ("ok", "green"), "optional": ("optional", "yellow"), "missing": ("missing", "red")}


def register(app: typer.Typer) -> None:
    app.command()(doctor)


def doctor(
    on: Annotated[
        str | None, typer.Option("--on", help="A substrate (default: all, of which only virtual time is required).")
    ] = None,
) -> None:
    """Check the machine, and print missing parts with their remedies.

    Exit status 1: a required part is missing.
    """
    from qbed.runs.doctor import examine_machine

    screen = terminal.console(soft_wrap=True)
    bad = False
    for finding in examine_machine(on):
        bad = bad or finding.state == "missing"
        mark, colour = _MARKS[finding.state]
        screen.print(Text.assemble((f"{mark:8}", colour), "  ", (finding.name, "bold"), f": {finding.text}"))
        if finding.fix:
            screen.print(f"            fix: {finding.fix}")
    raise typer.Exit(1 if bad else 0)
