# SPDX-License-Identifier: Apache-2.0
"""`qbed init`: a repository of the user with a lab, a congestion control, a scheme, a P4 program, their tests and a
workflow.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from qbed import __version__
from qbed.base import terminal
from qbed.base.errors import LabError
from qbed.base.locations import MARKER, forget_repository, labs_folder
from qbed.cli import congestion, scheme

CONTROL, SCHEME, PROGRAM = "my_aimd", "my_ecn", "my_young"
LIKE_PROGRAM = Path("young-flows", "young.p4")
"""The P4 program that is copied, below the folder of labs."""
_FILES = Path(__file__).parent / "repository"
"""The files as they are written; `dot_` stands for a dot at the begin of a name."""


def register(app: typer.Typer) -> None:
    app.command()(init)


def init(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where to write it.")] = Path(),
) -> None:
    """Write a repository for labs, schemes, congestion controls and P4 programs: examples of each that run, tests, and
    a workflow for CI. Existing files are kept.
    """
    kept = write_repository(folder)
    for path in kept:
        terminal.print_line(f"{path} exists already and is kept")
    terminal.print_line(
        f"{folder / MARKER} is written: `qbed run first` and `pytest` in this folder; README.md says more"
    )


def write_repository(root: Path) -> list[Path]:
    """Write a repository. Return the files that existed before and are kept. LabError if an example's folder exists."""
    from qbed.p4.source_lock import copy_program

    for path in (root / MARKER, root / "congestion" / CONTROL, root / "schemes" / SCHEME, root / "labs" / "first"):
        if path.exists() or path.is_symlink():
            raise LabError([f"{path} exists already: nothing is written; choose another folder"])
    for name in ("congestion", "schemes"):
        (root / name).mkdir(parents=True, exist_ok=True)
    congestion.create(root / "congestion", CONTROL)
    scheme.create(root / "schemes", SCHEME)
    kept = []
    for path, text in sorted(_texts()):
        place = root / path
        if place.exists() or place.is_symlink():
            kept.append(place)
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    copy_program(labs_folder() / LIKE_PROGRAM, root / "labs" / "first" / f"{PROGRAM}.p4")
    forget_repository()
    return kept


def _texts() -> Iterator[tuple[Path, str]]:
    """The files by their paths in the repository."""
    yield Path("requirements.txt"), f"qbed=={__version__}\npytest>=8\n"
    yield Path("conftest.py"), 'pytest_plugins = ["qbed.testing.fixtures"]\n'
    for file in _FILES.rglob("*"):
        if file.is_file() and file.suffix != ".pyc":  # an installed package is compiled
            parts = (part.replace("dot_", ".", 1) for part in file.relative_to(_FILES).parts)
            yield Path(*parts), file.read_text()
