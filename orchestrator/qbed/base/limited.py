# SPDX-License-Identifier: Apache-2.0
"""Run a function in a child process with limits of time and memory that hold whatever the function does.

A library may ignore an interrupt, or allocate memory that its own limit does not count. The kernel limits the child's
address space, and the parent kills a child that takes too long.
"""

from __future__ import annotations

import mmap
import os
import pickle
import resource
import select
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn, TypeVar

from qbed.base.processes import end_with_parent

Result = TypeVar("Result")
_PIPE_BYTES = 1 << 20


class TimeLimitError(Exception):
    """The function took longer than its limit; it was killed."""


class MemoryLimitError(Exception):
    """The function needed more memory than its limit, or the child died (a failed allocation may abort it)."""


def run_limited(function: Callable[[], Result], seconds: float, memory_bytes: int) -> Result:
    """Return the function's result, which is pickled, or raise its exception.

    `memory_bytes`: how far the address space may grow. Raises `TimeLimitError` or `MemoryLimitError` beyond the limits.
    """
    end = time.monotonic() + seconds
    parent = os.getpid()
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        _run_child(function, parent, writer, memory_bytes)
    try:
        os.close(writer)
        answer = _read(reader, end)
    finally:
        os.close(reader)
        os.kill(child, signal.SIGKILL)  # not yet waited for, so the number is still its own
        os.waitpid(child, 0)
    try:
        succeeded, value = pickle.loads(answer)
    except Exception:
        raise MemoryLimitError from None
    if succeeded:
        result: Result = value
        return result
    raise MemoryLimitError if isinstance(value, MemoryError) else value


def _read(reader: int, end: float) -> bytes:
    parts = list[bytes]()
    while select.select([reader], [], [], max(0.0, end - time.monotonic()))[0]:
        part = os.read(reader, _PIPE_BYTES)
        if not part:
            return b"".join(parts)
        parts.append(part)
    raise TimeLimitError


def _run_child(function: Callable[[], object], parent: int, writer: int, memory_bytes: int) -> NoReturn:
    status = 1
    try:
        for number in (signal.SIGINT, signal.SIGTERM):  # of the terminal's group: the parent ends this process
            signal.signal(number, signal.SIG_IGN)
        if end_with_parent(parent, signal.SIGKILL):
            _limit_memory(memory_bytes)
            _write(writer, _answer(function))
            status = 0
    finally:
        os._exit(status)


def _answer(function: Callable[[], object]) -> bytes:
    try:
        return pickle.dumps((True, function()), pickle.HIGHEST_PROTOCOL)
    except BaseException as error:
        failure = error
    try:
        answer = pickle.dumps((False, failure))
        pickle.loads(answer)
    except Exception:
        return pickle.dumps((False, RuntimeError(f"{type(failure).__name__}: {failure}")))
    return answer


def _write(writer: int, answer: bytes) -> None:
    rest = memoryview(answer)
    while rest:
        rest = rest[os.write(writer, rest) :]


def _limit_memory(more: int) -> None:
    """Limit the address space to so many bytes more than now, or to a lower limit that is already set."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * mmap.PAGESIZE + more
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    for former in (soft, hard):
        limit = limit if former == resource.RLIM_INFINITY else min(limit, former)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
