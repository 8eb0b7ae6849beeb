# SPDX-License-Identifier: Apache-2.0
"""Shortest paths: the next hops of all switches and hosts.

Switches route to edge switches (those with hosts) along all shortest paths (ECMP), hosts through their switch. Hosts
never forward.

A flow and its acknowledgements take the same links, because

* with `fib_multipath_hash_policy=1` Linux hashes addresses, ports and protocol after sorting the two addresses and,
  separately, the two ports (`__flow_hash_consistentify`, net/core/flow_dissector.c), so both directions have the
  same hash;
* `fib_select_multipath` (net/ipv4/fib_semantics.c; `fib6_select_path` for IPv6) takes the first next hop whose upper
  bound reaches the hash; of n next hops of equal weight that is number `hash * n / 2^31`, in the order of the route;
* that order is everywhere by the neighbour's index, so the same number is the same neighbour for two switches below
  the same ones, and both directions choose the same spine, and on the way down the leaf that the other direction
  takes on its way up;
* all switches of a layer have the same `fib_multipath_hash_seed`. Neighbouring layers have different ones: otherwise
  a leaf would see only hashes that chose it, and use only some of its spines (polarisation). Racks and spines share
  a seed: the number of the leaf that a spine chooses downwards must be the one that a rack of that pod chooses
  upwards. This requires the link device to clear the hash of the sender's socket from each frame that enters a node
  (`skb_clear_hash`), since `fib_multipath_hash` would use it.
"""

from collections import deque
from collections.abc import Sequence
from functools import cached_property

Out = tuple[int, int]
"""A link's end as seen by the sending node: link index, side (0: a, 1: b)."""
_NO_WAY = 1 << 30


class Routing:
    """Shortest paths in a network of hosts and switches, by index. `links` are pairs of nodes."""

    def __init__(self, is_host: Sequence[bool], links: Sequence[tuple[int, int]]) -> None:
        self.is_host = is_host
        self.links = links
        self.outs: list[list[Out]] = [[] for _ in is_host]
        for i, (a, b) in enumerate(links):
            self.outs[a].append((i, 0))
            self.outs[b].append((i, 1))
        self._distances: dict[int, dict[int, int]] = {}
        self._next_hops: dict[tuple[int, int], list[Out]] = {}

    def peer(self, out: Out) -> int:
        """Return the node at the other end."""
        return self.links[out[0]][1 - out[1]]

    @cached_property
    def switch_outs(self) -> list[list[Out]]:
        """Each switch's ends towards switches, by the neighbour's index, then the link's."""
        return [
            []
            if self.is_host[node]
            else sorted((o for o in outs if not self.is_host[self.peer(o)]), key=lambda o: (self.peer(o), o[0]))
            for node, outs in enumerate(self.outs)
        ]

    @cached_property
    def edges(self) -> list[int]:
        """The switches that have hosts."""
        return [
            node
            for node, outs in enumerate(self.outs)
            if not self.is_host[node] and any(self.is_host[self.peer(out)] for out in outs)
        ]

    @cached_property
    def levels(self) -> list[int]:
        """The number of links from each switch to the nearest edge switch; 0 for hosts and for unreachable switches."""
        found = self._search(self.edges)
        return [found.get(node, 0) for node in range(len(self.is_host))]

    def distances(self, edge: int) -> dict[int, int]:
        """Return the number of links from each switch to an edge switch, without those that cannot reach it."""
        if edge not in self._distances:
            self._distances[edge] = self._search([edge])
        return self._distances[edge]

    def _search(self, starts: Sequence[int]) -> dict[int, int]:
        found = dict.fromkeys(starts, 0)
        queue = deque(starts)
        while queue:
            node = queue.popleft()
            for peer in self._switch_peers[node]:
                if peer not in found:
                    found[peer] = found[node] + 1
                    queue.append(peer)
        return found

    @cached_property
    def _switch_peers(self) -> list[list[int]]:
        """The neighbours behind `switch_outs`."""
        return [[self.peer(out) for out in outs] for outs in self.switch_outs]

    def next_hops(self, switch: int, edge: int) -> list[Out]:
        """Return the ends at which shortest paths from a switch to an edge switch begin; empty if there is none."""
        if (switch, edge) not in self._next_hops:
            distances = self.distances(edge)
            nearer = distances.get(switch, 0) - 1
            hops = zip(self.switch_outs[switch], self._switch_peers[switch], strict=True) if nearer >= 0 else ()
            self._next_hops[switch, edge] = [out for out, peer in hops if distances[peer] == nearer]
        return self._next_hops[switch, edge]

    def uplinks(self, host: int) -> list[Out]:
        """Return a host's ends towards switches, in their order."""
        return [out for out in self.outs[host] if not self.is_host[self.peer(out)]]

    def direct(self, host: int) -> list[Out]:
        """Return a host's ends towards hosts."""
        return [out for out in self.outs[host] if self.is_host[self.peer(out)]]

    def primary(self, node: int) -> Out | None:
        """Return the end with the address that identifies a node: a host's first end towards a switch, otherwise
        its first end.
        """
        return next(iter(self.uplinks(node) if self.is_host[node] else self.outs[node]), None) or next(
            iter(self.outs[node]), None
        )

    def detours(self, host: int) -> list[tuple[int, Out]]:
        """Return the edge switches that are nearer by another uplink of a host than by its first, each with that
        uplink.
        """
        uplinks = self.uplinks(host)
        found: list[tuple[int, Out]] = []
        for edge in self.edges if len(uplinks) > 1 else []:
            distances = self.distances(edge)
            costs = [distances.get(self.peer(out), _NO_WAY) for out in uplinks]
            if min(costs) < costs[0]:
                found.append((edge, uplinks[costs.index(min(costs))]))
        return found

    def path(self, source: int, destination: int) -> list[Out] | None:
        """Return the sending ends of ONE shortest path between two hosts, one for each link; None if there
        is no path.
        """
        for out in self.direct(source):
            if self.peer(out) == destination:
                return [out]
        last = self.primary(destination)
        uplinks = self.uplinks(source)
        if source == destination or last is None or self.is_host[self.peer(last)] or not uplinks:
            return None
        edge = self.peer(last)
        first = dict(self.detours(source)).get(edge, uplinks[0])
        node = self.peer(first)
        if node not in self.distances(edge):
            return None
        path = [first]
        while node != edge:
            path.append(self.next_hops(node, edge)[0])
            node = self.peer(path[-1])
        return [*path, (last[0], 1 - last[1])]
