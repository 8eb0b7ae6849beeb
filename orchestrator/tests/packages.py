# SPDX-License-Identifier: Apache-2.0
"""The packages and their imports, read from the sources; `make generate` draws them in docs/architecture.md."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import qbed

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "architecture.md"
PACKAGE = Path(qbed.__file__).parent
BANDS: dict[str, dict[str, str]] = {
    "base": {"base": ""},
    "configuration": {"config": ""},
    "model": {
        "schemes": "",
        "lab": "schemes",
        "p4": "lab schemes",
        "network": "lab p4 schemes",
        "plan": "lab network p4 schemes",
    },
    "execution": {"telemetry": "", "substrates": "telemetry"},
    "outcome": {
        "cells": "",
        "storage": "cells",
        "campaign": "storage",
        "claims": "campaign cells storage",
        "report": "campaign claims storage",
        "live": "cells storage",
    },
    "use": {"testing": "", "runs": "", "service": "runs", "api": "runs service", "cli": "runs service"},
}
"""Bands of packages, lowest first; a package imports lower bands, and of its own band what is listed here.

An import inside a function, or for types alone, counts, too.
"""
PACKAGES = tuple(name for band in BANDS.values() for name in band)


@cache
def modules() -> dict[str, ast.Module]:
    """Every module of the package, by its name. Files that `qbed init` writes are none."""
    found = {}
    for path in sorted(set(PACKAGE.rglob("*.py")) - set((PACKAGE / "cli" / "repository").rglob("*.py"))):
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


def package(module: str) -> str:
    """The package of a module; `cli` for `qbed.__main__`, `base` for `qbed` itself."""
    name = module.removeprefix("qbed").removeprefix(".").partition(".")[0]
    if name == "__main__":
        return "cli"
    return name or "base"


def allowed(name: str) -> set[str]:
    """The packages that a package may import."""
    found: set[str] = {name}
    for band in BANDS.values():
        if name in band:
            return found | set(band[name].split())
        found |= set(band)
    raise AssertionError(f"the package {name} is in no band")


def python_packages() -> dict[str, set[str]]:
    """By package, the packages that it imports."""
    found: dict[str, set[str]] = {name: set() for name in PACKAGES}
    for module in modules():
        importer = package(module)
        found[importer] |= {package(other) for _, other in imports(module)} - {importer}
    return found


def agent_folders() -> dict[str, set[str]]:
    """By folder of the agent, the folders that its `crate::` paths name; `main` is not among them."""
    source = ROOT / "crates" / "agent" / "src"
    found: dict[str, set[str]] = {path.name: set() for path in sorted(source.iterdir()) if path.is_dir()}
    for name in found:
        for path in (source / name).rglob("*.rs"):
            code = path.read_text().partition("#[cfg(test)]")[0]
            found[name] |= {other for other in re.findall(r"\bcrate::\{?(\w+)", code) if other in found} - {name}
    return found


def reduced(graph: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """The graph without the imports that others imply; imports of a cycle remain."""

    def beyond(start: str) -> set[str]:
        seen: set[str] = set()
        todo = [*graph[start]]
        while todo:
            if (name := todo.pop()) not in seen:
                seen.add(name)
                todo.extend(graph[name])
        return seen

    after = {name: beyond(name) for name in graph}

    def implied(package: str, by: str, start: str) -> bool:
        return package in after[by] and start not in after[by]

    return {
        name: {package for package in others if not any(implied(package, two, name) for two in others - {package})}
        for name, others in graph.items()
    }


def picture(graph: Mapping[str, set[str]]) -> str:
    """A Mermaid graph of imports, without those that others imply."""
    lines = ["```mermaid", "graph BT"]
    for name, others in reduced(graph).items():
        lines.extend(f"    {name} --> {other}" for other in sorted(others))
    return "\n".join([*lines, "```"])


def page() -> str:
    """docs/architecture.md with new pictures."""
    text = PAGE.read_text()
    for name, graph in (("python", python_packages()), ("agent", agent_folders())):
        begin, end = f"<!-- imports: {name} -->", f"<!-- end of imports: {name} -->"
        head, _, rest = text.partition(begin)
        _, _, tail = rest.partition(end)
        assert rest and tail, f"{PAGE}: expected `{begin}` and `{end}`"
        text = f"{head}{begin}\n{picture(graph)}\n{end}{tail}"
    return text


if __name__ == "__main__":
    PAGE.write_text(page())
