# SPDX-License-Identifier: Apache-2.0
"""The package's rooms: each imports only those before it, no two modules import each other, and any may come first."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import qbed

PACKAGE = Path(qbed.__file__).parent
ROOMS = (
    "base",  # errors, json_files, places, remembered: the modules beside the rooms
    "language",
    "schemes",
    "lab",
    "network",
    "plan",
    "telemetry",
    "substrates",
    "results",
    "campaign",
    "claims",
    "report",
    "live",
    "runs",
    "cli",
)
"""In the order in which the data go through them. An import inside a function, or for types alone, is one, too."""
# To be mended with the substrates' interface: the caller will say the dilation.
OPEN = {("qbed.substrates.containers.session", "qbed.runs.calibrate")}
# Loaded before the modules that are tried: they take long, and import nothing of qbed.
HEAVY = ("pydantic", "yaml", "typer", "rich.console", "rich.progress", "jinja2", "numpy", "pyarrow.parquet", "duckdb")
FIRST_AND_ALONE = """
import gc, importlib, os, sys, traceback
for name in sys.argv[1].split():
    importlib.import_module(name)
gc.disable()
wrong = 0
for name in sys.argv[2].split():
    child = os.fork()
    if child == 0:
        try:
            importlib.import_module(name)
        except BaseException:
            print(f"{name} cannot be imported first:", file=sys.stderr)
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    wrong += os.waitpid(child, 0)[1] != 0
assert "qbed" not in sys.modules
sys.exit(wrong > 0)
"""


@cache
def modules() -> dict[str, ast.Module]:
    """Every module of the package, by its name."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
        found[name] = ast.parse(path.read_text(), str(path))
    return found


def imports(module: str) -> Iterator[tuple[int, str]]:
    """The modules of the package that a module imports, wherever it does, with the line."""
    for node in ast.walk(modules()[module]):
        if isinstance(node, ast.Import):
            named = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.module and not node.level, f"{module}:{node.lineno}: expected an absolute import"
            named = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in named:
            found = name if name in modules() else name.rpartition(".")[0]
            if found in modules():
                yield node.lineno, found


def room(module: str) -> int:
    """The number of a module's room."""
    name = module.removeprefix("qbed").removeprefix(".").partition(".")[0]
    if name == "__main__":
        return ROOMS.index("cli")
    return ROOMS.index(name) if (PACKAGE / name).is_dir() and name else 0


def test_every_folder_is_a_room() -> None:
    folders = {path.parent.name for path in PACKAGE.glob("*/*.py")}
    assert folders == set(ROOMS[1:])


def test_a_room_imports_only_what_comes_before_it() -> None:
    wrong = [
        f"{module}:{line} imports {other}: {ROOMS[room(other)]} comes after {ROOMS[room(module)]}"
        for module in modules()
        for line, other in imports(module)
        if room(other) > room(module) and (module, other) not in OPEN
    ]
    assert wrong == []


def test_no_two_modules_import_each_other() -> None:
    graph = {module: {other for _, other in imports(module)} - {module} for module in modules()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise AssertionError("a circle of imports: " + " -> ".join(error.args[1])) from None


def test_any_module_may_be_imported_first() -> None:
    names = [name for name in modules() if name != "qbed.__main__"]  # which runs the command line
    command = [sys.executable, "-c", FIRST_AND_ALONE, " ".join(HEAVY), " ".join(names)]
    done = subprocess.run(command, check=False, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stderr
