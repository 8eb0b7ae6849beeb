# SPDX-License-Identifier: Apache-2.0
"""The memory of guests: files without a name in memory of the machine (kernel patch `memory`).

New pages must be cleared by the machine, and a virtual machine may have to get them from its host first. A process
that runs many cells therefore keeps the files of guests that ended. Their content does not matter to the next guest,
which initializes what it reads (docs/decisions/0066-memory-of-a-guest-that-ended-serves-the-next.md).
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from qbed.substrates import CellError

MEMORY_FD = 240
"""The lowest descriptor of a guest's memory."""
_FOLDERS = Path("/dev/shm"), Path("/tmp"), Path("/var/tmp")


@dataclass(frozen=True)
class GuestMemory:
    """The file of a guest's memory. It has no size before its first guest."""

    folder: Path
    descriptor: int

    def fits(self, needed: int) -> bool:
        """Whether the file may take `needed` bytes, with those that it has."""
        return shutil.disk_usage(self.descriptor).free + 512 * os.fstat(self.descriptor).st_blocks >= needed


_kept: list[GuestMemory] = []
_scopes: list[object] = []


def memory_folder(needed: int) -> Path | None:
    """A folder for a guest's memory: mapped executable, it may grow to `needed` bytes. None: none fits."""
    for folder in _FOLDERS:
        with suppress(OSError):
            is_executable = not os.statvfs(folder).f_flag & os.ST_NOEXEC
            if os.access(folder, os.W_OK) and is_executable and shutil.disk_usage(folder).free >= needed:
                return folder
    return None


@contextmanager
def kept_memory() -> Iterator[None]:
    """Keep the memory of guests that end for the next ones, until the end of this context.

    A guest sets its file's size to its own, and files that a cell has no guest for are closed, so a process never has
    more memory than one cell needs.
    """
    scope = object()
    _scopes.append(scope)
    try:
        yield
    finally:
        _scopes.remove(scope)
        if not _scopes:
            _release()


@contextmanager
def guest_memory(needed: int, guests: int = 1) -> Iterator[GuestMemory]:
    """The memory of a guest that needs so many bytes, until it has ended. CellError. `guests`: of its cell."""
    _release(but=guests)
    if _kept and not _kept[-1].fits(needed):
        _release()
    memory = _kept.pop() if _kept else _open(needed)
    try:
        yield memory
    finally:
        if _scopes:
            _kept.append(memory)
        else:
            os.close(memory.descriptor)


def _open(needed: int) -> GuestMemory:
    folder = memory_folder(needed)
    if folder is None:
        size = f"{needed >> 20} MB"
        raise CellError(
            f"no place for the guest's memory: /dev/shm, /tmp and /var/tmp have no {size} free or are mounted noexec"
        )
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        return GuestMemory(folder, fcntl.fcntl(file.fileno(), fcntl.F_DUPFD_CLOEXEC, MEMORY_FD))


def _release(but: int = 0) -> None:
    """Return the memory that is kept to the machine, but for so many files."""
    while len(_kept) > but:
        os.close(_kept.pop().descriptor)
