# SPDX-License-Identifier: Apache-2.0
"""What nobody foresaw: a fault of qbed itself is one line for the user, and a log for whoever mends it."""

from __future__ import annotations

import errno
import os
import sqlite3
import sys
import tempfile
import time
import traceback
from pathlib import Path

from qbed import __version__
from qbed.remembered import cache_folder

REPORT = "please report it with that file to those who keep this copy of qbed (docs/security.md, if it may be a hole)"

_NO_ROOM = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE)


def explain(error: BaseException) -> str:
    """One line about a fault, with the path of its log."""
    what = f"a fault in qbed: {brief(error)}"
    try:
        return f"{what}; its traceback is in {_log(error)}: {REPORT}"
    except OSError as problem:
        return f"{what}; its traceback could not be kept ({problem.strerror})"


def brief(error: BaseException) -> str:
    """An error's type and what it says, in one line."""
    said = " ".join(str(error).split())
    return f"{type(error).__name__}: {said[:300]}" if said else type(error).__name__


def of_files(error: OSError) -> str:
    """What the file system said, in one line."""
    reason = error.strerror or " ".join(str(error).split())
    names = [str(name) for name in (error.filename, error.filename2) if name is not None]
    return f"{' and '.join(names)}: {reason[:1].lower()}{reason[1:]}" if names else reason


def is_full(error: BaseException) -> bool:
    """Whether a disk has no room, or none for this user: whatever was tried can be tried again when there is some."""
    if isinstance(error, sqlite3.OperationalError):
        return getattr(error, "sqlite_errorcode", None) in _NO_ROOM
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def _log(error: BaseException) -> Path:
    """Write the log: into the cache's folder, or where temporary files go."""
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
