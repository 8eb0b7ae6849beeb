# SPDX-License-Identifier: Apache-2.0
"""Addresses of link ends and prefixes of edge switches.

Each switch with hosts has one block of host-link addresses out of 10.0.0.0/9 (IPv6: fd00::/64), a power of two in size
and aligned to it, so that one route reaches all of its hosts. A host link has two adjacent addresses of the block (a
/31 or /127: RFC 3021, RFC 6164), the switch's first. Links between switches, and between hosts, are numbered from
10.128.0.0/9 (fd00:0:0:1::/64). The IPv4 and IPv6 address of an end have the same low bits.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from qbed.lab.topology import Network

_HOST_BASE4, _CORE_BASE4 = 10 << 24, (10 << 24) | (1 << 23)
_HOST_BASE6, _CORE_BASE6 = 0xFD00 << 112, (0xFD00 << 112) | (1 << 64)
Side = Literal["a", "b"]
Family = Literal[4, 6]
ADDRESS_BITS: dict[Family, int] = {4: 32, 6: 128}


@dataclass(frozen=True)
class Number:
    """An address of either family: an offset in the hosts' or the core's range."""

    offset: int
    core: bool = False

    def value(self, family: Family) -> int:
        if family == 4:
            return (_CORE_BASE4 if self.core else _HOST_BASE4) + self.offset
        return (_CORE_BASE6 if self.core else _HOST_BASE6) + self.offset

    def text(self, family: Family) -> str:
        return (show4 if family == 4 else show6)(self.value(family))


@dataclass(frozen=True)
class Block:
    """The 2^bits addresses of an edge switch's hosts, starting at `offset`."""

    offset: int
    bits: int

    def length(self, family: Family) -> int:
        """The length of the prefix."""
        return ADDRESS_BITS[family] - self.bits

    def prefix(self, family: Family) -> str:
        return f"{Number(self.offset).text(family)}/{self.length(family)}"


def show4(value: int) -> str:
    """Format an IPv4 address."""
    return f"{value >> 24}.{value >> 16 & 255}.{value >> 8 & 255}.{value & 255}"


def show6(value: int) -> str:
    """Format an IPv6 address of the form fd00:0:0:x:0:0:y:z (RFC 5952: the longest run of zeros becomes `::`)."""
    groups = [value >> shift & 0xFFFF for shift in range(112, -16, -16)]
    best = (0, 0)
    start = 0
    while start < 8:
        end = start
        while end < 8 and groups[end] == 0:
            end += 1
        if end - start > max(1, best[1] - best[0]):
            best = (start, end)
        start = end + 1
    words = [f"{group:x}" for group in groups]
    return ":".join(words[: best[0]]) + "::" + ":".join(words[best[1] :])


class Addresses:
    """The addresses of all link ends, and the blocks of all edge switches."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.ends: dict[tuple[int, Side], Number] = {}
        self._host_links = self._find_host_links()
        self._assign()

    def _find_host_links(self) -> dict[str, list[int]]:
        """Return the links to hosts of each switch that has any, in the order of the switches."""
        nodes = self.network.nodes
        found: dict[str, list[int]] = {name: [] for name, kind in nodes.items() if kind == "switch"}
        for i, link in enumerate(self.network.links):
            for local, remote in ((link.a, link.b), (link.b, link.a)):
                if nodes[local] == "switch" and nodes[remote] == "host":
                    found[local].append(i)
        return {name: links for name, links in found.items() if links}

    @cached_property
    def blocks(self) -> dict[str, Block]:
        """The block of each edge switch."""
        blocks: dict[str, Block] = {}
        free = 0
        for switch, links in self._host_links.items():
            bits = max(1, (2 * len(links) - 1).bit_length())
            size = 1 << bits
            offset = -(-free // size) * size
            blocks[switch] = Block(offset, bits)
            free = offset + size
        return blocks

    def _assign(self) -> None:
        in_blocks = set()
        for switch, links in self._host_links.items():
            for position, i in enumerate(links):
                at_a = self.network.links[i].a == switch
                first = self.blocks[switch].offset + 2 * position
                self.ends[i, "a" if at_a else "b"] = Number(first)
                self.ends[i, "b" if at_a else "a"] = Number(first + 1)
                in_blocks.add(i)
        core = (i for i in range(len(self.network.links)) if i not in in_blocks)
        for position, i in enumerate(core):
            self.ends[i, "a"] = Number(2 * position, core=True)
            self.ends[i, "b"] = Number(2 * position + 1, core=True)
