# SPDX-License-Identifier: Apache-2.0
"""`qbed diff`: where two runs part."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from qbed import terminal

Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")]


def register(app: typer.Typer) -> None:
    app.command()(diff)


def diff(one: Run, other: Run) -> None:
    """Compare what the cells of two runs did, and say of the first that differs which record did so first.

    With `observe: {queues: every packet}` that is a packet. Exit status: 0, all did the same; 1, they did not.
    """
    from qbed.claims.diff import Difference

    compared = differing = 0
    with Difference(one, other) as difference:
        for name, numbers, same in difference.cells():
            compared += 1
            if same:
                continue
            differing += 1
            if differing == 1:
                found = difference.parting(numbers) or "only in what was not observed: `observe` more"
                terminal.say(f"cell {name}\n  {found}")
    terminal.tell(f"{compared} cells in both, {differing} of them did something else")
    if differing:
        raise typer.Exit(1)
