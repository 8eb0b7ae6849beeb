# SPDX-License-Identifier: Apache-2.0
"""Run untrusted SQL over a run's tables.

Labs, campaigns and run folders are shared between users, and their claims, views and figures contain SQL. It may read
the run's tables, but no other file, network, extension, setting or Python variable. Each query is one SELECT, so it has
no effect on later ones. Time and memory are limited; a query spills to the run folder.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from qbed.storage.run_folder import SPILL

if TYPE_CHECKING:
    import pyarrow as pa

Connection = duckdb.DuckDBPyConnection
SqlRow = tuple[Any, ...]
"""A row of a result; its columns have the types of the query."""

LIMIT_S = 300.0
MEMORY, ON_DISK = "2GiB", "16GiB"
MAX_ROWS = 1_000_000


class LimitError(duckdb.Error):
    """A query exceeded its limit of time or rows."""


class ValueOfSqlError(duckdb.Error):
    """A value of a query has no representation in Python."""


def quoted(name: str) -> str:
    """Quote an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def text(value: object) -> str:
    """Quote an SQL string literal."""
    return "'" + str(value).replace("'", "''") + "'"


def one_line(error: Exception) -> str:
    """DuckDB's message on one line, without the excerpt of the query."""
    return " ".join(str(error).partition("\n\nLINE")[0].split())


def confined(files: Iterable[Path], spill: Path | None = None) -> Connection:
    """A connection that reads these files and reaches nothing else, for good. `spill`: the folder for what does not fit
    into memory; None: nowhere.

    One thread: sums of floats come out equal each time.
    """
    connection = duckdb.connect()
    # In Jupyter without ipywidgets there is no progress bar, and DuckDB refuses to set it.
    if connection.execute("SELECT current_setting('enable_progress_bar')").fetchone() == (True,):
        connection.execute("SET enable_progress_bar = false")
    for setting, value in (
        ("threads", "1"),
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
    """Return `sql` if it is one SELECT; `duckdb.Error` otherwise."""
    with as_duckdb_errors():
        statements = duckdb.extract_statements(sql)
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise duckdb.ParserException("expected one SELECT and nothing else")
    return sql


@contextmanager
def as_duckdb_errors() -> Iterator[None]:
    """Turn every exception of DuckDB or its values in Python (a date before the year 1) into `duckdb.Error`."""
    try:
        yield
    except duckdb.Error:
        raise
    except Exception as error:
        raise ValueOfSqlError(f"{type(error).__name__}: {error}") from error


def first_rows(
    connection: Connection, sql: str, limit: int, parameters: list[object] | None = None
) -> tuple[list[str], list[SqlRow]]:
    """The names of a SELECT's columns and its first rows; `duckdb.Error` if it is invalid or takes too long."""
    with as_duckdb_errors(), _limit(connection):
        result = connection.execute(checked(sql), parameters or [])
        return [column[0] for column in result.description or ()], result.fetchmany(limit)


def arrow(connection: Connection, sql: str) -> pa.Table:
    """The result of a SELECT as an Arrow table; `duckdb.Error` if it is invalid or takes too long."""
    with as_duckdb_errors(), _limit(connection):
        return connection.execute(checked(sql)).to_arrow_table()


def all_rows(
    connection: Connection, sql: str, parameters: list[object] | None = None
) -> tuple[list[str], list[SqlRow]]:
    """The names of a SELECT's columns and all rows; `LimitError` beyond `MAX_ROWS`."""
    names, rows = first_rows(connection, sql, MAX_ROWS + 1, parameters)
    if len(rows) > MAX_ROWS:
        raise LimitError(f"it gives more than {MAX_ROWS} rows")
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
