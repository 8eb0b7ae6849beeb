# SPDX-License-Identifier: Apache-2.0
"""Describes a guest's kernel panic from its console: the reason, and the source lines of the call stack.

The kernel module `qgate` prints symbols (kernel/modules/qgate/console.c). For modules built here, nm and addr2line map
them to source lines with the toolchain's debug information.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from qbed.base.locations import checkout

MAX_CALLERS = 8
_PANIC = re.compile(r"(?:\[(-?\d+\.\d+)\] )?Kernel panic - not syncing: ?(.*)")
_PLACE = re.compile(r"(?:\[-?\d+\.\d+\])? *(at|from) (\w[\w.]*)\+0x([0-9a-f]+)/0x[0-9a-f]+(?: \[(\w+)\])?$")
_COPY = re.compile(r".*/modules\.new/(\w+)/([\w.]+)")
_TOOL_S = 20


@dataclass(frozen=True)
class _Place:
    """A stack frame. `kind`: `at` the faulting instruction, or `from` a return address."""

    kind: str
    symbol: str
    offset: int
    module: str | None

    def __str__(self) -> str:
        return self.symbol + (f" [{self.module}]" if self.module else "")


def panic(lines: list[str], toolchain: Path) -> str | None:
    """Describe the kernel panic in a console's lines, with a line for each caller; None if there is none.

    `toolchain`: its folder, where `lines/MODULE.lines` are the modules with their debug information.
    """
    number, found = next(((i, match) for i, line in enumerate(lines) if (match := _PANIC.match(line))), (0, None))
    if found is None:
        return None
    when = f" at {found[1]} s" if found[1] else ""
    text = f"the guest's kernel panicked{when}: {found[2]}"
    places = [_Place(m[1], m[2], int(m[3], 16), m[4]) for line in lines[number + 1 :] if (m := _PLACE.match(line))]
    for place in places[: MAX_CALLERS + 1]:
        line = _line(toolchain / "lines", place)
        text += f"\n    {place.kind} {place}" + (f", {line}" if line else "")
    return text


def _line(folder: Path, place: _Place) -> str | None:
    """The file and line in the checkout, if known."""
    file = folder / f"{place.module}.lines"
    if place.module is None or not file.is_file():
        return None
    try:
        symbols = _output("nm", "--format=sysv", str(file))
        rows = ([word.strip() for word in row.split("|")] for row in symbols.splitlines())
        begin, section = next((int(row[1], 16), row[6]) for row in rows if row[0] == place.symbol and len(row) == 7)
        # A return address follows its call and may belong to the next line.
        address = begin + place.offset - (place.kind == "from")
        frames = _output("addr2line", "--inlines", f"--section={section}", f"--exe={file}", hex(address)).splitlines()
    except (OSError, subprocess.SubprocessError, StopIteration, ValueError):
        return None
    return next((line for frame in frames if (line := _source_line(frame)) is not None), None)


def _source_line(frame: str) -> str | None:
    """`FILE:LINE` relative to the checkout; None for the kernel's headers."""
    path, _, line = frame.partition(" ")[0].rpartition(":")
    found = _COPY.fullmatch(path)
    if found is None or not line.isdigit():
        return None
    root, name = checkout(), found[1]
    for folder in (f"kernel/modules/{name}", f"schemes/{name}/kernel", f"congestion/{name}/kernel"):
        if root is not None and (root / folder / found[2]).is_file():
            return f"{folder}/{found[2]}:{line}"
    return f"{name}/{found[2]}:{line}"


def _output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TOOL_S, check=True)
    return done.stdout
