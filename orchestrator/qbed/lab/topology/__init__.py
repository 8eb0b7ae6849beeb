# SPDX-License-Identifier: Apache-2.0
"""Topology generators, one module each, found by name.

A module offers `Settings` (a pydantic model: what the lab file says under `topology: {NAME: ...}`),
`size(settings)`, how many nodes and links that gives, `build(settings)`, which returns the `Network`, and `LAYERS`, the
names by which the file's `links` can mean all links of one layer. A module's name with `-` for `_` is the generator's
name.
"""

import importlib
import pkgutil
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache, cached_property
from types import ModuleType
from typing import Literal

NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")
NodeKind = Literal["host", "switch"]
MAX_NODES, MAX_LINKS = 65_536, 131_072
"""A node takes 0.75 MB of a lab's kernel, which is one process on one machine; more is refused before it is built."""


@dataclass(frozen=True)
class Link:
    """A link by the names of its two ends' nodes. Of an explicit topology: the settings that it gives itself, and its
    entry.
    """

    a: str
    b: str
    layer: str
    name: str = ""
    settings: dict[str, object] = field(default_factory=dict, compare=False)
    entry: int = 0

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", f"{self.a}-{self.b}")


class TopologyError(ValueError):
    """Settings that each are valid but do not fit together; `field` is the path within the generator's settings."""

    def __init__(self, field: tuple[str | int, ...], text: str) -> None:
        super().__init__(text)
        self.field = field


@dataclass
class Network:
    """Nodes in the order of their indices, and links in theirs."""

    nodes: dict[str, NodeKind] = field(default_factory=dict)
    links: list[Link] = field(default_factory=list)

    def add(self, name: str, kind: NodeKind) -> str:
        self.nodes[name] = kind
        return name

    def add_all(self, names: Iterable[str], kind: NodeKind) -> list[str]:
        return [self.add(name, kind) for name in names]

    def link(self, a: str, b: str, layer: str) -> None:
        self.links.append(Link(a, b, layer))

    @cached_property
    def link_names(self) -> dict[str, int]:
        """The links' numbers, by name. This and what follows: once all are there."""
        return {link.name: i for i, link in enumerate(self.links)}

    @cached_property
    def layers(self) -> dict[str, list[int]]:
        """The links of each layer."""
        found: dict[str, list[int]] = {}
        for i, link in enumerate(self.links):
            found.setdefault(link.layer, []).append(i)
        return found

    @cached_property
    def links_of(self) -> dict[str, list[int]]:
        """The links of each node."""
        found: dict[str, list[int]] = {name: [] for name in self.nodes}
        for i, link in enumerate(self.links):
            found[link.a].append(i)
            found[link.b].append(i)
        return found

    @cached_property
    def hosts(self) -> list[str]:
        return [name for name, kind in self.nodes.items() if kind == "host"]


@cache
def generators() -> dict[str, ModuleType]:
    """Every module of this package by its generator's name."""
    return {
        module.name.replace("_", "-"): importlib.import_module(f"{__name__}.{module.name}")
        for module in sorted(pkgutil.iter_modules(__path__), key=lambda module: module.name)
    }


def check_size(nodes: int, links: int) -> None:
    """TopologyError for more than a lab can have."""
    for count, limit, what in ((nodes, MAX_NODES, "nodes"), (links, MAX_LINKS, "links")):
        if count > limit:
            raise TopologyError((), f"gives {count} {what}; expected at most {limit}")


def numbered(prefix: str, count: int, first: int = 1) -> list[str]:
    """`h1`, `h2`, ..."""
    return [f"{prefix}{number}" for number in range(first, first + count)]
