# SPDX-License-Identifier: Apache-2.0
"""`qbed scheme new`: the folder of `ecn` under another name, which builds, runs and is tested as it is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from qbed.base import terminal
from qbed.base.errors import LabError
from qbed.base.locations import schemes_folder
from qbed.cli.folder_copies import copy_folder, user_folder

LIKE = "ecn"
_NAME = re.compile(r"[a-z][a-z0-9_]{0,11}")
_PARTS = ("scheme.yml", "kernel/Kbuild", "kernel/*.[ch]", "tests/test_ecn*.c", "tests/test_ecn.py")
_README = """\
# {name}

Whence the rule comes, and what was decided where its source is silent. It began as `{like}`, step marking above a
threshold, and is that until `kernel/{name}_algorithm.h` is changed. docs/schemes.md says which file is what.
"""

group = typer.Typer(no_args_is_help=True, help="User-supplied schemes (docs/schemes.md).")


def register(app: typer.Typer) -> None:
    app.add_typer(group, name="scheme")


@group.callback()
def _schemes() -> None:
    """User-supplied schemes (docs/schemes.md)."""


@group.command()
def new(name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the scheme and of its qdisc.")]) -> None:
    """Write the folder `schemes/NAME`, in the user's repository or in this checkout, with a working scheme to start
    from. The next `qbed run` builds it.
    """
    place = create(user_folder("schemes"), name)
    terminal.print_line(f"{place} is written: `scheme: {name}` in a lab file; the rule is in kernel/{name}_algorithm.h")


def create(folder: Path, name: str) -> Path:
    """Write `FOLDER/NAME`; nothing is overwritten."""
    from qbed.schemes.declaration import registry
    from qbed.schemes.linux_qdiscs import LINUX_QDISCS

    if name in LINUX_QDISCS or any(scheme.has_kind(name) for scheme in registry().values()):
        raise LabError([f"{name}: there is such a qdisc already; choose another name"])
    if not _NAME.fullmatch(name):
        raise LabError([f"{name}: expected a scheme's name: up to 12 of a-z, 0-9 and `_`, a letter first"])
    return copy_folder(schemes_folder() / LIKE, folder / name, _PARTS, _README)
