# SPDX-License-Identifier: Apache-2.0
"""Division of a lab into parts: each part's nodes run in a kernel of their own.

A unit is never divided: a switch with the hosts that only it connects, and nodes with a link of no delay between them.
Units with hosts are taken in the order of a breadth-first search, so that neighbours stay together, and cut where the
sum of their loads reaches the next part's share. Switches without hosts, such as the spines of a Clos, follow: each
goes to the part with the most of its neighbours that does not exceed its share of the whole load then, or, if all do,
to the part with the least load. Where there are too few such units (a star), hosts are units of their own,
and the heaviest unit goes to the part with the least load. The load of a node is the sum of the rates of its link ends,
to which its expected packets are proportional; that of a host is `HOST_WEIGHT / SWITCH_WEIGHT` times as much.

A frame needs at least the least delay of the cut links to the other part: so far the parts can run ahead of each other.
"""

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from qbed.plan.base import lines
from qbed.plan.model import Change, End, Link, Plan

_NODES = ' "nodes": [\n'
NEVER_NS = (1 << 63) - 1
"""The distance of parts without a path between them."""
MAX_RATE_BPS = 10**15
"""The limit on a link end's share of a load: a link without a limit is no infinite load."""
HOST_WEIGHT, SWITCH_WEIGHT = 7, 2
"""CPU time for a packet at a host's and at a switch's link end: their ratio is 3.6 with 999 flows between the hosts of
a star of 1,000 nodes, 4.7 with 999 flows to one of them (`busy_s` of two parts, EPYC of family 25)."""


class IndivisibleError(Exception):
    """Raised if a lab has fewer units than parts."""

    def __init__(self, units: int) -> None:
        super().__init__(units)
        self.units = units


def plans_of_parts(plan: Plan, text: str) -> Iterator[str]:
    """The plan of each part's agent, from the text of the whole: without what only other nodes' agents need."""
    begin = text.index(_NODES) + len(_NODES)
    end = text.index("\n ]", begin)
    complete = text[begin:end].split(",\n")
    update: dict[str, object] = {"sysctls": {}, "routes": [], "files": {}, "programs": [], "expects": []}
    shortened = lines(node.model_copy(update=update) for node in plan.nodes)
    for part in range(plan.part_count):
        found = (complete[node] if of_node == part else shortened[node] for node, of_node in enumerate(plan.parts))
        yield text[:begin] + ",\n".join(found) + text[end:]


@dataclass(frozen=True)
class Unit:
    """Nodes that are in the same part, by index."""

    nodes: list[int]
    load: int
    has_hosts: bool


def divide(is_host: Sequence[bool], links: Sequence[Link], delays_ns: Sequence[int], parts: int) -> list[int]:
    """The part of each node. `delays_ns`: the least delay of each link during the run. `IndivisibleError`."""
    units = _units(is_host, links, delays_ns, with_hosts=True)
    if len(units) >= parts:
        part_of = _neighbours_together(units, links, parts)
    else:
        units = _units(is_host, links, delays_ns, with_hosts=False)
        if len(units) < parts:
            raise IndivisibleError(len(units))
        part_of = _heaviest_first(units, parts)
    found = [0] * len(is_host)
    for unit, part in zip(units, part_of, strict=True):
        for node in unit.nodes:
            found[node] = part
    return found


def _neighbours_together(units: Sequence[Unit], links: Sequence[Link], parts: int) -> list[int]:
    neighbours = _neighbours(units, links)
    part_of: dict[int, int] = {}
    loads = [0] * parts
    order = [number for number in _breadth_first(neighbours) if units[number].has_hosts]
    total, done = sum(units[number].load for number in order), 0
    everything = sum(unit.load for unit in units)
    for number in order:
        part = min((2 * done + units[number].load) * parts // max(1, 2 * total), parts - 1)
        part_of[number] = part
        loads[part] += units[number].load
        done += units[number].load
    for number, unit in enumerate(units):
        if number not in part_of:
            near = Counter[int]()
            for neighbour, count in neighbours[number].items():
                if neighbour in part_of:
                    near[part_of[neighbour]] += count
            excess = [max(0, (load + unit.load) * parts - everything) for load in loads]
            part_of[number] = part = min(range(parts), key=lambda part: (excess[part], -near[part], loads[part], part))
            loads[part] += unit.load
    if not all(loads):  # fewer units with hosts than parts
        return _heaviest_first(units, parts)
    return [part_of[number] for number in range(len(units))]


def _heaviest_first(units: Sequence[Unit], parts: int) -> list[int]:
    part_of, loads = [0] * len(units), [0] * parts
    for number in sorted(range(len(units)), key=lambda number: -units[number].load):
        part_of[number] = part = loads.index(min(loads))
        loads[part] += max(1, units[number].load)
    return part_of


def _neighbours(units: Sequence[Unit], links: Sequence[Link]) -> list[Counter[int]]:
    """The number of links of each unit to each other one."""
    unit_of = {node: number for number, unit in enumerate(units) for node in unit.nodes}
    neighbours: list[Counter[int]] = [Counter() for _ in units]
    for link in links:
        a, b = unit_of[link.a.node], unit_of[link.b.node]
        if a != b:
            neighbours[a][b] += 1
            neighbours[b][a] += 1
    return neighbours


def _units(is_host: Sequence[bool], links: Sequence[Link], delays_ns: Sequence[int], *, with_hosts: bool) -> list[Unit]:
    """The units of a lab, in the order of their first nodes. `with_hosts`: hosts with one link belong to its unit."""
    leader = list(range(len(is_host)))

    def find(node: int) -> int:
        while leader[node] != node:
            leader[node] = node = leader[leader[node]]
        return node

    ends = Counter(end.node for link in links for end in (link.a, link.b))
    for link, delay_ns in zip(links, delays_ns, strict=True):
        alone = with_hosts and any(is_host[end.node] and ends[end.node] == 1 for end in (link.a, link.b))
        if alone or delay_ns == 0:
            first, second = sorted((find(link.a.node), find(link.b.node)))
            leader[second] = first
    loads = Counter[int]()
    for link in links:
        for end in (link.a, link.b):
            loads[find(end.node)] += _load(end, is_host[end.node])
    nodes: dict[int, list[int]] = {}
    for node in range(len(is_host)):
        nodes.setdefault(find(node), []).append(node)
    return [Unit(found, loads[first], any(is_host[node] for node in found)) for first, found in nodes.items()]


def _load(end: End, at_host: bool) -> int:
    return min(end.rate_bps, MAX_RATE_BPS) * (HOST_WEIGHT if at_host else SWITCH_WEIGHT)


def _breadth_first(neighbours: Sequence[Iterable[int]]) -> list[int]:
    order: dict[int, None] = {}
    for start in range(len(neighbours)):
        waiting = deque([start])
        while waiting:
            unit = waiting.popleft()
            if unit not in order:
                order[unit] = None
                waiting.extend(sorted(neighbours[unit]))
    return list(order)


def least_delays_ns(links: Sequence[Link], changes: Iterable[Change]) -> list[int]:
    """The least delay of each link during the run, over both directions."""
    least = [min(link.a.delay_ns, link.b.delay_ns) for link in links]
    for change in changes:
        if change.link is not None and change.link.delay_ns is not None:
            least[change.link.link] = min(least[change.link.link], change.link.delay_ns)
    return least


def cut_links(plan: Plan) -> list[int]:
    """The links with ends in two parts, by index."""
    parts = plan.parts
    return [index for index, link in enumerate(plan.links) if parts and parts[link.a.node] != parts[link.b.node]]


def distances_ns(plan: Plan) -> list[list[int]]:
    """The least time from an event in one part to its first effect in another one, or by way of others in itself."""
    count = plan.part_count
    distances = [[NEVER_NS] * count for _ in range(count)]
    least = least_delays_ns(plan.links, plan.changes)
    for index in cut_links(plan):
        a, b = (plan.parts[end.node] for end in (plan.links[index].a, plan.links[index].b))
        for start, end in ((a, b), (b, a)):
            distances[start][end] = min(distances[start][end], least[index])
    for middle, start, end in product(range(count), repeat=3):
        through = distances[start][middle] + distances[middle][end]
        distances[start][end] = min(distances[start][end], through)
    return distances


def loads(plan: Plan) -> list[float]:
    """The share of each part in the sum of the loads of all nodes."""
    found = [0] * plan.part_count
    for link in plan.links:
        for end in (link.a, link.b):
            found[plan.parts[end.node]] += _load(end, plan.nodes[end.node].kind == "host")
    return [load / sum(found) for load in found]
