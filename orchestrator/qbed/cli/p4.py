# SPDX-License-Identifier: Apache-2.0
"""`qbed p4 compile`: compiles the P4 program of a lab or scheme and records the checksums of its sources."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from qbed.base import terminal
from qbed.base.errors import QbedError

group = typer.Typer(no_args_is_help=True, help="Programs in P4 (docs/p4.md).")


def register(app: typer.Typer) -> None:
    app.add_typer(group, name="p4")


@group.callback()
def _programs() -> None:
    """Programs in P4 (docs/p4.md)."""


@group.command("compile")
def compile_one(
    program: Annotated[Path, typer.Argument(metavar="PROGRAM.p4", help="What is made is written beside it.")],
) -> None:
    """Compile a switch program with p4c-bm2-ss from PATH or from the variable P4C."""
    from qbed.p4.compiler import COMPILER, compiled_files, find_compiler
    from qbed.p4.source_lock import StaleError, compile_and_lock, lock_file

    if program.suffix != ".p4" or not program.is_file():
        raise QbedError(f"{program}: expected a file PROGRAM.p4")
    if (found := find_compiler()) is None:
        raise QbedError(f"{COMPILER} is not installed here (P4C says where it is)")
    try:
        warnings = compile_and_lock(found, program)
    except StaleError as error:
        raise QbedError(str(error)) from None
    if warnings.strip():
        terminal.print_status(warnings.strip())
    written = [path.name for path in (*compiled_files(program), lock_file(program))]
    terminal.print_line(f"{program}: wrote {', '.join(written)}")
