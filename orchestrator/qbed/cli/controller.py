# SPDX-License-Identifier: Apache-2.0
"""`qbed controller new`: the rate controller `aimd` under another name, which builds, runs and is tested as it is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from qbed.base import terminal
from qbed.base.errors import LabError
from qbed.base.locations import schemes_folder
from qbed.cli.folder_copies import copy_folder, user_folder

LIKE = "aimd"
_NAME = re.compile(r"[a-z][a-z0-9_]{0,11}")
_PARTS = tuple(part.format(LIKE) for part in ("host/{}.h", "host/{}.yml", "tests/{}.rates", "tests/test_{}_rate.c"))
_README = """\
# {name}

The source of the rule, and decisions where the source is silent. It began as `{like}`, additive increase and
multiplicative decrease of a rate, and is that until `host/{name}.h` is changed. docs/schemes.md lists the files.
"""

group = typer.Typer(no_args_is_help=True, help="User-supplied rate controllers (docs/schemes.md).")


def register(app: typer.Typer) -> None:
    app.add_typer(group, name="controller")


@group.callback()
def _controllers() -> None:
    """User-supplied rate controllers (docs/schemes.md)."""


@group.command()
def new(name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the controller.")]) -> None:
    """Write the folder `schemes/NAME`, in the user's repository or in this checkout, with a working rate controller to
    start from. The next `qbed run` builds it.
    """
    place = create(user_folder("schemes"), name)
    text = f"`controller: {{name: {name}}}` of a host in a lab file; the rule is in host/{name}.h"
    terminal.print_line(f"{place} is written: {text}")


def create(folder: Path, name: str) -> Path:
    """Write `FOLDER/NAME`; nothing is overwritten."""
    from qbed.schemes.declaration import controllers

    if not _NAME.fullmatch(name):
        raise LabError([f"{name}: expected a controller's name: up to 12 of a-z, 0-9 and `_`, a letter first"])
    if name in controllers():
        raise LabError([f"{name}: there is such a controller already; choose another name"])
    like = schemes_folder() / controllers()[LIKE].scheme
    return copy_folder(like, folder / name, _PARTS, _README, LIKE)
