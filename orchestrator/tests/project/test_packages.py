# SPDX-License-Identifier: Apache-2.0
"""Packages import lower bands, no modules import each other, and every module can be imported first."""

from __future__ import annotations

import ast
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter

from packages import (
    PACKAGE,
    PACKAGES,
    PAGE,
    ROOT,
    agent_folders,
    allowed,
    imports,
    modules,
    package,
    page,
    python_packages,
)

# `qbed export` and `graph` write the format that Containerlab reads.
ABOUT_CONTAINERLAB = "qbed.cli.containers"
# Each module is imported by a process of its own, which has the modules of other packages already.
FIRST_AND_ALONE = """
import gc, importlib, os, sys, traceback

names = sys.argv[1].split()
read, write = os.pipe()
if os.fork() == 0:
    for name in names:
        try:
            importlib.import_module(name)
        except BaseException:
            pass
    os.write(write, " ".join(name for name in sys.modules if name.partition(".")[0] != "qbed").encode())
    os._exit(0)
os.close(write)
with os.fdopen(read) as file:
    others = file.read().split()
os.wait()
for name in others:
    importlib.import_module(name)
gc.disable()
gc.freeze()
wrong = 0
for name in names:
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


def test_every_package_is_in_a_band() -> None:
    folders = {path.parent.name for path in PACKAGE.glob("*/*.py")}
    assert folders == set(PACKAGES)


def test_a_package_imports_only_lower_bands_and_what_is_listed() -> None:
    violations = [
        f"{module}:{line} imports {other}: {package(module)} may not import {package(other)}"
        for module in modules()
        for line, other in imports(module)
        if package(other) not in allowed(package(module))
    ]
    assert violations == []


def test_the_packages_are_few_and_loosely_coupled() -> None:
    graph = python_packages()
    assert len(graph) <= 21 and sum(map(len, graph.values())) <= 124
    TopologicalSorter(graph).prepare()


def test_no_module_imports_the_inside_of_a_substrate() -> None:
    insides = [module for module in modules() if module.count(".") == 2 and module.startswith("qbed.substrates.")]
    packages = tuple(f"{module}." for module in insides if (PACKAGE.parent / module.replace(".", "/")).is_dir())
    assert len(packages) == 2
    wrong = [
        f"{module}:{line} imports {other}"
        for module in modules()
        for line, other in imports(module)
        for package in packages
        if f"{other}.".startswith(package) and not f"{module}.".startswith(package) and module != ABOUT_CONTAINERLAB
    ]
    assert wrong == []


def test_no_two_modules_import_each_other() -> None:
    graph = {module: {other for _, other in imports(module)} - {module} for module in modules()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise AssertionError("a cycle of imports: " + " -> ".join(error.args[1])) from None


def test_functions_are_short() -> None:
    """Up to 60 lines below the signature and 8 parameters; a command's parameters are its options."""
    wrong = []
    for module, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                parameters = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                count = sum(parameter.arg not in ("self", "cls") for parameter in parameters)
                lines = (node.end_lineno or 0) - node.body[0].lineno + 1
                if lines > 60 or (count > 8 and not is_command(node)):
                    wrong.append(f"{module}:{node.lineno} {node.name}: {lines} lines, {count} parameters")
    assert wrong == []


def is_command(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether Typer reads the signature."""
    return "typer." in ast.unparse(node.args)


def test_any_module_may_be_imported_first() -> None:
    names = [name for name in modules() if name != "qbed.__main__"]  # which runs the command line
    command = [sys.executable, "-c", FIRST_AND_ALONE, " ".join(names)]
    done = subprocess.run(command, check=False, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stderr


def test_the_folders_of_the_agent_have_no_cycle() -> None:
    TopologicalSorter(agent_folders()).prepare()


def test_the_pictures_are_up_to_date() -> None:
    assert page() == PAGE.read_text(), "make generate"


def test_no_c_function_is_longer_than_60_lines() -> None:
    long, found = [], 0
    for folder in ("kernel/modules", "kernel/include/qbed", "kernel/uml", "schemes"):
        for path in sorted((ROOT / folder).rglob("*.[ch]")):
            begun = 0
            for number, line in enumerate(path.read_text().splitlines()):
                if line == "{":
                    begun, found = number, found + 1
                elif line == "}" and number - begun > 60:
                    long.append(f"{path}:{begun}")
    assert long == [] and found > 100
