# SPDX-License-Identifier: Apache-2.0
"""The rooms of the code and who imports whom, read off the sources; `make generate` draws docs/architecture.md's."""

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
ROOMS = (
    "base",
    "config",
    "schemes",
    "lab",
    "p4",
    "network",
    "plan",
    "telemetry",
    "substrates",
    "cells",
    "store",
    "campaign",
    "claims",
    "report",
    "live",
    "runs",
    "service",
    "api",
    "cli",
)
"""In the order in which the data go through them. An import inside a function, or for types alone, is one, too."""


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


def python_rooms() -> dict[str, set[str]]:
    """By room, those that it imports from."""
    found: dict[str, set[str]] = {name: set() for name in ROOMS}
    for module in modules():
        here = ROOMS[room(module)]
        found[here] |= {ROOMS[room(other)] for _, other in imports(module)} - {here}
    return found


def agent_rooms() -> dict[str, set[str]]:
    """The same of the agent's folders, by their `crate::` paths; `main` is not among them."""
    source = ROOT / "crates" / "agent" / "src"
    found: dict[str, set[str]] = {path.name: set() for path in sorted(source.iterdir()) if path.is_dir()}
    for name in found:
        for path in (source / name).rglob("*.rs"):
            code = path.read_text().partition("#[cfg(test)]")[0]
            found[name] |= {other for other in re.findall(r"\bcrate::\{?(\w+)", code) if other in found} - {name}
    return found


def reduced(graph: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Without the arrows that others imply; those of a circle stay."""

    def beyond(start: str) -> set[str]:
        seen: set[str] = set()
        todo = [*graph[start]]
        while todo:
            if (name := todo.pop()) not in seen:
                seen.add(name)
                todo.extend(graph[name])
        return seen

    after = {name: beyond(name) for name in graph}

    def implied(one: str, by: str, start: str) -> bool:
        return one in after[by] and start not in after[by]

    return {
        name: {one for one in others if not any(implied(one, two, name) for two in others - {one})}
        for name, others in graph.items()
    }


def picture(graph: Mapping[str, set[str]]) -> str:
    """A Mermaid graph: an arrow says "imports", and what is implied is left out."""
    lines = ["```mermaid", "graph BT"]
    for name, others in reduced(graph).items():
        lines.extend(f"    {name} --> {other}" for other in sorted(others))
    return "\n".join([*lines, "```"])


def page() -> str:
    """docs/architecture.md with its pictures drawn anew."""
    text = PAGE.read_text()
    for name, graph in (("python", python_rooms()), ("agent", agent_rooms())):
        begin, end = f"<!-- rooms: {name} -->", f"<!-- end of rooms: {name} -->"
        head, _, rest = text.partition(begin)
        _, _, tail = rest.partition(end)
        assert rest and tail, f"{PAGE}: expected `{begin}` and `{end}`"
        text = f"{head}{begin}\n{picture(graph)}\n{end}{tail}"
    return text


if __name__ == "__main__":
    PAGE.write_text(page())
