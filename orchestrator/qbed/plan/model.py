# SPDX-License-Identifier: Apache-2.0
"""The plan: what a lab file compiles to and the agent carries out (plan.json, docs/formats.md section 1).

`Plan.dumps()` is canonical: equal plans are equal bytes, one node, link or queue a line. `Plan.loads()` reads them
back.
"""

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Literal

from pydantic import ConfigDict, Field
from pydantic.json_schema import SkipJsonSchema

from qbed.network.frames import ETHERNET_BYTES
from qbed.network.routes import Routing
from qbed.plan.base import AbsolutePath, Address, Mac, Part, Prefix, lines
from qbed.plan.pipeline import P4Program, Pipeline
from qbed.plan.queue import Queue, QueueChange
from qbed.plan.workload import Controller, Expectation, Launch, Program, Workload

VERSION = 1
MAX_PARTS = 64
"""The kernels of a lab's parts share memory for so many (kernel/uml/um_parts.h)."""


class Via(Part):
    """One next hop."""

    interface: str
    """Interface of the node."""
    gateway: Address | None
    """Address of the next hop; null: the destination is on the link."""


class Metrics(Part):
    """RTAX_* metrics of a route."""

    rto_min_ms: int | None = None
    """Smallest retransmission timeout of TCP."""
    initcwnd: int | None = None
    """Initial congestion window in segments."""
    initrwnd: int | None = None
    """Initial receive window in segments."""
    quickack: int | None = None
    """1: acknowledgements are not delayed."""
    features: int | None = None
    """1: ECN."""
    congctl: str | None = None
    """Congestion control."""


class Route(Part):
    """A route. Several next hops are ECMP in this order, which makes it symmetric."""

    to: Prefix
    """Destination. A route to the prefix of a link replaces the kernel's, so that it has the metrics."""
    via: list[Via]
    """Next hops."""
    metrics: Metrics
    """Metrics."""


class Node(Part):
    """A network namespace. Addresses of a node that none of its links has are assigned to `lo`.

    The agent installs permanent neighbour entries for the addresses at both ends of each link, so there is no ARP or
    ND.
    """

    name: str
    """Name."""
    kind: Literal["host", "switch"]
    """Whether it is a host or forwards packets."""
    kernel: Literal["host", "qbed"] | None = None
    """In containers, the machine's kernel (`host`) or the lab's (`qbed`), if the lab file selects one. Otherwise a
    switch has the lab's kernel, and a host the machine's if that has the same features.
    """
    image: str | None = None
    """In containers, an image that runs in the host's network namespace."""
    kernel_requested_at: SkipJsonSchema[str] = Field(default="", exclude=True)
    """Position of `kernel` in the lab file, for messages; not in plan.json."""
    addresses: list[Address]
    """Addresses, one of each IP version of the lab."""
    sysctls: dict[str, str]
    """Sysctls of the namespace, by path under `/proc/sys`. Those of `net/*/conf/all` and `net/*/conf/default` are
    written before links exist.
    """
    routes: list[Route]
    """Routes."""
    offload: Literal["tso"] | None = None
    """`tso`: TCP of the host sends packets of up to 64 KB to its interfaces (IFLA_GSO_MAX_SEGS)."""
    controller: Controller | None = None
    """Rate controller, if a workload has the transport `rate`."""
    reflect: float = 0.0
    """Probability that a host of the transport `rate` reflects the QCN feedback of a received packet."""
    pipeline: Pipeline | None = None
    """Program of a P4 switch, which replaces routing."""
    environment: dict[str, str] = {}
    """Variables of all programs in the node."""
    folders: list[AbsolutePath] = []
    """Folders that are private to the node's programs, and initially empty."""
    files: dict[str, str] = {}
    """Contents of files by path: in these folders, or instead of files of the machine. A file that begins with `#!` is
    executable.
    """
    programs: list[Program] = []
    """Programs that run as long as the lab, in the order of their start."""
    expects: list[Expectation] = []
    """Required content of the forwarding table."""


class End(Part):
    """One end of a link: its interface, and its transmitter with a queue."""

    node: int
    """Index of the node."""
    interface: str
    """Interface of the node."""
    mac: Mac
    """Ethernet address."""
    addresses: list[Prefix]
    """Addresses with the prefix of the link."""
    rate_bps: int
    """Rate in bit/s."""
    delay_ns: int
    """Propagation delay."""
    overhead_bytes: int
    """Bytes that each frame takes on the wire in addition."""
    loss: float
    """Probability that a frame is lost: below 1."""
    queue: int
    """Index of the queue."""
    jitter_ns: int = 0
    """A frame is delayed by up to this beyond `delay_ns`."""
    reordering: bool = False
    """Whether frames may overtake each other."""

    def transmit_ns(self, frame_bytes: int) -> int:
        """Return the time to serialise a frame with its Ethernet header, rounded up as by the link device."""
        return -(-(frame_bytes + self.overhead_bytes) * 8 * 1_000_000_000 // self.rate_bps)


class Link(Part):
    """A point-to-point link."""

    name: str
    """Name."""
    mtu: int
    """MTU in bytes."""
    a: End
    """First end."""
    b: End
    """Second end."""


class Capture(Part):
    """Packets of one interface to write to a file."""

    name: str
    """NODE:INTERFACE; the file is `out/NODE-INTERFACE.pcap`."""
    node: int
    """Index of the node."""
    interface: str
    """Interface of the node."""
    snaplen: int
    """Bytes of each packet that are written."""


class LinkEvent(Part):
    """Both ends of a link go down or come up.

    When a link comes up, the agent restores neighbours, IPv6 addresses and routes that the kernel has removed.
    """

    at_ns: int
    """Time after the epoch; in an interactive lab after the workloads' base."""
    link: int
    """Index of the link."""
    state: Literal["up", "down"]
    """New state."""


class Window(Part):
    """A time span with its own sums. All windows have at most 64 different bounds."""

    name: str
    """Name."""
    from_ns: int
    """Begin, after the epoch."""
    until_ns: int
    """End, after the epoch."""


class LinkChange(Part):
    """New properties of the transmitter at a link's end."""

    link: int
    """Index of the link."""
    end: Literal["a", "b"]
    """End of the link."""
    rate_bps: int | None = None
    """Rate in bit/s."""
    delay_ns: int | None = None
    """Propagation delay."""
    loss: float | None = None
    """Probability that a frame is lost."""


class NodeChange(Part):
    """A host's new congestion control, also for sockets of workloads without one."""

    node: int
    """Index of the node."""
    congestion_control: str
    """Congestion control."""


class Change(Part):
    """A change during the run: of a link, a queue or a node."""

    model_config = ConfigDict(
        json_schema_extra={"oneOf": [{"required": [name]} for name in ("link", "queue", "node")]},
    )

    at_ns: int
    """Time after the epoch."""
    link: LinkChange | None = None
    """New properties of a link's end."""
    queue: QueueChange | None = None
    """New parameters of a queue."""
    node: NodeChange | None = None
    """New settings of a node."""


@dataclass(frozen=True)
class Path:
    """The links from one host to another, in order: for each the end that sends, and the link's MTU."""

    ends: tuple[End, ...]
    mtus: tuple[int, ...]

    @property
    def mtu(self) -> int:
        """The smallest MTU."""
        return min(self.mtus)

    @property
    def rate_bps(self) -> int:
        """The smallest rate."""
        return min(end.rate_bps for end in self.ends)

    @property
    def delay_ns(self) -> int:
        """The sum of the propagation delays."""
        return sum(end.delay_ns for end in self.ends)

    def transit_ns(self, frame_bytes: int) -> int:
        """Return the time that a frame takes through empty queues: store and forward."""
        return sum(end.transmit_ns(frame_bytes) + end.delay_ns for end in self.ends)


class Plan(Part):
    """A compiled lab."""

    version: Literal[1]
    """Version of the format."""
    lab: str
    """Name of the lab."""
    seed: int
    """Seed of all random numbers."""
    epoch_ns: int
    """Start of the workloads, on the guest's CLOCK_MONOTONIC."""
    duration_ns: int
    """Duration after the epoch."""
    memory_bytes: int
    """Memory of the guest, or of the guest of each part."""
    kernel: str | None = None
    """The guest's kernel: a series, or `SERIES+HASH` of the user's patches or source tree. The default is that of the
    set-up.
    """
    kernel_folder: SkipJsonSchema[str] = Field(default="", exclude=True)
    """Folder of the user's patches or tree, for builds; not in plan.json."""
    modules: list[str]
    """Kernel modules, beside those of links and taps."""
    sysctls: dict[str, str]
    """Sysctls that a kernel has once, by path under `/proc/sys`. They are written first."""
    parameters: dict[str, str] = {}
    """Kernel parameters by PART/PARAMETER, written to `/sys/module/PART/parameters` after the sysctls."""
    nodes: list[Node]
    """Nodes."""
    links: list[Link]
    """Links."""
    queues: list[Queue]
    """Queues: two for each link, in the order of the links, that of end `a` first."""
    workloads: list[Workload]
    """Workloads, in the order of their ids."""
    launches: list[Launch] = []
    """Programs as workload. If there are any, `/etc/hosts` names the nodes."""
    captures: list[Capture]
    """Interfaces with packet captures."""
    events: list[LinkEvent]
    """Links that go down or come up, in the order of their times."""
    changes: list[Change] = []
    """Changes during the run, in the order of their times."""
    flow_interval_ns: int
    """Interval of the series of flows; 0: no series."""
    flow_statistics: list[str] = []
    """Congestion controls of which each flow's statistics are read, at this interval and at the flow's end."""
    statistics_interval_ns: int = 0
    """Interval of the series of the qdiscs' statistics; 0: no series."""
    sojourn: bool = False
    """Whether taps record sojourn times (records 7 to 9 of section 4)."""
    windows: list[Window] = []
    """Time spans with their own sums."""
    p4: list[P4Program] = []
    """Programs of the nodes' pipelines."""
    parts: list[Annotated[int, Field(ge=0, lt=MAX_PARTS)]] = []
    """The part of the lab that each node belongs to. Empty: the lab is not divided."""

    def dumps(self) -> str:
        """Canonical JSON. It is made part by part: the objects of a large plan take several times the text's memory."""
        fields = Plan.model_fields.items()
        names = [name for name, field in fields if not field.exclude and getattr(self, name) != field.default]
        return "{" + ",".join(f'\n "{name}": {_text(getattr(self, name))}' for name in names) + "\n}\n"

    @classmethod
    def loads(cls, text: str | bytes) -> "Plan":
        """The plan of a JSON text."""
        return cls.model_validate_json(text)

    @property
    def part_count(self) -> int:
        """The number of kernels that a run of the lab has."""
        return max(self.parts, default=0) + 1

    @cached_property
    def routing(self) -> Routing:
        """Shortest paths by node index."""
        return Routing([n.kind == "host" for n in self.nodes], [(link.a.node, link.b.node) for link in self.links])

    @cached_property
    def bounds_ns(self) -> list[int]:
        """Where windows begin and end, each instant once and in their order."""
        return sorted({bound for window in self.windows for bound in (window.from_ns, window.until_ns)})

    @property
    def has_series(self) -> bool:
        """Whether a queue is sampled."""
        return any(queue.observe.interval_ns for queue in self.queues)

    def max_samples(self, end_ns: int = 0) -> int:
        """Twice the samples of all queues in the lab's duration, or until `end_ns` if that is later: on the wall clock,
        a machine that is late ends a lab late.
        """
        intervals = [queue.observe.interval_ns for queue in self.queues if queue.observe.interval_ns]
        return 2 * sum(max(self.duration_ns, end_ns) // interval + 2 for interval in intervals)

    def path(self, source: int, destination: int) -> Path:
        """One shortest path between two hosts, by node index. KeyError if there is none."""
        outs = self.routing.path(source, destination)
        if outs is None:
            raise KeyError(f"no path from {self.nodes[source].name} to {self.nodes[destination].name}")
        return Path(
            tuple(self.ends_ever[i, "b" if side else "a"][0] for i, side in outs),
            tuple(self.links[i].mtu for i, _ in outs),
        )

    @cached_property
    def ends_ever(self) -> dict[tuple[int, str], tuple[End, End]]:
        """Each end of a link at its fastest and nearest, and at its fastest and farthest, of all that it is during the
        lab.
        """
        ends = {(i, side): end for i, link in enumerate(self.links) for side, end in (("a", link.a), ("b", link.b))}
        made = {place: (end, end) for place, end in ends.items()}
        of_link: dict[tuple[int, str], list[LinkChange]] = {}
        for change in self.changes:
            if change.link is not None:
                of_link.setdefault((change.link.link, change.link.end), []).append(change.link)
        for place, changes in of_link.items():
            end = ends[place]
            rate = max(end.rate_bps, *(change.rate_bps or 0 for change in changes))
            delays = [end.delay_ns, *(change.delay_ns for change in changes if change.delay_ns is not None)]
            local, remote = (end.model_copy(update={"rate_bps": rate, "delay_ns": pick(delays)}) for pick in (min, max))
            made[place] = (local, remote)
        return made

    @cached_property
    def mean_rates(self) -> dict[int, int]:
        """Bits a second of each queue's link: the mean over the lab's duration, where events change it."""
        changes: dict[tuple[int, str], list[tuple[int, int]]] = {}
        for change in self.changes:
            link_change = change.link
            if link_change is not None and link_change.rate_bps is not None:
                changes.setdefault((link_change.link, link_change.end), []).append((change.at_ns, link_change.rate_bps))
        found = {}
        for index, link in enumerate(self.links):
            for side, end in (("a", link.a), ("b", link.b)):
                at_ns, rate, sent = 0, end.rate_bps, 0
                for next_ns, next_rate in sorted(changes.get((index, side), ()), key=lambda change: change[0]):
                    sent, at_ns, rate = sent + rate * (next_ns - at_ns), next_ns, next_rate
                found[end.queue] = (sent + rate * (self.duration_ns - at_ns)) // self.duration_ns
        return found

    def base_rtt_ns(self, source: int, destination: int) -> int:
        """A full frame there and its bare acknowledgement (40 bytes of headers and 12 of time stamps) back, through
        empty queues.
        """
        forward, back = self.path(source, destination), self.path(destination, source)
        return forward.transit_ns(forward.mtu + ETHERNET_BYTES) + back.transit_ns(ETHERNET_BYTES + 52)

    @cached_property
    def one_path(self) -> bool:
        """Whether every packet has exactly one path."""
        path_counts = [len(route.via) for node in self.nodes for route in node.routes]
        path_counts += [expected.hops for node in self.nodes for expected in node.expects]
        entries = [entry for node in self.nodes if node.pipeline is not None for entry in node.pipeline.entries]
        path_counts += [entry.arguments["count"] for entry in entries if entry.action == "route"]
        return all(count == 1 for count in path_counts)

    def node_index(self, name: str) -> int:
        """The index of a node. KeyError if there is none of that name."""
        return self._indices[name]

    @cached_property
    def _indices(self) -> dict[str, int]:
        return {node.name: i for i, node in enumerate(self.nodes)}


def _text(value: object) -> str:
    """A field of the plan as JSON, one entry of a list a line."""
    if not isinstance(value, list) or not value:
        return json.dumps(value, ensure_ascii=False)
    return "[\n" + ",\n".join(lines(value)) + "\n ]"
