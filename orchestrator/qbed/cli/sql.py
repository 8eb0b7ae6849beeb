# SPDX-License-Identifier: Apache-2.0
"""`qbed sql`: run an SQL query on a run's tables, with the same views as claims and figures."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Annotated

import typer

from qbed.base import terminal
from qbed.base.errors import QbedError
from qbed.cli.run import Trust

WIDEST = 10_000
"""Columns of characters: a narrower terminal gets whole lines, too, never a table with a column less."""


def register(app: typer.Typer) -> None:
    app.command()(sql)


def sql(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    select: Annotated[
        str, typer.Argument(metavar="SELECT", help="A SELECT of DuckDB over the run's tables and its campaign's views.")
    ],
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    trust: Trust = False,
) -> None:
    """Query a run's tables: `cells`, `flows`, `queues`, ... of complete cells, each row with its cell's axes."""
    import duckdb
    from rich.table import Table

    from qbed.claims.sql import all_rows, one_line
    from qbed.claims.views import connect

    with connect(folder) as connection:
        try:
            names, rows = all_rows(connection, select)
        except duckdb.Error as error:
            raise QbedError(f"the SQL fails: {one_line(error)}") from None
    if as_csv:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([names, *rows])
        terminal.write_stdout(text.getvalue())
        return
    table = Table(box=None, pad_edge=False)
    for name, first in zip(names, rows[0] if rows else names, strict=True):
        table.add_column(name, justify="right" if isinstance(first, int | float) else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(_shown(value) for value in row))
    console = terminal.console()
    width = console.measure(table, options=console.options.update(width=WIDEST)).maximum
    terminal.console(width=max(console.width, width)).print(table)


def _shown(value: object) -> str:
    """Floats with four significant digits."""
    return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
