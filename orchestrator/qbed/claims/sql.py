# SPDX-License-Identifier: Apache-2.0
"""SQL of somebody else's, over a run's tables and nothing more.

Labs, campaigns and run folders are passed around, and their claims, views and figures are SQL that runs here. It may
read the run's own tables; no other file, no network, no extension, no setting, no Python variable. Each is one SELECT,
so none leaves anything behind for the next. Time and memory have a limit; what does not fit into memory goes to the run
folder.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb

from qbed.results.folder import SPILL

Connection = duckdb.DuckDBPyConnection

LIMIT_S = 300.0
MEMORY, ON_DISK = "2GiB", "16GiB"
MOST_ROWS = 1_000_000


class LimitError(duckdb.Error):
    """A query that took too long, or gave too much."""


class ValueOfSqlError(duckdb.Error):
    """What a query asks for or gives is nothing that Python has."""


def quoted(name: str) -> str:
    """A name as SQL has it."""
    return '"' + name.replace('"', '""') + '"'


def text(value: object) -> str:
    """A text as SQL has it."""
    return "'" + str(value).replace("'", "''") + "'"


def said(error: Exception) -> str:
    """What DuckDB says, without the picture of the line, in one line."""
    return " ".join(str(error).partition("\n\nLINE")[0].split())


def confined(files: Iterable[Path], spill: Path | None = None) -> Connection:
    """A connection that reads these files and reaches nothing else, for good. `spill`: the folder for what does not fit
    into memory; None: nowhere.

    One thread: sums of floats come out equal each time.
    """
    connection = duckdb.connect()
    for setting, value in (
        ("threads", "1"),
        ("enable_progress_bar", "false"),
        ("python_enable_replacements", "false"),
        ("memory_limit", text(MEMORY)),
        ("temp_directory", text("" if spill is None else spill / SPILL.format(secrets.token_hex(4)))),
        ("max_temp_directory_size", text(ON_DISK)),
        ("allowed_paths", f"[{', '.join(text(file) for file in files)}]"),
        ("enable_external_access", "false"),
        ("lock_configuration", "true"),
    ):
        connection.execute(f"SET {setting} = {value}")
    return connection


def checked(sql: str) -> str:
    """The same, if it is one SELECT; `duckdb.Error` otherwise."""
    with foreseen():
        statements = duckdb.extract_statements(sql)
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise duckdb.ParserException("expected one SELECT and nothing else")
    return sql


@contextmanager
def foreseen() -> Iterator[None]:
    """Whatever SQL makes DuckDB or its values in Python raise, a date before the year 1 or half a character, is a
    `duckdb.Error`.
    """
    try:
        yield
    except duckdb.Error:
        raise
    except Exception as error:
        raise ValueOfSqlError(f"{type(error).__name__}: {error}") from error


def first_rows(
    connection: Connection, sql: str, most: int, parameters: list[Any] | None = None
) -> tuple[list[str], list[tuple[Any, ...]]]:
    """The names of a SELECT's columns and its first rows; `duckdb.Error` if it is wrong, or takes too long."""
    with foreseen(), _limit(connection):
        result = connection.execute(checked(sql), parameters or [])
        return [column[0] for column in result.description or ()], result.fetchmany(most)


def arrow(connection: Connection, sql: str) -> Any:
    """What a SELECT gives, as an Arrow table; `duckdb.Error` if it is wrong, or takes too long."""
    with foreseen(), _limit(connection):
        return connection.execute(checked(sql)).to_arrow_table()


def all_rows(
    connection: Connection, sql: str, parameters: list[Any] | None = None
) -> tuple[list[str], list[tuple[Any, ...]]]:
    """The same with all rows, if there are not too many."""
    names, rows = first_rows(connection, sql, MOST_ROWS + 1, parameters)
    if len(rows) > MOST_ROWS:
        raise LimitError(f"it gives more than {MOST_ROWS} rows")
    return names, rows


@contextmanager
def _limit(connection: Connection) -> Iterator[None]:
    watch = threading.Timer(LIMIT_S, connection.interrupt)
    watch.daemon = True
    watch.start()
    try:
        yield
    except duckdb.InterruptException:
        raise LimitError(f"it took longer than {LIMIT_S:g} s") from None
    finally:
        watch.cancel()
