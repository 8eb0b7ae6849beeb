# SPDX-License-Identifier: Apache-2.0
"""The command line. Every module of this package that has `register(app)` adds its commands: one module a group."""

import importlib
import pkgutil
import sys
from typing import Annotated

import typer

from qbed import __version__
from qbed.errors import LabError, QbedError

ORDER = ("labs", "run", "verify", "lab", "session", "samples", "doctor", "containers")
"""How `qbed --help` lists the groups; those that it does not name come last."""

app = typer.Typer(
    name="qbed",
    help="A lab bench for in-network congestion signals.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=True,
)


def _say_version(wanted: bool) -> None:
    if not wanted:
        return
    from qbed.substrates.toolchain import ToolchainError, find_toolchain

    try:
        manifest = find_toolchain().manifest
        guest = f"kernel {manifest.kernel_version} ({manifest.kernel_hash})"
        frr = f", FRR {manifest.frr_version}" if manifest.frr_version else ""
    except ToolchainError:
        guest, frr = "no kernel yet: make setup", ""
    print(f"qbed {__version__}, {guest}{frr}")
    raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Say the versions and end.")
    ] = False,
) -> None:
    """A lab bench for in-network congestion signals."""


def load_commands() -> typer.Typer:
    """The app with the commands of every module of this package."""
    found = sorted(module.name for module in pkgutil.iter_modules(__path__))
    for name in sorted(found, key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER)):
        register = getattr(importlib.import_module(f"{__name__}.{name}"), "register", None)
        if register is not None:
            register(app)
    return app


def main() -> None:
    """Run; errors that a user can act on are printed as they are, without a traceback."""
    try:
        load_commands()()
    except LabError as error:
        for message in error.messages:
            print(f"error: {message}", file=sys.stderr)
        sys.exit(error.exit_status)
    except QbedError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_status)
