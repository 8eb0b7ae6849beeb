# SPDX-License-Identifier: Apache-2.0
"""The plan's P4 switches: programs, ports and table entries."""

from qbed.lab.settings import P4Engine
from qbed.p4.entry import Entry, Number
from qbed.plan.base import Part
from qbed.plan.queue import Qdisc


class RecirculationPort(Part):
    """A recirculation port: packets that are sent there return to the ingress."""

    port: int
    """The port's number."""
    interface: str
    """The interface of the port in the switch's namespace."""
    rate_bps: int | None
    """The rate of its queue, for readers of the plan. null: packets leave at once."""
    qdisc: Qdisc
    """Its queue."""


class Session(Part):
    """A clone session."""

    session: int
    """The session's number."""
    ports: list[int]
    """The ports that get a clone."""
    truncate_bytes: int
    """The length of clones in bytes; 0: not truncated."""


class Group(Part):
    """A multicast group."""

    group: int
    """The group's number."""
    ports: list[int]
    """The ports that get a copy."""


class Register(Part):
    """The initial value of one element of a register."""

    name: str
    """The program's name of the register."""
    index: int
    """The element."""
    value: Number
    """The value."""


class Pipeline(Part):
    """The program of a P4 switch with its ports and entries."""

    program: str
    """The name of a program in the plan's `p4`."""
    engine: P4Engine | None = None
    """The engine in containers, if the lab file names one."""
    ports: list[str]
    """Interfaces by port number."""
    entries: list[Entry]
    """Table entries in the order of insertion."""
    recirculation: list[RecirculationPort] = []
    """Recirculation ports."""
    sessions: list[Session] = []
    """Clone sessions."""
    groups: list[Group] = []
    """Multicast groups."""
    registers: list[Register] = []
    """Initial values of registers."""


class P4Program(Part):
    """A P4 program."""

    name: str
    """The program's name, to which pipelines refer."""
    bmv2: str
    """BMv2's JSON as text."""
    p4info: str | None = None
    """P4Info as text, if an engine of the plan is configured by P4Runtime."""
