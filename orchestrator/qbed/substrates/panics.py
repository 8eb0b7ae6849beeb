# SPDX-License-Identifier: Apache-2.0
"""A guest's panic, from its console: why, and where in the sources.

The kernel's module `qgate` says where in symbols (kernel/modules/qgate/console.c); of modules that were built here the
toolchain knows the lines, by nm and addr2line, which whoever has a compiler has.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from qbed.places import checkout

MOST_CALLERS = 8
_PANIC = re.compile(r"(?:\[(-?\d+\.\d+)\] )?Kernel panic - not syncing: ?(.*)")
_PLACE = re.compile(r"(?:\[-?\d+\.\d+\])? *(at|from) (\w[\w.]*)\+0x([0-9a-f]+)/0x[0-9a-f]+(?: \[(\w+)\])?$")
_COPY = re.compile(r".*/modules\.new/(\w+)/([\w.]+)")
_TOOL_S = 20


@dataclass(frozen=True)
class _Place:
    """A word of the stack: `at` the instruction, or what a call returns to."""

    kind: str
    symbol: str
    offset: int
    module: str | None

    def __str__(self) -> str:
        return self.symbol + (f" [{self.module}]" if self.module else "")


def panic(lines: list[str], toolchain: Path) -> str | None:
    """What a console's lines say of the kernel's panic, in a sentence and a line for each caller; None: of none.

    `toolchain`: its folder, where `lines/MODULE.lines` are the modules with the lines that they were compiled from.
    """
    number, found = next(((i, match) for i, line in enumerate(lines) if (match := _PANIC.match(line))), (0, None))
    if found is None:
        return None
    when = f" at {found[1]} s" if found[1] else ""
    text = f"the guest's kernel panicked{when}: {found[2]}"
    places = [_Place(m[1], m[2], int(m[3], 16), m[4]) for line in lines[number + 1 :] if (m := _PLACE.match(line))]
    for place in places[: MOST_CALLERS + 1]:
        line = _line(toolchain / "lines", place)
        text += f"\n    {place.kind} {place}" + (f", {line}" if line else "")
    return text


def _line(folder: Path, place: _Place) -> str | None:
    """The file and line in the checkout, if that is known here."""
    file = folder / f"{place.module}.lines"
    if place.module is None or not file.is_file():
        return None
    try:
        symbols = _said("nm", "--format=sysv", str(file))
        rows = ([word.strip() for word in row.split("|")] for row in symbols.splitlines())
        begin, section = next((int(row[1], 16), row[6]) for row in rows if row[0] == place.symbol and len(row) == 7)
        # What a call returns to is behind it, perhaps on the next line.
        address = begin + place.offset - (place.kind == "from")
        frames = _said("addr2line", "--inlines", f"--section={section}", f"--exe={file}", hex(address)).splitlines()
    except (OSError, subprocess.SubprocessError, StopIteration, ValueError):
        return None
    return next((own for frame in frames if (own := _own(frame)) is not None), None)


def _own(frame: str) -> str | None:
    """`FILE:LINE` of this project's, under its place in the checkout; None: it is of the kernel's own headers."""
    path, _, line = frame.partition(" ")[0].rpartition(":")
    found = _COPY.fullmatch(path)
    if found is None or not line.isdigit():
        return None
    root, name = checkout(), found[1]
    for folder in (f"kernel/modules/{name}", f"schemes/{name}/kernel"):
        if root is not None and (root / folder / found[2]).is_file():
            return f"{folder}/{found[2]}:{line}"
    return f"{name}/{found[2]}:{line}"


def _said(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TOOL_S, check=True)
    return done.stdout
