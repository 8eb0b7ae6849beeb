# SPDX-License-Identifier: Apache-2.0
"""What a file of somebody else's may have read: what lies in its own folder or below, and nothing else.

A lab names a file of sizes, a campaign its lab. A path that leads out, by itself or by a symbolic link, would bring any
file of this user's into results and messages. It is for one's own labs: `--trust`, or a yes on a terminal.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from qbed import terminal

TRUST = "QBED_TRUST"
"""Set in the environment, so that worker processes know it, too."""
FOREIGN = "QBED_FOREIGN"
"""Set where a service runs a lab that somebody has sent and whose own programs its owner does not allow."""


class ReachError(ValueError):
    """A path that leads out of its folder."""


def trust(wanted: bool) -> bool:
    """`--trust`: this run's files may have any file read."""
    if wanted:
        os.environ[TRUST] = "1"
    return wanted


def beneath(folder: Path, name: str) -> Path:
    """The file that a file in `folder` names; ReachError if it is elsewhere and nobody trusts it."""
    path = folder / name
    try:
        place, home = path.resolve(), folder.resolve()
    except (OSError, RuntimeError, ValueError):  # a loop of links, a NUL
        raise ReachError(f"`{name}` is no path") from None
    if not place.is_relative_to(home) and not _trusted(place, home):
        raise ReachError(f"`{name}` leads out of the folder {folder}; only with --trust is it read")
    return path


def own_program(folder: Path, name: str) -> Path:
    """The program that a lab in `folder` brings, to be run; ReachError also where a service allows none."""
    refuse_foreign(name)
    return beneath(folder, name)


def refuse_foreign(name: str) -> None:
    """ReachError where a service runs a lab that was sent, and its owner does not let such labs say what is run."""
    if os.environ.get(FOREIGN):
        raise ReachError(f"`{name}` is a program of the lab's own: this service runs none (`qbed serve` says how to)")


def trusted() -> bool:
    """Whether this run's files are trusted by `--trust` or by the environment."""
    return bool(os.environ.get(TRUST))


@cache
def _trusted(place: Path, home: Path) -> bool:
    return trusted() or trust(terminal.agreed(f"a file in {home} names {place}, outside. Read it?"))
