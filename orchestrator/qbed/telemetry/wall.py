# SPDX-License-Identifier: Apache-2.0
"""Diagnostics of a cell on the wall clock: timer lateness, and losses and load on its machine."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from qbed.base.json_files import read_json
from qbed.telemetry.records import RecordError

FILE, NODE_FILE = "wall.json", "host.json"
FRAMES = "frames.ndjson"
"""The losses at a node's interfaces: a row whenever the count increases."""
READING_NS = 10_000_000
"""Limit in real time on reading all counters of a node. Packets are forwarded in the meantime."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True)


class Late(_Record):
    """Lateness of timer deadlines, in ns of real time."""

    max: int = 0
    p99: int = 0
    p50: int = 0
    events: int = 0


class Device(_Record):
    """The counters of the node's network device behind an interface. `dropped`: by the device or its queue."""

    rx_packets: int = 0
    tx_packets: int = 0
    dropped: int = 0


class Interface(_Record):
    """The machine's interface at a link end: a queue outside the plan."""

    rx_packets: int = 0
    tx_packets: int = 0
    rx_dropped: int = 0
    tx_dropped: int = 0
    socket_dropped: int | None = None
    """Drops of the packet socket through which a guest receives; None if there is none or it is unreadable."""
    kernel: Device | None = None
    """None if the node did not report it."""
    offloads: list[str] = []

    @property
    def interface_dropped(self) -> int:
        """Frames that the interface dropped, in both directions."""
        return self.rx_dropped + self.tx_dropped

    @property
    def device_dropped(self) -> int:
        """Frames that the guest's device behind the interface dropped, in both directions."""
        return self.kernel.dropped if self.kernel is not None else 0

    @property
    def lost(self) -> int:
        """Frames lost outside the plan's queues: in the interface, in the node's kernel, or between them."""
        return self.interface_dropped + self.device_dropped + (self.socket_dropped or 0)


class NodeWall(_Record):
    """A node's `host.json`, which is replaced once a second while the node runs. Times are real ns."""

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
    """`wall.json`: the diagnostics of a cell on the wall clock."""

    substrate: str
    dilation: int = 1
    host_kernel: list[str] = []
    nodes: dict[str, NodeWall | None] = {}

    @property
    def latest_ns(self) -> int:
        """The maximum lateness of any deadline, in real ns."""
        return max((node.late_ns.max for node in self.nodes.values() if node is not None), default=0)

    @property
    def slack_ns(self) -> int:
        """Limit on the lab time between two counter readings of one run."""
        return (self.latest_ns + READING_NS) // self.dilation


def read_wall(out: Path) -> Wall | None:
    """Read `out/wall.json`; None if the cell ran in virtual time. Raise `RecordError` if it is malformed."""
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
    """Read a node's current `host.json`; None if there is none yet."""
    try:
        value = read_json(out / NODE_FILE)
        return NodeWall.model_validate({**value, "late_ns": value.get("late_ns") or {}})
    except (OSError, ValueError, TypeError, AttributeError, ValidationError):
        return None
