# SPDX-License-Identifier: Apache-2.0
"""`qbed labs` and `qbed new`: the labs of qbed, and copies of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from qbed.base import terminal
from qbed.lab.library import create, entries, find


def register(app: typer.Typer) -> None:
    app.command()(labs)
    app.command()(new)


def labs() -> None:
    """List the included labs and their questions. `qbed run NAME` runs one."""
    table = Table(box=None, pad_edge=False)
    for title in ("LAB", "QUESTION", "PROFILES", "NEEDS"):
        table.add_column(title, no_wrap=title == "LAB", ratio=1 if title == "QUESTION" else None)
    for entry in entries():
        others = "".join(f"\nalso {entry.name}/{name}" for name in entry.others)
        table.add_row(entry.name, entry.question, " ".join(entry.profiles) + others, " ".join(entry.needs) or "-")
    terminal.console().print(table)


def new(
    name: Annotated[Path, typer.Argument(metavar="NAME", help="The folder to write. Its name is the lab's name.")],
    like: Annotated[Path, typer.Option("--like", metavar="LAB", help="The lab that is copied.")] = Path("dumbbell"),
) -> None:
    """Write a lab folder to start from. Nothing is overwritten."""
    create(name, find(like))
    terminal.print_line(f"{name} is written: qbed run {name}")
