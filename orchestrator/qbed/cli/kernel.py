# SPDX-License-Identifier: Apache-2.0
"""`qbed kernel build|ls|rm`: the kernels that labs select (docs/running.md, Kernels)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from qbed.base import terminal
from qbed.base.errors import LabError, nearest

group = typer.Typer(no_args_is_help=True, help="The kernels that labs select (docs/running.md).")


def register(app: typer.Typer) -> None:
    app.add_typer(group, name="kernel")


@group.callback()
def _kernels() -> None:
    """The kernels that labs select (docs/running.md)."""


@group.command()
def build(
    kernel: Annotated[
        str,
        typer.Argument(
            metavar="SERIES|FOLDER", help="A series such as 7.2, or a folder of patches or of a source tree."
        ),
    ],
) -> None:
    """Build a kernel with its modules, unless that is done already.

    Makefiles of the folder run on this machine.
    """
    from qbed.base.locations import kernel_series
    from qbed.network.kernels import KernelFolderError, LabKernel, user_kernel
    from qbed.substrates.kernels import build_kernel

    if kernel in kernel_series():
        wanted = LabKernel(kernel)
    elif not Path(kernel).exists():
        text = "expected a kernel series, or a folder of patches or of a source tree"
        raise LabError([f"{kernel}: {text}{nearest(kernel, kernel_series())}"])
    else:
        try:
            wanted = user_kernel(Path(kernel))
        except KernelFolderError as error:
            raise LabError([str(error)]) from None
    built = build_kernel(wanted, terminal.print_status, permitted=True)
    terminal.print_line(f"{wanted.name} is built: Linux {built.manifest.kernel_version}")


@group.command("ls")
def list_kernels() -> None:
    """List the kernels that are built: name, version, and the user's folder."""
    from qbed.substrates.kernels import built_kernels

    for kernel in built_kernels():
        note = kernel.origin or ("labs without `kernel` run on it" if kernel.in_use else "")
        terminal.print_line(f"{kernel.name:<22} {kernel.version:<22} {note}".rstrip())


@group.command()
def rm(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Names as `qbed kernel ls` lists them.")],
) -> None:
    """Remove builds of kernels. The next run of a lab that selects one builds it again."""
    from qbed.substrates.kernels import remove_kernel

    for name in names:
        terminal.print_line(f"{name} is removed: {remove_kernel(name) >> 20} MB")
