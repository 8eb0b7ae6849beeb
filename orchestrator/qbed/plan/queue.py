# SPDX-License-Identifier: Apache-2.0
"""Queues of the plan, and their qdiscs."""

from typing import Literal

from qbed.plan.base import Hex, Part


class ChildQdisc(Part):
    """The qdisc inside a classful one: `2:` in the class `1:1` of the root."""

    kind: str
    """Name of the qdisc."""
    options: Hex
    """Payload of TCA_OPTIONS; may be empty."""


class KernelQdisc(ChildQdisc):
    """A qdisc by the payload of its netlink message. Counters and taps are those of the root."""

    child: ChildQdisc | None = None
    """The qdisc inside."""


class TcQdisc(Part):
    """A qdisc by the arguments of `tc`."""

    tc: list[str]
    """Arguments of `tc qdisc replace dev X root`."""


Qdisc = KernelQdisc | TcQdisc


class Observe(Part):
    """Recording of a queue's tap."""

    interval_ns: int
    """Interval of the queue's series; 0: no series."""
    bin_bytes: int
    """Width of a bin of the occupancy histogram."""
    events: bool
    """Whether every enqueue, dequeue, drop and mark is recorded."""


class Queue(Part):
    """The root qdisc of a link's end. Every queue has a tap."""

    name: str
    """NODE:INTERFACE."""
    node: int
    """Index of the node."""
    interface: str
    """Interface of the node."""
    scheme: str
    """Name of the scheme, or `custom` for arguments of `tc`."""
    role: Literal["host", "switch"]
    """`host`: the queue of a host's own interface. `switch`: a queue of a switch."""
    qdisc: Qdisc
    """The qdisc."""
    observe: Observe
    """The records of the tap."""


class QueueChange(Part):
    """New parameters of a queue."""

    queue: int
    """Index of the queue."""
    qdisc: Qdisc
    """A qdisc of the kind that the queue has."""
