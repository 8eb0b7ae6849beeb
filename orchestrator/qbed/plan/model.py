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
"""Fields that are omitted if a lab has none, so that its cells keep their keys."""


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
    """A program that runs as long as the lab. The node's next program is started when the file `ready` exists.

    `optional`: a node without this program skips it.
    """

    argv: list[str]
    ready: str | None = None
    optional: bool = False


class Expectation(Part):
    """Required content of a forwarding table before the workloads begin: the number of next hops to every host of a
    prefix, and the interfaces of all of them.
    """

    to: str
    hops: int
    via: list[str]


class Controller(Part):
    """A host's rate controller for the transport `rate`. `parameters`: hex of the content of QRATE_A_PARAMETERS
    (kernel/include/uapi/qbed/qrate.h).
    """

    name: str
    parameters: str
    signal: Literal["rtt", "sum", "sum_squ", "max", "ind"]
    unit: Literal["packets", "bytes", "time"]
    bits: int
    forward: bool


class Entry(Part):
    """A table entry by names, or without a key the table's default action. Values are numbers or text: an address, an
    Ethernet address, `0x...`; in a key also with a prefix length (`10.0.0.0/8`), a mask (`0x10&&&0xf0`), or as a range
    (`5..9`).
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
    """A recirculation port: packets sent there return to the ingress. `interface` represents it in the switch's
    namespace. `rate_bps` is informative; without it, packets leave at once.
    """

    port: int
    interface: str
    rate_bps: int | None
    qdisc: dict[str, Any]


class Session(Part):
    """Ports of a clone session; `truncate_bytes` 0: clones are not truncated."""

    session: int
    ports: list[int]
    truncate_bytes: int


class Group(Part):
    """The ports of a multicast group."""

    group: int
    ports: list[int]


class Register(Part):
    """The initial value of a register's element."""

    name: str
    index: int
    value: int | str


class Pipeline(Part):
    """The program of a P4 switch: one of the plan's `p4`, by name. Port N is the interface `ports[N]`. `engine`: the
    engine in containers, if the lab file names one.
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
    """A P4 program: BMv2's JSON as text, and its P4Info if an engine of the plan is configured by P4Runtime."""

    name: str
    bmv2: str
    p4info: str | None = None

    @model_serializer(mode="wrap")
    def _without_p4info(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in handler(self).items() if value is not None}


class Node(Part):
    """A network namespace. The fields of programs (`environment` and the following) are omitted if unused.

    `kernel`: in a container, the machine's kernel (`host`) or the lab's (`qbed`), if the lab file selects one.
    Otherwise a switch runs on the lab's kernel, and a host on the machine's if that has the same features. `controller`
    and `reflect` (the probability of reflecting a data packet's QCN feedback) exist if a workload has the transport
    `rate`. `pipeline` replaces routing in a P4 switch. `offload`: TCP of the host hands packets of up to 64 KB to its
    interfaces.
    """

    name: str
    kind: Literal["host", "switch"]
    kernel: Literal["host", "qbed"] | None = None
    kernel_asked_at: str = Field(default="", exclude=True)
    """Position of `kernel` in the lab file, for messages; not in plan.json."""
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
        """Return the time to serialise a frame with its Ethernet header, rounded up as by the link device."""
        return -(-(frame_bytes + self.overhead_bytes) * 8 * 1_000_000_000 // self.rate_bps)


class Link(Part):
    """A point-to-point link."""

    name: str
    mtu: int
    a: End
    b: End


class Observe(Part):
    """Recording of a queue's tap."""

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
    """Return the fields without those that have their default, so that a new field does not change existing plans."""
    return {name: value for name, value in fields.items() if name not in defaults or value != defaults[name]}


class Flows(Part):
    """One flow for each pair of nodes. `dscp` and `interval_ns` (of probes) are omitted if unset.

    `each`, for flows from a file: start after `start_ns`, and size; `size_bytes` is the largest size then.
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
    """An open-loop arrival process. `together`: every pair has a flow at each arrival; omitted if false."""

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
    """Clients that send requests, wait for the responses, think, and repeat. Clients in `sources` query `fanout` of
    `destinations` at once (None: all); each of `pairs` has its own client. `request` is the size of the request,
    `on_ns` the time of sending instead; without a `response` the server acknowledges the whole request.
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
    """A program that is started on a node at a given time. `program`: the entry in the lab file; `folder`: the working
    folder; a negative start is before that of the workloads; `output`: the format, for parsing the results.
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
    """A time span with its own sums."""

    name: str
    from_ns: int
    until_ns: int


class LinkChange(Part):
    """New properties of a link end's transmitter; those that are None do not change."""

    link: int
    end: Literal["a", "b"]
    rate_bps: int | None = None
    delay_ns: int | None = None
    loss: float | None = None


class QueueChange(Part):
    """A queue's new parameters: a `qdisc` as in `queues`, of the same kind."""

    queue: int
    qdisc: dict[str, Any]


class NodeChange(Part):
    """A host's new congestion control."""

    node: int
    congestion_control: str


class Change(Part):
    """A change during the run: exactly one of these."""

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
        """Return the time that a frame takes through empty queues: store and forward."""
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
    """Kernel parameters (PART/PARAMETER); omitted if there are none."""
    nodes: list[Node]
    links: list[Link]
    queues: list[Queue]
    workloads: list[Workload]
    launches: list[Launch] = []
    """Programs as workload; omitted if there are none."""
    captures: list[Capture]
    events: list[LinkEvent] = []
    changes: list[Change] = []
    """Omitted if there are none."""
    flow_interval_ns: int
    statistics_interval_ns: int = 0
    """Omitted if 0."""
    sojourn: bool = False
    """Whether taps record sojourn times; omitted if false."""
    windows: list[Window] = []
    """Omitted if there are none."""
    p4: list[P4Program] = []
    """The programs of the nodes' pipelines; omitted if there are none."""

    def dumps(self) -> str:
        """Canonical JSON."""
        return "".join(self._written())

    def _written(self) -> Iterator[str]:
        """Yield the JSON in pieces: dictionaries of a whole large plan would take several times its memory."""
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
        """Whether every packet has exactly one path."""
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
