# SPDX-License-Identifier: Apache-2.0
"""Access of untrusted files to other files: those in the same folder or below, and no others.

A lab names a file of sizes, a campaign its lab. A path that leaves the folder, by itself or by a symbolic link, would
copy any file of the user into results and messages. The user permits it for trusted labs: with `--trust`, or by
confirmation on a terminal.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from qbed.base import terminal

TRUST = "QBED_TRUST"
"""Environment variable, so that worker processes inherit the permission."""
FOREIGN = "QBED_FOREIGN"
"""Environment variable of a service that runs an uploaded lab and does not allow programs that come with labs."""


class ReachError(ValueError):
    """A path that leaves its folder."""


def trust(wanted: bool) -> bool:
    """Set whether this run's files may name any file (`--trust`)."""
    if wanted:
        os.environ[TRUST] = "1"
    return wanted


def beneath(folder: Path, name: str) -> Path:
    """Return the file that a file in `folder` names. ReachError if it is outside and not trusted."""
    path = folder / name
    try:
        place, home = path.resolve(), folder.resolve()
    except (OSError, RuntimeError, ValueError):  # a loop of links, a NUL byte
        raise ReachError(f"`{name}` is not a path") from None
    if not place.is_relative_to(home) and not _trusted(place, home):
        raise ReachError(f"`{name}` leads out of the folder {folder}; use --trust to allow it")
    return path


def lab_program(folder: Path, name: str) -> Path:
    """Return the program that a lab in `folder` brings and that is to be run. ReachError if a service does not allow
    it.
    """
    refuse_foreign(name)
    return beneath(folder, name)


def refuse_foreign(name: str) -> None:
    """Raise ReachError if a service runs an uploaded lab and does not allow such labs to run programs."""
    if os.environ.get(FOREIGN):
        text = "is a program that comes with the lab: this service does not run them (see `qbed serve --help`)"
        raise ReachError(f"`{name}` {text}")


def trusted() -> bool:
    """Whether this run's files are trusted, by `--trust` or by the environment."""
    return bool(os.environ.get(TRUST))


@cache
def _trusted(place: Path, home: Path) -> bool:
    return trusted() or trust(terminal.confirm(f"a file in {home} names {place}, outside. Read it?"))
