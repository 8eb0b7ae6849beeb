# SPDX-License-Identifier: Apache-2.0
"""`qbed congestion new`: the folder of `aimd` under another name, which builds, runs and is tested as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from qbed.base import terminal
from qbed.base.errors import LabError
from qbed.base.locations import congestion_folder, sources_folder
from qbed.cli.folder_copies import copy_folder, user_folder

LIKE = "aimd"
_PARTS = ("congestion.yml", "kernel/Kbuild", "kernel/*.[ch]", "tests/*.c", "tests/*.py")
_README = """\
# {name}

The source of the rule, and decisions where the source is silent. It began as `{like}`, additive increase and
multiplicative decrease, and is that until `kernel/{name}_algorithm.h` is changed. docs/congestion.md lists the files.
"""

group = typer.Typer(no_args_is_help=True, help="User-supplied congestion controls (docs/congestion.md).")


def register(app: typer.Typer) -> None:
    app.add_typer(group, name="congestion")


@group.callback()
def _controls() -> None:
    """User-supplied congestion controls (docs/congestion.md)."""


@group.command()
def new(name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the congestion control.")]) -> None:
    """Write the folder `congestion/NAME`, in the user's repository or in this checkout, with a working congestion
    control to start from. The next `qbed run` builds it.
    """
    place = create(user_folder("congestion"), name)
    terminal.print_line(f"{place} is written: `tcp: {name}` in a lab file; the rule is in kernel/{name}_algorithm.h")


def create(folder: Path, name: str) -> Path:
    """Write `FOLDER/NAME`; nothing is overwritten."""
    from qbed.schemes.congestion import CONTROL_NAME, control_names
    from qbed.schemes.declaration import registry

    if not CONTROL_NAME.fullmatch(name):
        text = "expected a congestion control's name: up to 15 of a-z, 0-9 and `_`, a letter first"
        raise LabError([f"{name}: {text}"])
    if name in control_names():
        raise LabError([f"{name}: there is such a congestion control already; choose another name"])
    if name in registry() or (sources_folder() / "kernel" / "modules" / name).exists():
        raise LabError([f"{name}: there is a kernel module of this name already; choose another name"])
    return copy_folder(congestion_folder() / LIKE, folder / name, _PARTS, _README)
