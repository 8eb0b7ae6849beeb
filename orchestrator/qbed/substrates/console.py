# SPDX-License-Identifier: Apache-2.0
"""What a guest or a node said on its console: its last words, and what its kernel complained of."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

MOST_COMPLAINTS = 5
LINE_BYTES = 4096
_COMPLAINT = re.compile(rb"(?:\[[- \d.]+\] )?(?:WARNING: |(?:\w+: )?BUG: |kernel BUG at |(?:\w+: )?Oops: )")
"""How lines of the kernel begin after which nothing that it counts can be trusted."""


def console_tail(path: Path, most_bytes: int = 8192) -> list[str]:
    """The last lines of a console log, printable."""
    try:
        with path.open("rb") as stream:
            stream.seek(max(0, path.stat().st_size - most_bytes))
            text = stream.read().decode("utf-8", "replace")
    except OSError:
        return []
    return [line for line in map(_printable, text.splitlines()) if line]


def complaints(folder: Path) -> list[str]:
    """The first lines in which the kernels of a cell warn of themselves, with the node where there are many."""
    found = []
    for console in (folder / "console.log", *sorted(folder.glob("nodes/*/console.log"))):
        where = "" if console.parent == folder else f"{console.parent.name}: "
        found += [f"{where}{line}" for line in islice(_complaints(console), MOST_COMPLAINTS)]
    return found[:MOST_COMPLAINTS]


def _complaints(console: Path) -> Iterator[str]:
    if console.is_file():
        with console.open("rb") as stream:
            while line := stream.readline(LINE_BYTES):
                if _COMPLAINT.match(line):
                    yield _printable(line.decode("utf-8", "replace"))[:200]


def _printable(line: str) -> str:
    return "".join(char for char in line if char.isprintable()).strip()
