# SPDX-License-Identifier: Apache-2.0
"""The memory that the guests of a divided lab share (kernel/uml/um_parts.h has its layout)."""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from qbed.plan.model import MAX_PARTS

PARTS_FD = 220
"""The lowest descriptor of the memory: the guests' command lines contain it, so it is the same in each run."""
BATCH_BYTES = 1 << 20
"""Size of a batch. It has more room than a window's frames need in most labs; where it is full, the window ends."""
SPINS = 2_000
"""Checks of another part's state, a few nanoseconds each, before a part sleeps."""
_HEAD = struct.Struct("=IIQQQ")
_DISTANCES = 128
_PARTS = _DISTANCES + 8 * MAX_PARTS * MAX_PARTS
WINDOWS = 11
"""Windows that the memory has room for (UM_PARTS_WINDOWS)."""
_PART, _PART_BYTES = struct.Struct(f"=IIII{WINDOWS}QQ"), 128
_BATCHES = _PARTS + MAX_PARTS * _PART_BYTES


@dataclass(frozen=True)
class PartTimes:
    """Measurements of a part: the windows that it ended, and the real seconds for which it waited for others."""

    windows: int
    waited_s: float


@dataclass(frozen=True)
class PartMemory:
    """The shared memory of the parts of a cell."""

    descriptor: int
    view: mmap.mmap

    def times(self, part: int) -> PartTimes:
        """The measurements of a part so far."""
        windows, left, *_, waited_ns = _PART.unpack_from(self.view, _PARTS + part * _PART_BYTES)
        return PartTimes((left or windows + 1) - 1, waited_ns / 1e9)


@contextmanager
def part_memory(distances_ns: Sequence[Sequence[int]], start_ns: int, spins: int) -> Iterator[PartMemory]:
    """Create the memory of parts with these distances. `start_ns`: no frame arrives before. OSError."""
    count = len(distances_ns)
    anywhere = os.memfd_create("qbed-parts", os.MFD_CLOEXEC)
    try:
        descriptor = fcntl.fcntl(anywhere, fcntl.F_DUPFD_CLOEXEC, PARTS_FD)
    finally:
        os.close(anywhere)
    try:
        size = _BATCHES + WINDOWS * count * count * BATCH_BYTES
        os.ftruncate(descriptor, size)  # pages exist once they are used
        with mmap.mmap(descriptor, size) as view:
            _HEAD.pack_into(view, 0, count, spins, start_ns, BATCH_BYTES, _BATCHES)
            for number, row in enumerate(distances_ns):
                struct.pack_into(f"={count}Q", view, _DISTANCES + 8 * MAX_PARTS * number, *row)
            yield PartMemory(descriptor, view)
    finally:
        os.close(descriptor)
