# SPDX-License-Identifier: Apache-2.0
"""Reads console logs of guests and nodes: the last lines, and kernel warnings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

MAX_WARNINGS = 5
LINE_BYTES = 4096
_WARNING = re.compile(rb"(?:\[[- \d.]+\] )?(?:WARNING: |(?:\w+: )?BUG: |kernel BUG at |(?:\w+: )?Oops: )")
"""The start of a kernel message after which the kernel's counters cannot be trusted."""


def console_tail(path: Path, max_bytes: int = 8192) -> list[str]:
    """The last lines of a console log, printable."""
    try:
        with path.open("rb") as stream:
            stream.seek(max(0, path.stat().st_size - max_bytes))
            text = stream.read().decode("utf-8", "replace")
    except OSError:
        return []
    return [line for line in map(_printable, text.splitlines()) if line]


def kernel_warnings(folder: Path) -> list[str]:
    """The first kernel warnings of a cell, prefixed with the node if there are several kernels."""
    found = []
    for console in (folder / "console.log", *sorted(folder.glob("nodes/*/console.log"))):
        where = "" if console.parent == folder else f"{console.parent.name}: "
        found += [f"{where}{line}" for line in islice(_warnings_in(console), MAX_WARNINGS)]
    return found[:MAX_WARNINGS]


def _warnings_in(console: Path) -> Iterator[str]:
    if console.is_file():
        with console.open("rb") as stream:
            while line := stream.readline(LINE_BYTES):
                if _WARNING.match(line):
                    yield _printable(line.decode("utf-8", "replace"))[:200]


def _printable(line: str) -> str:
    return "".join(char for char in line if char.isprintable()).strip()
