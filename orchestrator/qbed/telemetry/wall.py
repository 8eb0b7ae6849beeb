# SPDX-License-Identifier: Apache-2.0
"""What a cell on the wall clock says beside its results: how late its timers were, what its machine did meanwhile."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from qbed.json_files import read_json
from qbed.telemetry.records import RecordError

FILE, NODE_FILE = "wall.json", "host.json"
FRAMES = "frames.ndjson"
"""Rows of the losses at a node's interfaces, one whenever more frames are lost."""
READING_NS = 10_000_000
"""Real time that reading all counters of one node may take: on the wall clock packets go on meanwhile."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True)


class Late(_Record):
    """By how much real time deadlines ran late, in ns."""

    max: int = 0
    p99: int = 0
    p50: int = 0
    events: int = 0


class Device(_Record):
    """What the node's kernel counts at its device behind an interface; `dropped`: by that device or its queue."""

    rx_packets: int = 0
    tx_packets: int = 0
    dropped: int = 0


class Interface(_Record):
    """The machine's own interface of a link's end: a queue that no plan has."""

    rx_packets: int = 0
    tx_packets: int = 0
    rx_dropped: int = 0
    tx_dropped: int = 0
    socket_dropped: int | None = None
    """By the packet socket through which a guest receives; None: there is none, or its counter could not be read."""
    kernel: Device | None = None
    """None: the node did not report it."""
    offloads: list[str] = []

    @property
    def interface_dropped(self) -> int:
        """Frames that the interface itself dropped, in both directions."""
        return self.rx_dropped + self.tx_dropped

    @property
    def device_dropped(self) -> int:
        """Frames that the guest's device behind the interface dropped, in both directions."""
        return self.kernel.dropped if self.kernel is not None else 0

    @property
    def lost(self) -> int:
        """Frames lost between this interface and the node's kernel, or in them, outside the plan's queues."""
        return self.interface_dropped + self.device_dropped + (self.socket_dropped or 0)


class NodeWall(_Record):
    """`host.json` of a node, which is replaced once a second while the node runs. Real ns."""

    wall_ns: int = 0
    cpu_ns: int = 0
    steal_ns: int = 0
    late_ns: Late = Late()
    interfaces: dict[str, Interface] = {}

    @property
    def lost(self) -> int:
        """Frames lost at the node's interfaces, outside the plan's queues."""
        return sum(interface.lost for interface in self.interfaces.values())


class Wall(_Record):
    """`wall.json`: what a cell on the wall clock says beside its results."""

    substrate: str
    dilation: int = 1
    host_kernel: list[str] = []
    nodes: dict[str, NodeWall | None] = {}

    @property
    def latest_ns(self) -> int:
        """The latest that any deadline was, in real ns."""
        return max((node.late_ns.max for node in self.nodes.values() if node is not None), default=0)

    @property
    def slack_ns(self) -> int:
        """How far apart, in the lab's time, two books of one run may have been read."""
        return (self.latest_ns + READING_NS) // self.dilation


def read_wall(out: Path) -> Wall | None:
    """What `out/wall.json` says; None: the cell ran in virtual time. RecordError if it is not what it should be."""
    path = out / FILE
    if not path.exists():
        return None
    try:
        value = read_json(path)
        value["nodes"] = {name: node or None for name, node in value["nodes"].items()}
        return Wall.model_validate(value)
    except (OSError, ValueError, KeyError, AttributeError, ValidationError) as error:
        raise RecordError(f"{FILE}: {error}") from error


def read_node(out: Path) -> NodeWall | None:
    """What a node's `host.json` says so far; None: nothing yet."""
    try:
        value = read_json(out / NODE_FILE)
        return NodeWall.model_validate({**value, "late_ns": value.get("late_ns") or {}})
    except (OSError, ValueError, TypeError, AttributeError, ValidationError):
        return None
