# SPDX-License-Identifier: Apache-2.0
"""Rate, delay, loss, overhead and MTU of every link end.

The more specific kind of key takes precedence: default < layer < the settings in an explicit topology < glob < link
name < glob of one direction < one direction; within a kind, the later entry.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from qbed.base.errors import nearest
from qbed.config.problems import Problems
from qbed.config.selectors import is_glob, is_wide
from qbed.config.source import FieldPath
from qbed.config.units import format_size
from qbed.lab.settings import Given, LinkFields, LinkSettings
from qbed.lab.topology import Network

Side = Literal["a", "b"]
LinkEnd = tuple[int, Side]
"""A link's index and one of its ends: the node at that end, sending towards the other."""

_DEFAULT, _LAYER, _EXPLICIT, _GLOB, _NAME, _WIDE_DIRECTION, _DIRECTION = range(7)
_SMALLEST_MTU, _LARGEST_MTU = 68, 65535  # RFC 791


@dataclass
class EndSettings:
    """The transmitter at one end of a link."""

    rate_bps: int = 0
    delay_ns: int = 0
    overhead_bytes: int = 0
    loss: float = 0.0
    jitter_ns: int = 0
    reordering: bool = False


@dataclass
class LinkState:
    """A link with both ends."""

    a: EndSettings = field(default_factory=EndSettings)
    b: EndSettings = field(default_factory=EndSettings)
    mtu: int = 1500


Winners = dict[tuple[int, str, str], FieldPath]
"""The path of the effective setting by link, side (empty for the whole link) and field."""


@dataclass(frozen=True)
class _Entry:
    """Settings of some link ends, grouped by link: a list is spread over the groups."""

    rank: int
    path: FieldPath
    given: Given
    targets: list[list[LinkEnd]]
    ends: Mapping[str, LinkFields] = field(default_factory=dict)


def directions(network: Network, problems: Problems, path: FieldPath, key: str) -> list[LinkEnd]:
    """Return the link ends that `x>y` matches: at x, towards y; both may be globs or ranges."""
    left, arrow, right = key.partition(">")
    local, remote = (set(problems.select(path, part, network.nodes)) for part in (left, right))
    found: list[LinkEnd] = []
    candidates = (
        range(len(network.links)) if is_wide(left) else sorted(i for node in local for i in network.links_of[node])
    )
    problems.spend(path, len(candidates))
    for i in candidates:
        link = network.links[i]
        if link.a in local and link.b in remote:
            found.append((i, "a"))
        if link.b in local and link.a in remote:
            found.append((i, "b"))
    if not found:
        names = {name for link in network.links for name in (f"{link.a}>{link.b}", f"{link.b}>{link.a}")}
        expected = "" if arrow else "; expected a direction such as `h1>s1`"
        problems.error(path, f"no link leads `{key}`{expected or nearest(key, names)}", at_key=True)
    return found


def resolve_links(
    network: Network, links: Mapping[str, LinkSettings], problems: Problems, *, delays_change: bool = False
) -> list[LinkState]:
    """Return the settings of every link, in the network's order. `delays_change`: an event changes a delay during the
    run.
    """
    states = [LinkState() for _ in network.links]
    winners: Winners = {}
    both: list[list[LinkEnd]] = [[(i, "a"), (i, "b")] for i in range(len(network.links))]
    entries = [_entry(network, both, key, settings, problems) for key, settings in links.items()]
    for entry in sorted([*_explicit_entries(network), *entries], key=lambda entry: entry.rank):
        _apply(states, entry, problems, winners)
        for node, end_fields in entry.ends.items():
            _apply(states, _end_entry(network, entry, node, end_fields, problems), problems, winners)
    for (index, side, name), path in winners.items():
        if name == "reordering" and not delays_change and _is_in_order(getattr(states[index], side)):
            text = "all frames take the same time: not used; expected a `jitter` beside it"
            problems.not_read(path, text)
        else:
            problems.read(path)
    for link, state in zip(network.links, states, strict=True):
        for node, end in ((link.a, state.a), (link.b, state.b)):
            if end.rate_bps == 0 and not problems.errors:
                hint = "expected one, for example `default: {rate: 10 Gbit/s}`"
                problems.error(("links",), f"the link `{link.name}` has no rate at {node}: {hint}")
    return states


def _is_in_order(end: EndSettings) -> bool:
    """Whether reordering is allowed but impossible, because all frames have the same delay."""
    return end.reordering and not end.jitter_ns


def _explicit_entries(network: Network) -> list[_Entry]:
    """Return the settings within explicit links; one entry may define several links."""
    groups: dict[int, list[int]] = {}
    for i, link in enumerate(network.links):
        if link.settings:
            groups.setdefault(link.entry, []).append(i)
    return [
        _Entry(
            _EXPLICIT,
            ("topology", "explicit", "links", entry),
            network.links[group[0]].settings,
            [[(i, "a"), (i, "b")] for i in group],
        )
        for entry, group in groups.items()
    ]


def _entry(network: Network, both: list[list[LinkEnd]], key: str, settings: LinkSettings, problems: Problems) -> _Entry:
    """The settings under a key. `both`: the two ends of each link, shared by all entries."""
    path: FieldPath = ("links", key)
    if ">" in key:
        rank = _WIDE_DIRECTION if is_glob(key) or ".." in key else _DIRECTION
        found = [[end] for end in directions(network, problems, path, key)]
        if settings.mtu is not None:
            problems.error((*path, "mtu"), "belongs to the whole link: expected it under the link's name")
        return _Entry(rank, path, settings.given(), found, settings.ends)
    rank, chosen = _named_links(network, key, problems)
    return _Entry(rank, path, settings.given(), [both[i] for i in chosen], settings.ends)


def _named_links(network: Network, key: str, problems: Problems) -> tuple[int, list[int]]:
    """Return the kind of a key, and the links that it matches."""
    if key == "default":
        return _DEFAULT, list(range(len(network.links)))
    if key in network.layers:
        if not network.layers[key]:
            problems.error(("links", key), "no link is in this layer: expected no settings of one", at_key=True)
        return _LAYER, network.layers[key]
    names = network.link_names
    chosen = problems.select(("links", key), key, names)
    problems.spend(("links", key), 2 * len(chosen))
    if not chosen:
        hint = nearest(key, {*names, *network.layers, "default"})
        problems.error(("links", key), f"no link or layer is called `{key}`{hint}", at_key=True)
    return (_GLOB if is_glob(key) else _NAME), sorted(names[name] for name in chosen)


def _end_entry(network: Network, entry: _Entry, node: str, end_fields: LinkFields, problems: Problems) -> _Entry:
    """Return the settings that `ends` has for one node: for those of the entry's link ends that are at this node."""
    path = (*entry.path, "ends", node)
    links = network.links
    nodes = set(problems.select(path, node, network.nodes))
    problems.spend(path, len(entry.targets))
    ends = [end for group in entry.targets for end in group if (getattr(links[end[0]], end[1]) in nodes)]
    if not ends and entry.targets:
        names = {name for group in entry.targets for i, _ in group for name in (links[i].a, links[i].b)}
        problems.error(path, f"no link of `{entry.path[-1]}` ends at `{node}`{nearest(node, names)}", at_key=True)
    if end_fields.mtu is not None:
        problems.error((*path, "mtu"), "belongs to the whole link: expected it beside `ends`")
    return _Entry(entry.rank, path, end_fields.given(), [[end] for end in ends])


def _apply(states: list[LinkState], entry: _Entry, problems: Problems, winners: Winners) -> None:
    if not _valid(entry, problems):
        return
    given, count = entry.given, len(entry.targets)
    for position, group in enumerate(entry.targets):
        for index, side in group:
            end: EndSettings = getattr(states[index], side)
            winners |= {(index, "" if name == "mtu" else side, name): (*entry.path, name) for name in given}
            if "rate" in given:
                end.rate_bps = given["rate"][position * len(given["rate"]) // count]
            if "delay" in given:
                end.delay_ns = given["delay"][position * len(given["delay"]) // count]
            end.overhead_bytes = given.get("overhead", end.overhead_bytes)
            end.loss = given.get("loss", end.loss)
            end.jitter_ns = given.get("jitter", end.jitter_ns)
            end.reordering = given.get("reordering", "on" if end.reordering else "off") == "on"
            states[index].mtu = given.get("mtu", states[index].mtu)


def _valid(entry: _Entry, problems: Problems) -> bool:
    before = len(problems.errors)
    given, count = entry.given, len(entry.targets)
    for name in ("rate", "delay"):
        values = given.get(name, ())
        if values and count % len(values):
            text = f"a list of {len(values)} does not spread evenly over the {count} links that this names"
            problems.error((*entry.path, name), text)
    if not _SMALLEST_MTU <= given.get("mtu", 1500) <= _LARGEST_MTU:
        text = f"expected {_SMALLEST_MTU} to {_LARGEST_MTU} bytes, got `{format_size(given['mtu'])}`"
        problems.error((*entry.path, "mtu"), text)
    if given.get("loss", 0) == 1:
        problems.error((*entry.path, "loss"), "expected less than 1: a link that loses every frame is none")
    if given.get("overhead", 0) > _LARGEST_MTU:
        problems.error((*entry.path, "overhead"), f"expected at most {_LARGEST_MTU} bytes")
    return len(problems.errors) == before and count > 0
