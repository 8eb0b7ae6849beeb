# SPDX-License-Identifier: Apache-2.0
"""`qbed store`: the finished cells that no run runs again."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer
from rich.filesize import decimal

from qbed.base import terminal
from qbed.cli.run import parse_space

if TYPE_CHECKING:  # loading it takes longer than most commands
    from qbed.storage.cell_store import CellStore

commands = typer.Typer(help="The store of finished cells, which runs reuse.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    app.add_typer(commands, name="store")


def _store() -> CellStore:
    from qbed.base.errors import QbedError
    from qbed.storage.cell_store import default_store

    found = default_store()
    if found is None:
        raise QbedError("QBED_STORE is `off`: there is no store")
    return found


@commands.command()
def ls() -> None:
    """List the cells by the time of their last use, with their sizes."""
    store = _store()
    cells = sorted(store.cells(), key=lambda cell: cell.used_s, reverse=True)
    for cell in cells:
        used = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(cell.used_s))
        terminal.print_line(f"{cell.key[:16]}  {used}  {decimal(cell.size_bytes)}")
    total = decimal(sum(cell.size_bytes for cell in cells))
    terminal.print_status(f"{len(cells)} cells, {total} of at most {decimal(store.max_bytes)}, in {store.folder}")


@commands.command()
def gc(
    size: Annotated[
        str | None, typer.Option(metavar="SIZE", help="What may stay; what QBED_STORE says without it.")
    ] = None,
) -> None:
    """Remove the least recently used cells beyond the limit. Each run does so at its end."""
    removed = _store().shrink(None if size is None else parse_space(size))
    terminal.print_status(f"thrown away: {len(removed)} cells, {decimal(sum(cell.size_bytes for cell in removed))}")


@commands.command()
def verify() -> None:
    """Check every file of every cell against its checksum, and remove damaged cells.

    Exit status: 0, all files are undamaged; 1, some are damaged.
    """
    damaged = 0
    for error in _store().verify():
        terminal.print_line(f"{error.file} {error.what}")
        damaged += 1
    if damaged:
        terminal.print_status(f"damaged files: {damaged}; their cells are thrown away")
        raise typer.Exit(1)
    terminal.print_status("all files are undamaged")
