# SPDX-License-Identifier: Apache-2.0
"""The lock that serializes builds. A process that waits for it reports at once what it waits for.

The lock's file holds the owner's line, `PID TIME WHAT`, as tools/build-lock writes and reads it.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_LINE_BYTES = 1000


@contextmanager
def build_lock(file: Path, what: str, report: Callable[[str], None]) -> Iterator[None]:
    """Hold the lock on a file. `what`: what the caller does with it, for processes that wait. `report`: called before
    waiting, with the process that has the lock.
    """
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report(_waiting(file, os.pread(descriptor, _LINE_BYTES, 0).decode(errors="replace")))
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()} {time.strftime('%H:%M:%S')} {what}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _waiting(file: Path, line: str) -> str:
    """The message of a process that waits, by the owner's line."""
    match line.strip().split(" ", 2):
        case [pid, since, what]:
            return f"waiting for process {pid}, which is {what} since {since}"
        case _:
            return f"waiting for another process, which has locked {file}"
