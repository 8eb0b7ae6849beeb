# SPDX-License-Identifier: Apache-2.0
"""`qbed diff`: the first difference of two runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from qbed.base import terminal

Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")]


def register(app: typer.Typer) -> None:
    app.command()(diff)


def diff(first: Run, second: Run) -> None:
    """Compare the traces of the cells of two runs. Print the settings and the first different record of the first cell
    that differs.

    With `observe: {queues: every packet}` the record is a packet. Exit status 1: a cell differs.
    """
    from qbed.claims.diff import Difference

    compared = differing = of_other_inputs = 0
    with Difference(first, second) as difference:
        for name, numbers, same in difference.cells():
            compared += 1
            inputs = difference.inputs(numbers) if same or not differing else []
            if same:
                of_other_inputs += bool(inputs)
                continue
            differing += 1
            if differing == 1:
                found = difference.first_difference(numbers) or "only in what was not observed: `observe` more"
                terminal.print_line("\n".join([f"cell {name}", *(f"  {each}" for each in inputs), f"  {found}"]))
    equal = (
        f"; {of_other_inputs} have equal traces in spite of other settings or another toolchain"
        if of_other_inputs
        else ""
    )
    terminal.print_status(f"{compared} cells in both, {differing} with different traces{equal}")
    if differing:
        raise typer.Exit(1)
