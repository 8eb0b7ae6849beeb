# SPDX-License-Identifier: Apache-2.0
"""Probes of the machine's processor and kernel: register state, huge pages."""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import tempfile
from pathlib import Path

HUGE_BYTES = 2 << 20
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_LIBC.ptrace.restype = ctypes.c_long
_LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *([ctypes.c_int] * 3), ctypes.c_long]
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_TRACEME, _GETREGSET, _NT_X86_XSTATE = 0, 0x4204, 0x202
_MADV_COLLAPSE, _MAP_FIXED = 25, 16
_ROOM_BYTES = 1 << 16


class _Iovec(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def xstate_bytes() -> int | None:
    """The size of a process's register state (XSTATE): 832 with AVX, 11,008 with AMX. None: it cannot be read."""
    child = os.fork()
    if child == 0:
        _LIBC.ptrace(_TRACEME, 0, None, None)
        os.kill(os.getpid(), signal.SIGSTOP)
        os._exit(0)
    try:
        os.waitpid(child, os.WUNTRACED)
        buffer = ctypes.create_string_buffer(_ROOM_BYTES)
        vector = _Iovec(ctypes.addressof(buffer), _ROOM_BYTES)
        if _LIBC.ptrace(_GETREGSET, child, _NT_X86_XSTATE, ctypes.addressof(vector)) != 0:
            return None
        return int(vector.length)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def has_huge_pages(folder: Path) -> bool:
    """Whether files in `folder` can be mapped by huge pages on demand: MADV_COLLAPSE, Linux 6.1 or later, on tmpfs."""
    with tempfile.TemporaryFile(dir=folder) as file, mmap.mmap(-1, 2 * HUGE_BYTES) as room:
        file.truncate(HUGE_BYTES)
        begin = ctypes.addressof(ctypes.c_char.from_buffer(room))
        aligned = begin + -begin % HUGE_BYTES  # the file's offset and the address have to be congruent
        both = mmap.PROT_READ | mmap.PROT_WRITE
        if _LIBC.mmap(aligned, HUGE_BYTES, both, mmap.MAP_SHARED | _MAP_FIXED, file.fileno(), 0) != aligned:
            return False
        ctypes.memset(aligned, 0, 1)  # a hole is not collapsed
        return bool(_LIBC.madvise(aligned, HUGE_BYTES, _MADV_COLLAPSE) == 0)
