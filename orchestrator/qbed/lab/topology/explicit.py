# SPDX-License-Identifier: Apache-2.0
"""Nodes and links as the file lists them; `h1..h10` stands for ten of them."""

from collections import Counter
from typing import Annotated

from pydantic import Field

from qbed.config.selectors import count_range, expand_range
from qbed.config.strict import Strict
from qbed.lab.settings import LinkFields
from qbed.lab.topology import NAME, Link, Network, NodeKind, TopologyError

LAYERS = ()


class ExplicitLink(LinkFields):
    """One link, or with ranges several; it may give its own settings."""

    ends: Annotated[list[str], Field(min_length=2, max_length=2)]
    """The two nodes; `h1..h10` with a single node at the other end is ten links, two ranges of equal length pair up."""
    layer: str = "links"
    """A name by which `links` can give settings to all links of this entry."""
    name: str | None = None
    """The link's name; without it, `h1-s1` of the nodes `h1` and `s1`."""


class Settings(Strict):
    """Nodes and links one by one. A host may have several links, or a link to another host."""

    nodes: dict[str, NodeKind]
    """`host` or `switch` for each name or range of names such as `h1..h10`."""
    links: list[ExplicitLink]
    """The links."""


def size(settings: Settings) -> tuple[int, int]:
    nodes = sum(_count(("nodes", name), name) for name in settings.nodes)
    links = sum(
        max(_count(("links", entry, "ends", end), name) for end, name in enumerate(link.ends))
        for entry, link in enumerate(settings.links)
    )
    return nodes, links


def build(settings: Settings) -> Network:
    network = Network()
    for key, kind in settings.nodes.items():
        for name in _expand(("nodes", key), key):
            if not NAME.fullmatch(name):
                raise TopologyError(
                    ("nodes", key), f"expected a name of at most 32 letters a-z, digits and inner `-`, got `{name}`"
                )
            if name in network.nodes:
                raise TopologyError(("nodes", key), f"the node `{name}` is given twice")
            network.add(name, kind)
    used: Counter[str] = Counter()
    for index, link in enumerate(settings.links):
        _add_links(network, link, index, used)
    return network


def _add_links(network: Network, link: ExplicitLink, entry: int, used: Counter[str]) -> None:
    path: tuple[str | int, ...] = ("links", entry)
    left, right = (_expand((*path, "ends", end), name) for end, name in enumerate(link.ends))
    count = max(len(left), len(right))
    if len(left) != len(right) and min(len(left), len(right)) != 1:
        raise TopologyError((*path, "ends"), f"ranges of {len(left)} and {len(right)} nodes do not pair up")
    if link.name is not None and count > 1:
        raise TopologyError((*path, "name"), "a range of links cannot have one name")
    settings: dict[str, object] = link.given()
    for i in range(count):
        a, b = left[i % len(left)], right[i % len(right)]
        if a == b:
            raise TopologyError((*path, "ends"), f"a link needs two nodes, got `{a}` twice")
        name = link.name or _free_name(used, f"{a}-{b}")
        network.links.append(Link(a, b, link.layer, name, settings, entry))


def _free_name(used: Counter[str], name: str) -> str:
    """Parallel links are `s1-s2`, `s1-s2-2`, `s1-s2-3`."""
    used[name] += 1
    return f"{name}-{used[name]}" if used[name] > 1 else name


def _count(path: tuple[str | int, ...], name: str) -> int:
    try:
        return count_range(name)
    except ValueError as error:
        raise TopologyError(path, str(error)) from None


def _expand(path: tuple[str | int, ...], name: str) -> list[str]:
    try:
        return expand_range(name)
    except ValueError as error:
        raise TopologyError(path, str(error)) from None
