# SPDX-License-Identifier: Apache-2.0
"""Programs and table entries of P4 switches: the forwarding tables of docs/p4.md, filled from the compiler's routes."""

import struct
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from qbed.network.addresses import Family
from qbed.p4.entry import Entry, Prefix, RecirculationPort
from qbed.p4.scheme_entries import clone_sessions
from qbed.p4.sources import Program
from qbed.p4.user_entries import UserEntries
from qbed.plan.pipeline import P4Program, Session
from qbed.plan.queue import KernelQdisc
from qbed.schemes.encoding import attribute

MODULE = "qp4"
BMV2 = "simple_switch_grpc"
_LAYER_SHIFT = 16
_OVERHEAD_BYTES, _MIN_BYTES = 24, 84  # of a frame on Ethernet: preamble, checksum, gap; and all of it
_ETHERNET = 1  # TC_LINKLAYER_ETHERNET
_TBF_PARMS, _TBF_RATE64, _TBF_BURST = 1, 4, 6


class Hop(NamedTuple):
    """An output port, and the Ethernet addresses of packets that leave there."""

    port: int
    source: int
    destination: int


class Forwarding:
    """Routes of one switch. Next hops of one route have consecutive numbers; equal groups share theirs.

    As neighbouring layers of Linux switches have different hash seeds, theirs have different shifts.
    """

    def __init__(self, level: int) -> None:
        self._shift = _LAYER_SHIFT * (level % 2)
        self._groups: dict[tuple[Hop, ...], int] = {}
        self._hops: list[Hop] = []
        self._routes: list[Entry] = []

    def add(self, to: Prefix, hops: list[Hop], family: Family) -> None:
        """A route."""
        group = tuple(hops)
        if group not in self._groups:
            self._groups[group] = len(self._hops)
            self._hops += group
        arguments = {"first": self._groups[group], "count": len(group), "shift_by": self._shift}
        self._routes.append(Entry(f"ipv{family}_routes", "route", arguments, {"destination": to}))

    def entries(self) -> Iterator[Entry]:
        """Next hops first: no route leads to one that there is not."""
        for number, hop in enumerate(self._hops):
            yield Entry("next_hops", "send", hop._asdict(), {"hop": number})
        yield from self._routes


def programs(found: Mapping[str, Program], engines: Mapping[str, str]) -> list[P4Program]:
    """Return each program once, by name."""
    by_name = {program.name: program for program in found.values()}
    informed = {found[switch].name for switch, engine in engines.items() if engine == BMV2}
    return [
        P4Program(name=name, bmv2=program.text, p4info=program.info.text if name in informed else None)
        for name, program in sorted(by_name.items())
    ]


def sessions(program: Program, recirculation: RecirculationPort | None, user_entries: UserEntries) -> list[Session]:
    """Return the clone sessions of a scheme's program, and those of the file."""
    needed = clone_sessions(program.scheme or "", recirculation)
    found = {number: (ports, 0) for number, ports in needed.items()} | user_entries.sessions
    return [Session(session=number, ports=ports, truncate_bytes=cut) for number, (ports, cut) in found.items()]


def shaper(rate_bps: int, buffer_bytes: int, frame_bytes: int) -> KernelQdisc:
    """A queue that lets packets go at a rate (Linux's tbf), each as long as on Ethernet: the link's own rate does not
    hold for what the program takes back.
    """
    max_u32 = (1 << 32) - 1
    rate = -(-rate_bps // 8)
    spec = struct.pack("=BBHhHI", 0, _ETHERNET, _OVERHEAD_BYTES, 0, _MIN_BYTES, min(rate, max_u32))
    options = attribute(_TBF_PARMS, spec + bytes(len(spec)) + struct.pack("=III", min(buffer_bytes, max_u32), 0, 0))
    options += attribute(_TBF_RATE64, struct.pack("=Q", rate)) if rate > max_u32 else b""
    options += attribute(_TBF_BURST, struct.pack("=I", 2 * (frame_bytes + _OVERHEAD_BYTES)))
    return KernelQdisc(kind="tbf", options=options.hex())
