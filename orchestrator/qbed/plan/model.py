# SPDX-License-Identifier: Apache-2.0
"""The plan: what a lab file compiles to and the agent carries out (plan.json, docs/formats.md section 1).

`Plan.dumps()` is canonical: equal plans are equal bytes, one node, link or queue a line. `Plan.loads()` reads them
back.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

from qbed.lab.settings import P4Engine
from qbed.network.frames import ETHERNET_BYTES
from qbed.network.routes import Routing

VERSION = 1
_LEFT_OUT = ("changes", "launches", "p4", "parameters", "sojourn", "statistics_interval_ns", "windows")
"""Fields of a plan that are not written where a lab has nothing of the kind: its cells keep their keys."""


class Part(BaseModel):
    """A part of the plan: unknown fields are refused."""

    model_config = ConfigDict(extra="forbid")


class Via(Part):
    """One next hop; without a gateway the destination is on the link."""

    interface: str
    gateway: str | None


class Route(Part):
    """A route; several next hops are ECMP in this order."""

    to: str
    via: list[Via]
    metrics: dict[str, int | str] = {}


class Program(Part):
    """A program that runs as long as the lab; the next one of its node is started when the file `ready` exists.

    `optional`: a node that has no such program does without.
    """

    argv: list[str]
    ready: str | None = None
    optional: bool = False


class Expectation(Part):
    """What a forwarding table must hold before the workloads begin: to every host of a prefix so many next hops,
    of those by these interfaces.
    """

    to: str
    hops: int
    via: list[str]


class Controller(Part):
    """How a host finds the rate of what it sends by the transport `rate`. `parameters`: hex of what stands within
    QRATE_A_PARAMETERS (kernel/include/uapi/qbed/qrate.h).
    """

    name: str
    parameters: str
    signal: Literal["rtt", "sum", "sum_squ", "max", "ind"]
    unit: Literal["packets", "bytes", "time"]
    bits: int
    forward: bool


class Entry(Part):
    """What a table of a program is told, by names: an entry, or without a key its default action. Values are numbers,
    or text: an address, an Ethernet address, `0x...`; in a key with the length of a prefix (`10.0.0.0/8`), a mask
    (`0x10&&&0xf0`), or from one to another (`5..9`).
    """

    table: str
    key: dict[str, int | str] | None = None
    action: str
    arguments: dict[str, int | str]
    priority: int = 0

    @model_serializer(mode="wrap")
    def _without_defaults(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in handler(self).items() if value not in (None, 0)}


class RecirculationPort(Part):
    """A port without a link, from which packets come again by recirculation: what stands in for one in the switch's
    namespace. `rate_bps` says for people what its queue does; without it, packets leave at once.
    """

    port: int
    interface: str
    rate_bps: int | None = None
    qdisc: dict[str, Any]


class Session(Part):
    """Where the clones of a session go; 0 bytes: whole."""

    session: int
    ports: list[int]
    truncate_bytes: int = 0


class Group(Part):
    """The ports of a multicast group."""

    group: int
    ports: list[int]


class Register(Part):
    """What an element of a register begins with."""

    name: str
    index: int
    value: int | str


class Pipeline(Part):
    """What a switch in P4 runs: one of the plan's `p4`, by name. Port N is the interface `ports[N]`. `engine`: what
    runs it in containers, where the lab file says so.
    """

    program: str
    engine: P4Engine | None = None
    ports: list[str]
    entries: list[Entry]
    parking: list[RecirculationPort] = []
    sessions: list[Session] = []
    groups: list[Group] = []
    registers: list[Register] = []

    @model_serializer(mode="wrap")
    def _without_empty(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        required = {name for name, field in Pipeline.model_fields.items() if field.is_required()}
        return {name: value for name, value in handler(self).items() if value or name in required}


class P4Program(Part):
    """A program in P4: BMv2's JSON, as text, and its P4Info where an engine of the plan is told by P4Runtime."""

    name: str
    bmv2: str
    p4info: str | None = None

    @model_serializer(mode="wrap")
    def _without_p4info(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in handler(self).items() if value is not None}


class Node(Part):
    """A network namespace. What programs need (`environment` and what follows it) is only there where it is used.

    `kernel`: in a container, the machine's own (`host`) or the lab's (`qbed`), where the lab file asks for one. Without
    it a switch runs on the lab's, and a host on the machine's where that can do the same. `controller` and `reflect`
    (the probability that it sends a data packet's QCN feedback back) are there where a workload has the transport
    `rate`. `pipeline`: of a switch in P4, which forwards by it alone. `offload`: of a host, whose TCP gives
    its interfaces packets of up to 64 KB.
    """

    name: str
    kind: Literal["host", "switch"]
    kernel: Literal["host", "qbed"] | None = None
    kernel_asked_at: str = Field(default="", exclude=True)
    """Where the lab file asks for the kernel, for messages; not in plan.json."""
    addresses: list[str]
    sysctls: dict[str, str]
    routes: list[Route]
    offload: Literal["tso"] | None = None
    controller: Controller | None = None
    reflect: float = 0.0
    pipeline: Pipeline | None = None
    environment: dict[str, str] = {}
    folders: list[str] = []
    files: dict[str, str] = {}
    programs: list[Program] = []
    expects: list[Expectation] = []

    @model_serializer(mode="wrap")
    def _without_empty(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        optional = {name for name, field in Node.model_fields.items() if not field.is_required()}
        return {name: value for name, value in handler(self).items() if value or name not in optional}


class End(Part):
    """One end of a link: its interface, and its transmitter with a queue."""

    node: int
    interface: str
    mac: str
    addresses: list[str]
    rate_bps: int
    delay_ns: int
    overhead_bytes: int
    loss: float
    queue: int
    jitter_ns: int = 0
    reordering: bool = False

    @model_serializer(mode="wrap")
    def _without_jitter(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        optional = ("jitter_ns", "reordering")
        return {name: value for name, value in handler(self).items() if value or name not in optional}

    def transmit_ns(self, frame_bytes: int) -> int:
        """The time to serialise a frame (its Ethernet header counted in), rounded up as the link device does."""
        return -(-(frame_bytes + self.overhead_bytes) * 8 * 1_000_000_000 // self.rate_bps)


class Link(Part):
    """A point-to-point link."""

    name: str
    mtu: int
    a: End
    b: End


class Observe(Part):
    """What a queue's tap records."""

    interval_ns: int
    bin_bytes: int
    events: bool


class Queue(Part):
    """The root qdisc of a link's end. `qdisc`: `kind` and `options` (hex), or `tc` (arguments)."""

    name: str
    node: int
    interface: str
    scheme: str
    role: Literal["host", "switch"]
    qdisc: dict[str, Any]
    observe: Observe


def _without(fields: dict[str, Any], **defaults: object) -> dict[str, Any]:
    """What is said that is not usual, so that a new field changes no plan that does without it."""
    return {name: value for name, value in fields.items() if name not in defaults or value != defaults[name]}


class Flows(Part):
    """One flow for each pair of nodes. `dscp` and `interval_ns` (of probes) are left out where there is none.

    `each`, of flows from a file: when each starts after `start_ns`, and its size; `size_bytes` is the largest then.
    """

    id: int
    kind: Literal["flows"] = "flows"
    label: str
    transport: Literal["tcp", "udp", "rate", "probe"]
    pairs: list[tuple[int, int]]
    size_bytes: int | None
    start_ns: int
    spread_ns: int
    stop_ns: int | None
    connect: Literal["at start", "before"]
    port: int
    family: Literal[4, 6]
    congestion_control: str | None
    rate_bps: int | None
    packet_bytes: int | None
    payload_bytes: int | None = None
    each: list[tuple[int, int]] = []
    interval_ns: int | None = None
    dscp: int | None = None

    @model_serializer(mode="wrap")
    def _without_defaults(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return _without(handler(self), each=[], interval_ns=None, dscp=None)


class Arrivals(Part):
    """An open-loop arrival process. `together`: every pair has a flow at each arrival; left out where one has."""

    id: int
    kind: Literal["arrivals"] = "arrivals"
    label: str
    transport: Literal["tcp", "rate"] = "tcp"
    sources: list[int] | None
    destinations: list[int] | None
    pairs: list[tuple[int, int]] | None
    interarrival_ns: dict[str, int | float]
    size: dict[str, Any]
    start_ns: int
    stop_ns: int | None
    limit: int | None
    connect: Literal["at start", "before"]
    port: int
    family: Literal[4, 6]
    congestion_control: str | None
    payload_bytes: int | None = None
    together: bool = False
    dscp: int | None = None

    @property
    def flows_at_once(self) -> int:
        """The flows of each arrival."""
        if not self.together:
            return 1
        if self.pairs is not None:
            return len(self.pairs)
        sources, destinations = self.sources or [], self.destinations or []
        return len(sources) * len(destinations) - len(set(sources) & set(destinations))

    @model_serializer(mode="wrap")
    def _without_defaults(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return _without(handler(self), together=False, dscp=None)


class Exchanges(Part):
    """Clients that wait for what they asked for, then think, then ask again. Those of `sources` ask `fanout` of
    `destinations` at once (None: all); each of `pairs` has a client of its own. `request` is how much is sent, or
    `on_ns` for how long; without a `response` the server says when it had everything.
    """

    id: int
    kind: Literal["exchanges"] = "exchanges"
    label: str
    transport: Literal["exchanges"] = "exchanges"
    sources: list[int] | None
    destinations: list[int] | None
    pairs: list[tuple[int, int]] | None
    fanout: int | None
    request: dict[str, Any] | None
    on_ns: dict[str, Any] | None
    response: dict[str, Any] | None
    think_ns: dict[str, Any]
    limit: int | None
    persistent: bool
    outstanding: int
    start_ns: int
    spread_ns: int
    stop_ns: int | None
    connect: Literal["at start", "before"]
    port: int
    family: Literal[4, 6]
    congestion_control: str | None
    dscp: int | None = None

    @model_serializer(mode="wrap")
    def _without_dscp(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return _without(handler(self), dscp=None)


Workload = Flows | Arrivals | Exchanges


class Launch(Part):
    """A program that is started on a node at a time of the lab's. `program`: the entry of the lab file; `folder`: where
    it runs; a negative start is before the workloads'; `output`: for whoever reads what it printed.
    """

    program: int
    label: str
    node: int
    argv: list[str]
    environment: dict[str, str]
    folder: str
    start_ns: int
    stop_ns: int | None
    any_status: bool
    output: Literal["text", "json", "key=value"]


class Capture(Part):
    """Packets of one interface to write to a file."""

    name: str
    node: int
    interface: str
    snaplen: int


class LinkEvent(Part):
    """Both ends of a link, by its index, go down or come up."""

    at_ns: int
    link: int
    state: Literal["up", "down"]


class Window(Part):
    """A span of the lab's time that has sums of its own."""

    name: str
    from_ns: int
    until_ns: int


class LinkChange(Part):
    """What the transmitter of a link's end has from then on, where it is said."""

    link: int
    end: Literal["a", "b"]
    rate_bps: int | None = None
    delay_ns: int | None = None
    loss: float | None = None


class QueueChange(Part):
    """A queue's parameters from then on: a `qdisc` as in `queues`, of the same kind."""

    queue: int
    qdisc: dict[str, Any]


class NodeChange(Part):
    """A host's congestion control from then on."""

    node: int
    congestion_control: str


class Change(Part):
    """Something that changes while the lab runs: exactly one of these."""

    at_ns: int
    link: LinkChange | None = None
    queue: QueueChange | None = None
    node: NodeChange | None = None

    @model_serializer(mode="wrap")
    def _without_defaults(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields = {name: value for name, value in handler(self).items() if value is not None}
        if self.link is not None:
            fields["link"] = {name: value for name, value in fields["link"].items() if value is not None}
        return fields


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
        """How long one frame takes through empty queues: store and forward."""
        return sum(end.transmit_ns(frame_bytes) + end.delay_ns for end in self.ends)


class Plan(Part):
    """A compiled lab."""

    version: Literal[1] = 1
    lab: str
    seed: int
    epoch_ns: int
    duration_ns: int
    memory_bytes: int
    modules: list[str]
    sysctls: dict[str, str]
    parameters: dict[str, str] = {}
    """Of the kernel's parts (PART/PARAMETER); left out where there are none."""
    nodes: list[Node]
    links: list[Link]
    queues: list[Queue]
    workloads: list[Workload]
    launches: list[Launch] = []
    """Programs that are workload; left out where there are none."""
    captures: list[Capture]
    events: list[LinkEvent] = []
    changes: list[Change] = []
    """Left out where there are none."""
    flow_interval_ns: int
    statistics_interval_ns: int = 0
    """Left out where it is 0."""
    sojourn: bool = False
    """Whether taps count how long packets waited; left out where they do not."""
    windows: list[Window] = []
    """Left out where there are none."""
    p4: list[P4Program] = []
    """The programs of the nodes' pipelines; left out where there are none."""

    def dumps(self) -> str:
        """Canonical JSON."""
        return "".join(self._written())

    def _written(self) -> Iterator[str]:
        """A piece at a time: all of a large plan as dictionaries would take several times its memory."""
        before = "{"
        for name in Plan.model_fields:
            value = getattr(self, name)
            if name in _LEFT_OUT and not value:
                continue
            yield f'{before}\n "{name}": '
            if isinstance(value, list) and value:
                yield "["
                for number, entry in enumerate(value):
                    plain = entry.model_dump(mode="json") if isinstance(entry, Part) else entry
                    yield f"{',' if number else ''}\n  {json.dumps(plain, ensure_ascii=False)}"
                yield "\n ]"
            else:
                yield json.dumps(value, ensure_ascii=False)
            before = ","
        yield "\n}\n"

    @classmethod
    def loads(cls, text: str | bytes) -> "Plan":
        """The plan of a JSON text."""
        return cls.model_validate_json(text)

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

    @cached_property
    def most_samples(self) -> int:
        """Twice the samples of all queues in the lab's duration, which one on the wall clock may exceed a little."""
        intervals = [queue.observe.interval_ns for queue in self.queues if queue.observe.interval_ns]
        return 2 * sum(self.duration_ns // interval + 2 for interval in intervals)

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
            one = change.link
            if one is not None and one.rate_bps is not None:
                changes.setdefault((one.link, one.end), []).append((change.at_ns, one.rate_bps))
        found = {}
        for index, link in enumerate(self.links):
            for side, end in (("a", link.a), ("b", link.b)):
                at_ns, rate, sent = 0, end.rate_bps, 0
                for next_ns, next_rate in sorted(changes.get((index, side), ()), key=lambda one: one[0]):
                    sent, at_ns, rate = sent + rate * (next_ns - at_ns), next_ns, next_rate
                found[end.queue] = (sent + rate * (self.duration_ns - at_ns)) // self.duration_ns
        return found

    def base_rtt_ns(self, source: int, destination: int) -> int:
        """A full frame there and its bare acknowledgement (40 bytes of headers and 12 of time stamps) back, through
        empty queues.
        """
        there, back = self.path(source, destination), self.path(destination, source)
        return there.transit_ns(there.mtu + ETHERNET_BYTES) + back.transit_ns(ETHERNET_BYTES + 52)

    @cached_property
    def one_path(self) -> bool:
        """Whether no packet has a choice of ways."""
        ways = [len(route.via) for node in self.nodes for route in node.routes]
        ways += [expected.hops for node in self.nodes for expected in node.expects]
        entries = [entry for node in self.nodes if node.pipeline is not None for entry in node.pipeline.entries]
        ways += [int(entry.arguments["count"]) for entry in entries if entry.action == "route"]
        return all(count == 1 for count in ways)

    def node_index(self, name: str) -> int:
        """The index of a node. KeyError if there is none of that name."""
        return self._indices[name]

    @cached_property
    def _indices(self) -> dict[str, int]:
        return {node.name: i for i, node in enumerate(self.nodes)}
