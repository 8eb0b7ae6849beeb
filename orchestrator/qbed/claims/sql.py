# SPDX-License-Identifier: Apache-2.0
"""Run untrusted SQL over a run's tables.

Labs, campaigns and run folders are shared between users, and their claims, views and figures contain SQL. It may read
the run's tables, but no other file, network, extension, setting or Python variable. Each query is one SELECT, so it has
no effect on later ones. A query runs in a child process: DuckDB's memory limit does not count the strings and lists of
a row, and its interrupt does not reach a running function. It spills to the run folder, which has a limit, too.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import duckdb

from qbed.base.limited import MemoryLimitError, TimeLimitError, run_limited
from qbed.storage.run_folder import SPILL

if TYPE_CHECKING:
    import pyarrow as pa

Connection = duckdb.DuckDBPyConnection
SqlRow = tuple[Any, ...]
"""A row of a result; its columns have the types of the query."""

Result = TypeVar("Result")

GIB = 1 << 30
LIMIT_S = 300.0
MEMORY_BYTES = 2 * GIB
"""DuckDB's limit; beyond it, a query spills."""
ADDRESS_BYTES = 3 * GIB
"""Limit of the query's address space: DuckDB's memory, and what it does not count."""
DISK_BYTES = 16 * GIB
"""Limit of a query's spilled data, of which half the free space is another one."""
MAX_ROWS = 1_000_000


class LimitError(duckdb.Error):
    """A query exceeded its limit of time, memory, disk or rows."""


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
        ("memory_limit", text(f"{MEMORY_BYTES}B")),
        ("temp_directory", text("" if spill is None else spill / SPILL.format(secrets.token_hex(4)))),
        ("max_temp_directory_size", text(f"{_disk_bytes(spill)}B")),
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


def _disk_bytes(spill: Path | None) -> int:
    return DISK_BYTES if spill is None else min(DISK_BYTES, shutil.disk_usage(spill).free // 2)


@contextmanager
def as_duckdb_errors() -> Iterator[None]:
    """Turn every exception of DuckDB or its values in Python (a date before the year 1) into `duckdb.Error`.

    DuckDB wraps an exception of a signal's handler, such as KeyboardInterrupt, into a RuntimeError.
    """
    try:
        yield
    except (duckdb.Error, MemoryError):
        raise
    except Exception as error:
        if error.__cause__ is not None and not isinstance(error.__cause__, Exception):
            raise error.__cause__ from None
        raise ValueOfSqlError(f"{type(error).__name__}: {error}") from error


def first_rows(
    connection: Connection, sql: str, limit: int, parameters: list[object] | None = None
) -> tuple[list[str], list[SqlRow]]:
    """The names of a SELECT's columns and its first rows; `duckdb.Error` if it is invalid or exceeds a limit."""

    def fetch() -> tuple[list[str], list[SqlRow]]:
        result = connection.execute(checked(sql), parameters or [])
        return [column[0] for column in result.description or ()], result.fetchmany(limit)

    return _limited(connection, fetch)


def arrow(connection: Connection, sql: str) -> pa.Table:
    """The result of a SELECT as an Arrow table; `duckdb.Error` if it is invalid or exceeds a limit."""
    return _limited(connection, lambda: connection.execute(checked(sql)).to_arrow_table())


def columns(connection: Connection, sql: str) -> dict[str, str]:
    """The names and types of the columns of a SELECT, which is bound and not run; `duckdb.Error` if it is invalid.

    Binding computes constants, so it has the limits of a query.
    """

    def describe() -> dict[str, str]:
        return {row[0]: row[1] for row in connection.execute(f"DESCRIBE {checked(sql)}").fetchall()}

    return _limited(connection, describe)


def create_view(connection: Connection, name: str, sql: str) -> None:
    """Make a view of trusted SQL; `duckdb.Error` if it is invalid."""
    with as_duckdb_errors():
        connection.execute(f"CREATE VIEW {quoted(name)} AS {checked(sql)}")


def define(connection: Connection, name: str, sql: str) -> None:
    """Make a view of untrusted SQL; `duckdb.Error` if it is invalid, or if binding it exceeds a limit."""
    _limited(connection, lambda: create_view(connection, name, sql))
    create_view(connection, name, sql)


def all_rows(
    connection: Connection, sql: str, parameters: list[object] | None = None
) -> tuple[list[str], list[SqlRow]]:
    """The names of a SELECT's columns and all rows; `LimitError` beyond `MAX_ROWS`."""
    names, rows = first_rows(connection, sql, MAX_ROWS + 1, parameters)
    if len(rows) > MAX_ROWS:
        raise LimitError(f"it gives more than {MAX_ROWS} rows")
    return names, rows


def _limited(connection: Connection, query: Callable[[], Result]) -> Result:
    """Run a query in a child process within the limits."""

    def run() -> Result:
        with as_duckdb_errors():
            return query()

    try:
        return run_limited(run, LIMIT_S, ADDRESS_BYTES)
    except duckdb.OutOfMemoryException as error:
        raise _memory_error(str(error)) from None
    except TimeLimitError:
        raise LimitError(f"it took longer than {LIMIT_S:g} s") from None
    except MemoryLimitError:
        raise _memory_error("") from None
    finally:
        _remove_spilled(connection)


def _memory_error(text: str) -> LimitError:
    """One message for DuckDB's limit, the disk's and the address space's."""
    if "max_temp_directory_size" in text:
        return LimitError(f"it spills more than {DISK_BYTES / GIB:.3g} GiB, or half of the free space, to disk")
    return LimitError(f"it needs more than {MEMORY_BYTES / GIB:.3g} GiB of memory")


def _remove_spilled(connection: Connection) -> None:
    """Remove what a query has spilled: its process ends without DuckDB's cleanup."""
    row = connection.execute("SELECT current_setting('temp_directory')").fetchone()
    if row is not None and row[0]:
        shutil.rmtree(row[0], ignore_errors=True)
