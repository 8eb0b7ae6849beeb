# SPDX-License-Identifier: Apache-2.0
"""The command line. Every module of this package that has `register(app)` adds its commands: one module a group."""

import importlib
import os
import pkgutil
import sys
from functools import cache
from typing import Annotated

import typer

from qbed import __version__
from qbed.base import crash_report, terminal
from qbed.base.errors import LabError, QbedError

ORDER = (
    "init",
    "labs",
    "run",
    "report",
    "sql",
    "merge",
    "verify",
    "diff",
    "store",
    "queue",
    "lab",
    "scheme",
    "congestion",
    "kernel",
    "p4",
    "session",
    "look",
    "samples",
    "doctor",
    "containers",
    "serve",
    "remote",
)
"""How `qbed --help` lists the groups; those that it does not name come last."""

app = typer.Typer(
    name="qbed",
    help="A test bench for congestion control and in-network congestion signals.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=True,
)


def _print_version(wanted: bool) -> None:
    if not wanted:
        return
    from qbed.substrates.toolchain import ToolchainError, find_toolchain

    try:
        manifest = find_toolchain().manifest
        guest = f"kernel {manifest.kernel_version} ({manifest.kernel_hash})"
        frr = f", FRR {manifest.frr_version}" if manifest.frr_version else ""
    except ToolchainError:
        guest, frr = "no kernel yet: make setup", ""
    terminal.print_line(f"qbed {__version__}, {guest}{frr}")
    raise typer.Exit


@app.callback()
def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the versions and exit.")
    ] = False,
    server: Annotated[
        str | None, typer.Option(metavar="URL", help="URL of a service (`qbed serve`), for `run` and `jobs`.")
    ] = None,
) -> None:
    """A test bench for congestion control and in-network congestion signals."""
    if server is not None:
        if context.invoked_subcommand not in ("run", "jobs"):
            raise typer.BadParameter("expected `qbed --server URL run ...` or `jobs`", param_hint="--server")
        os.environ["QBED_SERVER"] = server


@cache
def load_commands() -> typer.Typer:
    """The app with the commands of every module of this package."""
    found = sorted(module.name for module in pkgutil.iter_modules(__path__))
    for name in sorted(found, key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER)):
        register = getattr(importlib.import_module(f"{__name__}.{name}"), "register", None)
        if register is not None:
            register(app)
    return app


def main() -> None:
    """Run a command and end with its status; errors are printed in one line each, without a traceback."""
    _use_utf8()
    terminal.prepare()
    try:
        status = load_commands()(standalone_mode=False)
        terminal.flush()
    except BrokenPipeError:  # the reader has closed the pipe
        terminal.discard_stdout()
        status = 1
    except Exception as error:
        status = _explained(error)
    except KeyboardInterrupt:
        terminal.print_status("interrupted")
        status = 130
    sys.exit(status)


def _use_utf8() -> None:
    """Restart Python in its UTF-8 mode if the locale has another encoding: DuckDB and Arrow take paths as UTF-8."""
    if sys.getfilesystemencoding() != "utf-8" and not sys.flags.utf8_mode:
        command = [sys.executable, "-X", "utf8", *sys.orig_argv[1:]]
        os.execve(sys.executable, command, os.environ | {"PYTHONUTF8": "1"})


def _explained(error: Exception) -> int:
    """Print the error and return the exit status."""
    match error:
        case LabError():
            terminal.print_errors(error.messages)
            return error.exit_status
        case QbedError():
            terminal.print_errors([error])
            return error.exit_status
        case typer.TyperException():
            _usage(error)
            return int(getattr(error, "exit_code", 1))
        case _ if message := crash_report.describe_system_error(error):
            terminal.print_errors([message])
        case RuntimeError() if "Symlink loop" in str(error):  # raised by Path.resolve()
            terminal.print_errors([error])
        case MemoryError():
            terminal.print_errors(["out of memory"])
        case _:
            terminal.print_errors([crash_report.explain(error)])
    return 1


def _usage(error: typer.TyperException) -> None:
    """Print the error of the arguments; without a message, the help has been printed."""
    message = error.format_message() if hasattr(error, "format_message") else str(error)
    context = getattr(error, "ctx", None)
    if message:
        hint = f"; `{context.command_path} --help` says what is expected" if context is not None else ""
        terminal.print_errors([f"{message.rstrip('.')}{hint}"])
