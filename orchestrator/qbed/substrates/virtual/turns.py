# SPDX-License-Identifier: Apache-2.0
"""Turns of parts that share a core."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

_LIBC = ctypes.CDLL(None, use_errno=True)
_SCHED_SETATTR = 314
"""The system call's number on x86-64, the guests' architecture."""
SLICE_NS = 100_000_000
"""The longest slice that Linux grants, from 6.12 on (`sched_setattr(2)`)."""


class _Attributes(ctypes.Structure):
    """`struct sched_attr` of `sched_setattr(2)`."""

    _fields_ = (
        ("size", ctypes.c_uint32),
        ("policy", ctypes.c_uint32),
        ("flags", ctypes.c_uint64),
        ("nice", ctypes.c_int32),
        ("priority", ctypes.c_uint32),
        ("runtime_ns", ctypes.c_uint64),
        ("deadline_ns", ctypes.c_uint64),
        ("period_ns", ctypes.c_uint64),
    )


def _set(policy: int, slice_ns: int) -> None:
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    attributes = _Attributes(ctypes.sizeof(_Attributes), policy, 0, nice, 0, slice_ns, 0, 0)
    _LIBC.syscall(_SCHED_SETATTR, 0, ctypes.byref(attributes), 0)


@contextmanager
def long_turns() -> Iterator[None]:
    """Let children that start meanwhile run until they wait, as far as the machine allows: each turn of a part loads
    its working set into the caches again. A thread with another policy than the normal one keeps it.
    """
    if os.sched_getscheduler(0) != os.SCHED_OTHER:
        yield
        return
    _set(os.SCHED_BATCH, SLICE_NS)
    try:
        yield
    finally:
        _set(os.SCHED_OTHER, 0)
