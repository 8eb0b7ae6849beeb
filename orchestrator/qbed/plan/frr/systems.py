# SPDX-License-Identifier: Apache-2.0
"""Which switch is which autonomous system.

As RFC 7938 (section 5.2.1) numbers a Clos network: every rack is one of its own, the leaves of a pod share one, the
spines share one. Routes that would go down and up again then carry an AS number twice and are refused, so BGP finds
no valleys. For any network: switches of one level (links to the nearest rack) share a number where they are connected
by switches of no higher level. Where two of these are neighbours, or a third lies between two of them on a shortest
path, they would refuse what they need, so each gets a number of its own.
"""

from collections import defaultdict

from qbed.network.routes import Routing

FIRST = 4_200_000_000
"""First of the private 32-bit AS numbers (RFC 6996)."""


def systems(routing: Routing) -> dict[int, int]:
    """The AS number of every switch, by node."""
    switches = [node for node, is_host in enumerate(routing.is_host) if not is_host]
    groups: dict[tuple[int, int], list[int]] = defaultdict(list)
    for level in sorted({routing.levels[node] for node in switches}):
        component = _components(routing, [node for node in switches if routing.levels[node] <= level])
        for node in switches:
            if routing.levels[node] == level:
                groups[level, node if level == 0 else component[node]].append(node)
    numbers: dict[int, int] = {}
    following = FIRST
    for group in groups.values():
        shared = _may_share(routing, group)
        for position, node in enumerate(group):
            numbers[node] = following + (0 if shared else position)
        following += 1 if shared else len(group)
    return numbers


def _components(routing: Routing, nodes: list[int]) -> dict[int, int]:
    """Return, for each node, the first node of its connected component among these nodes."""
    allowed, found = set(nodes), dict[int, int]()
    for start in nodes:
        stack = [] if start in found else [start]
        while stack:
            node = stack.pop()
            if node not in found:
                found[node] = start
                stack.extend(peer for out in routing.switch_outs[node] if (peer := routing.peer(out)) in allowed)
    return found


def _may_share(routing: Routing, group: list[int]) -> bool:
    """Whether no shortest path to a rack goes through two of them."""
    members = set(group)
    if len(group) > 1 and any(routing.peer(out) in members for node in group for out in routing.switch_outs[node]):
        return False
    return not any(_meets(routing, node, edge, members) for node in group for edge in routing.edges)


def _meets(routing: Routing, start: int, edge: int, members: set[int]) -> bool:
    """Whether a shortest path from a switch to a rack passes another of these."""
    stack, seen = [start], set[int]()
    while stack:
        for out in routing.next_hops(stack.pop(), edge):
            peer = routing.peer(out)
            if peer in members:
                return True
            if peer not in seen:
                seen.add(peer)
                stack.append(peer)
    return False
