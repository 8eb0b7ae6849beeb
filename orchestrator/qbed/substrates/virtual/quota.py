# SPDX-License-Identifier: Apache-2.0
"""Limits on the size and number of files that a guest writes into its folder."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from qbed.config.units import format_size

FILES = 100_000
EVERY_S = 1.0


class Quota:
    """Checks a folder against its limits at most every `every_s` seconds."""

    def __init__(self, folder: Path, space_bytes: int, files: int = FILES, every_s: float = EVERY_S) -> None:
        self._folder = folder
        self._space_bytes = space_bytes
        self._files = files
        self._every_s = every_s
        self._next = time.monotonic() + every_s

    def excess(self) -> str | None:
        """A message if a limit is exceeded."""
        if time.monotonic() < self._next:
            return None
        used_bytes = 0
        for files, size_bytes in enumerate(_sizes(self._folder), 1):
            used_bytes += size_bytes
            if files > self._files:
                return f"the guest wrote more than {self._files:,} files"
            if used_bytes > self._space_bytes:
                return f"the guest wrote more than the {format_size(self._space_bytes)} that it may (--cell-space)"
        self._next = time.monotonic() + self._every_s
        return None


def _sizes(folder: Path) -> Iterator[int]:
    """Yield the disk usage of each file and folder."""
    for parent, _, names in os.walk(folder):
        for name in ("", *names):
            with suppress(FileNotFoundError):
                yield (Path(parent) / name).lstat().st_blocks * 512
