# SPDX-License-Identifier: Apache-2.0
"""Unhandled exceptions: one line for the user, and a traceback in a log file."""

from __future__ import annotations

import errno
import io
import os
import sqlite3
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

from qbed import __version__
from qbed.base.cache import cache_folder

REPORT = (
    "please report it with that file to the maintainers of this copy of qbed"
    " (docs/security.md if it may be a vulnerability)"
)

_NO_ROOM = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE)


def explain(error: BaseException) -> str:
    """Return one line about an unhandled exception, with the path of its log."""
    text = f"internal error in qbed: {describe_exception(error)}"
    try:
        return f"{text}; its traceback is in {_log(error)}: {REPORT}"
    except OSError as problem:
        return f"{text}; its traceback could not be saved ({problem.strerror})"


def describe_exception(error: BaseException) -> str:
    """Return an exception's type and message on one line."""
    message = " ".join(str(error).split())
    return f"{type(error).__name__}: {message[:300]}" if message else type(error).__name__


def describe_system_error(error: BaseException) -> str | None:
    """Return the message of a system error of Python or DuckDB on one line; None for other errors."""
    if isinstance(error, OSError) and error.errno is not None:
        return describe_os_error(error)
    duckdb = sys.modules.get("duckdb")
    if duckdb is not None and isinstance(error, duckdb.IOException):
        return " ".join(str(error).partition("\n")[0].removeprefix("IO Error: ").split())
    return None


def describe_os_error(error: OSError) -> str:
    """Return the message of a file system error on one line."""
    reason = error.strerror or " ".join(str(error).split())
    names = [str(name) for name in (error.filename, error.filename2) if name is not None] or list(_paths(error))[-1:]
    return f"{' and '.join(names)}: {reason[:1].lower()}{reason[1:]}" if names else reason


def _paths(error: OSError) -> Iterator[str]:
    """The files of the frames that an error has passed: a read, write or fsync has no name in its error."""
    trace = error.__traceback__
    while trace is not None:
        for value in trace.tb_frame.f_locals.values():
            name = value if isinstance(value, Path) else getattr(value, "name", None)
            opened = isinstance(value, io.IOBase) and isinstance(name, str)
            if opened or (isinstance(value, Path) and trace.tb_frame.f_code.co_filename.endswith("pathlib.py")):
                yield str(name)
        trace = trace.tb_next


def is_full(error: BaseException) -> bool:
    """Whether an error means that the disk or the user's quota is full; the operation can be retried later."""
    if isinstance(error, sqlite3.OperationalError):
        return getattr(error, "sqlite_errorcode", None) in _NO_ROOM
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def _log(error: BaseException) -> Path:
    """Write the log to the cache folder, or to the folder of temporary files."""
    text = f"qbed {__version__}, Python {sys.version}\n{sys.argv!r}\n\n{''.join(traceback.format_exception(error))}"
    name = time.strftime(f"%Y%m%d-%H%M%S-{os.getpid()}-")
    for folder in (cache_folder() / "faults", Path(tempfile.gettempdir())):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            descriptor, path = tempfile.mkstemp(".log", name, folder)
        except OSError as problem:
            failed = problem
            continue
        with os.fdopen(descriptor, "w", errors="backslashreplace") as file:
            file.write(text)
        return Path(path)
    raise failed
