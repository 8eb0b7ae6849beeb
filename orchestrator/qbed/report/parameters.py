# SPDX-License-Identifier: Apache-2.0
"""The parameters in effect of one cell: its network, TCP, workloads, queues and controllers.

A length of a queue is in packets, bytes and time, whichever of them the lab file gives: at the rate and with the frames
of its port, or as the declaration of the scheme or controller says (`occupancy`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

from qbed.config.units import Amount, format_duration, format_rate
from qbed.network.controllers import ControllerSpec
from qbed.network.frames import ETHERNET_BYTES
from qbed.network.queues import QueueSpec
from qbed.network.resolve import ResolvedLab
from qbed.plan.communicating_pairs import communicating_pairs
from qbed.plan.model import End, Link, Metrics, Node, Plan
from qbed.plan.ports import port_names
from qbed.report.show_plan import describe_workload
from qbed.schemes.declaration import Controller, Scheme, controllers, registry
from qbed.schemes.encoding import Value
from qbed.schemes.occupancy import Occupancy
from qbed.schemes.parameter import Parameter

MAX_PAIRS = 2000
"""Pairs of hosts of which the round-trip time is computed."""
_ECN = {"0": "ECN off", "1": "ECN on"}
_CONTROL, _TCP_ECN = "net/ipv4/tcp_congestion_control", "net/ipv4/tcp_ecn"
T = TypeVar("T")


@dataclass(frozen=True)
class Effective:
    """The value of a parameter in one cell; a length of a queue also in packets, bytes and time."""

    value: str
    packets: float | None = None
    bytes: float | None = None
    time_ns: float | None = None


@dataclass(frozen=True)
class Key:
    """Position of a parameter in the table. `minor`: shown in one line with others if it is the same in all cells."""

    group: str
    name: str
    minor: bool = False


Rows = dict[Key, Effective]


@dataclass(frozen=True)
class Drain:
    """A queue's rate, the length of a packet in it, and the bits that such a packet takes on the wire."""

    rate_bps: float
    packet_bytes: int
    wire_bits: int

    def effective(self, parameter: Parameter, value: Value) -> Effective:
        """A length in three units."""
        if parameter.type in ("bytes", "packets") and isinstance(value, int):
            length: Value = Amount(value, "bytes" if parameter.type == "bytes" else "packets")
        else:
            length = value
        if isinstance(length, Amount):
            packets = length.value / (self.packet_bytes if length.unit == "bytes" else 1)
        else:
            assert not isinstance(length, str), "a length is a quantity"
            packets = length * self.rate_bps / 1e9 / self.wire_bits
        time_ns = packets * self.wire_bits * 1e9 / self.rate_bps
        return Effective(_shown(parameter, value), packets, packets * self.packet_bytes, time_ns)


def cell_parameters(lab: ResolvedLab, plan: Plan) -> Rows:
    """The parameters of a cell, in the order in which they are shown."""
    rows: Rows = {}
    for found in (_network(plan), _tcp(plan), _workloads(plan), _queues(lab, plan, "switch")):
        rows.update(found)
    rows.update(_controllers(lab, plan))
    rows.update(_queues(lab, plan, "host"))
    return rows


# --- network, TCP, workloads ---


def _network(plan: Plan) -> Iterator[tuple[Key, Effective]]:
    kinds = [node.kind for node in plan.nodes]
    counted = [(kinds.count("host"), "host"), (kinds.count("switch"), "switch"), (len(plan.links), "link")]
    text = ", ".join(_count(number, noun) for number, noun in counted)
    yield Key("network", "topology"), Effective(text)
    for name, links in _link_classes(plan):
        yield Key("network", name), Effective(_link(links[0]))
    yield from _round_trips(plan)
    spans = [format_duration(plan.duration_ns)]
    for window in plan.windows:
        begin = f" from {format_duration(window.from_ns)}" if window.from_ns else ""
        spans.append(f"{window.name}{begin} until {format_duration(window.until_ns)}")
    yield Key("network", "duration and windows" if plan.windows else "duration"), Effective(", ".join(spans))
    if changes := len(plan.events) + len(plan.changes):
        yield Key("network", "changes during the run"), Effective(str(changes))


def _count(number: int, noun: str) -> str:
    plural = f"{noun}es" if noun.endswith("ch") else f"{noun}s"
    return f"{number} {noun if number == 1 else plural}"


def _link_classes(plan: Plan) -> Iterator[tuple[str, list[Link]]]:
    """Links by equal properties, each with a name that does not depend on them."""
    classes: dict[tuple[object, ...], list[Link]] = {}
    for link in plan.links:
        ends = [plan.nodes[end.node].kind for end in (link.a, link.b)]
        classes.setdefault((*sorted(ends), _link(link)), []).append(link)
    for (first, *_), links in classes.items():
        which = "to hosts" if first == "host" else "between switches"
        yield f"links {which}: {_first([link.name for link in links])}", links


def _link(link: Link) -> str:
    def end(link_end: End) -> str:
        parts = [format_rate(link_end.rate_bps), format_duration(link_end.delay_ns)]
        parts += [f"up to {format_duration(link_end.jitter_ns)} of jitter"] if link_end.jitter_ns else []
        parts += [f"loss {link_end.loss:.3g}"] if link_end.loss else []
        parts += [f"{link_end.overhead_bytes} B a frame in addition"] if link_end.overhead_bytes else []
        return ", ".join(parts)

    a, b = end(link.a), end(link.b)
    return ", ".join([a if a == b else f"{a} / {b}", *([] if link.mtu == 1500 else [f"MTU {link.mtu}"])])


def _round_trips(plan: Plan) -> Iterator[tuple[Key, Effective]]:
    """The shortest and longest path of communicating hosts: the bandwidth-delay product of the slowest link there."""
    found = set[tuple[int, int, int]]()
    for a, b in islice(dict.fromkeys(communicating_pairs(plan)), MAX_PAIRS):
        path = plan.path(a, b)
        found.add((plan.base_rtt_ns(a, b), path.rate_bps, path.mtu + ETHERNET_BYTES))
    for rtt_ns, rate_bps, frame in dict.fromkeys([min(found), max(found)]) if found else ():
        several = len({round_trip[0] for round_trip in found}) > 1
        which = "" if not several else ", shortest path" if rtt_ns == min(found)[0] else ", longest path"
        product = rtt_ns * rate_bps / 8e9
        text = f"at {format_rate(rate_bps)}"
        key = Key("network", f"round trip, bandwidth-delay product{which}")
        yield key, Effective(text, product / frame, product, rtt_ns)


def _tcp(plan: Plan) -> Iterator[tuple[Key, Effective]]:
    """TCP of the hosts that use it: congestion control, ECN, timers and windows."""
    flows = [workload for workload in plan.workloads if workload.transport == "tcp"]
    if not flows and not plan.launches:
        return
    hosts = [node for node in plan.nodes if node.kind == "host"]
    for key, nodes in _classes(hosts, _tcp_of):
        several = len(nodes) < len(hosts)
        yield Key("TCP", f"hosts {_first([node.name for node in nodes])}" if several else "hosts"), Effective(key)
    named = dict.fromkeys(flow.congestion_control for flow in flows if flow.congestion_control is not None)
    if named:
        yield Key("TCP", "congestion control of workloads"), Effective(", ".join(named))


def _tcp_of(node: Node) -> str:
    metrics = next((route.metrics for route in node.routes), Metrics())
    parts = [
        node.sysctls.get(_CONTROL, ""),
        _ECN.get(node.sysctls.get(_TCP_ECN, ""), "ECN if control or peer requests it"),
    ]
    if metrics.features:
        parts[1] = "ECN on"
    parts += [f"minimum RTO {metrics.rto_min_ms} ms"] if metrics.rto_min_ms is not None else []
    parts += [f"initial window {metrics.initcwnd}"] if metrics.initcwnd is not None else []
    parts += ["TSO"] if node.offload else []
    return ", ".join(filter(None, parts))


def _workloads(plan: Plan) -> Iterator[tuple[Key, Effective]]:
    for number, workload in enumerate(plan.workloads):
        row = describe_workload(plan, workload)
        name = row.pop("label", "") or f"workload {number}"
        start = row.pop("start")
        texts = [str(value) for value in row.values() if value] + ([f"from {start}"] if workload.start_ns else [])
        yield Key("workloads", str(name)), Effective(", ".join(texts))


def _classes(items: Iterable[T], key: Callable[[T], str]) -> Iterator[tuple[str, list[T]]]:
    found: dict[str, list[T]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    yield from found.items()


def _first(names: Sequence[str]) -> str:
    """The first name, and the number of the others."""
    return f"{names[0]} and {len(names) - 1} more" if len(names) > 1 else names[0]


# --- queues and controllers ---


@dataclass(frozen=True)
class _Port:
    name: str
    spec: QueueSpec
    end: End
    mtu: int
    program: bool

    def drain(self, occupancy: Occupancy, values: Mapping[str, Value]) -> Drain:
        frame = self.mtu + ETHERNET_BYTES
        return _drain(occupancy, values, self.end.rate_bps, frame, frame + self.end.overhead_bytes)


def _drain(occupancy: Occupancy, values: Mapping[str, Value], rate_bps: int, packet: int, wire: int) -> Drain:
    rate = values.get(occupancy.rate or "") or rate_bps
    given = values.get(occupancy.packet or "")
    assert isinstance(rate, int) and isinstance(given, int | None), "the declaration is checked"
    return Drain(rate, given or packet, 8 * (given or wire))


def _queues(lab: ResolvedLab, plan: Plan, role: str) -> Iterator[tuple[Key, Effective]]:
    """A group for each rate and each specification of the queues of a role."""
    names, found = port_names(plan), dict[tuple[object, ...], list[_Port]]()
    for index, link in enumerate(plan.links):
        for side, end in (("a", link.a), ("b", link.b)):
            if plan.queues[end.queue].role == role:
                spec = lab.queues[index, "b" if side == "b" else "a"]
                port = _Port(names[end.queue], spec, end, link.mtu, plan.nodes[end.node].pipeline is not None)
                key = (end.rate_bps, end.overhead_bytes, link.mtu, id(spec), port.program)
                found.setdefault(key, []).append(port)
    rates, shown = {key[0] for key in found}, set[object]()
    for (rate, *_), ports in sorted(found.items(), key=lambda group: group[1][0].end.rate_bps):
        group = "switch ports" if role == "switch" else "host ports"
        group += f" at {format_rate(ports[0].end.rate_bps)}" if len(rates) > 1 else ""
        if sum(key[0] == rate for key in found) > 1:
            group += f": {_first([port.name for port in ports])}"
        same = (id(ports[0].spec), ports[0].program)
        yield from (row for row in _queue(group, ports[0]) if same not in shown or not row[0].minor)
        shown.add(same)


def _queue(group: str, port: _Port) -> Iterator[tuple[Key, Effective]]:
    spec, rate = port.spec, format_rate(port.end.rate_bps)
    if rate not in group:
        yield Key(group, "rate"), Effective(rate)
    if port.program:
        yield Key(group, "switch"), Effective("P4 program")
    if spec.scheme not in registry():
        yield Key(group, "scheme"), Effective(" ".join(spec.tc or (spec.scheme,)))
        return
    scheme = registry()[spec.scheme]
    inside = f", inside: {spec.child.scheme}" if spec.child is not None else ""
    yield Key(group, "scheme"), Effective(f"{spec.scheme}{inside}")
    yield from _scheme(group, scheme, spec.values, port)
    if spec.child is not None:
        child = registry()[spec.child.scheme]
        given = scheme.child.given if scheme.child is not None else {}
        values = {n: v for n, v in spec.child.values.items() if n not in scheme.by_name and n not in given}
        yield from _scheme(group, child, values, port)


def _scheme(group: str, scheme: Scheme, values: Mapping[str, Value], port: _Port) -> Iterator[tuple[Key, Effective]]:
    drain = port.drain(scheme.lengths, values)
    for name, value in values.items():
        parameter = scheme.by_name[name]
        if name in scheme.lengths.thresholds:
            yield Key(group, name), drain.effective(parameter, value)
        elif parameter.type != "scheme":
            yield Key(group, name, minor=True), Effective(_shown(parameter, value))


def _shown(parameter: Parameter, value: Value) -> str:
    """A value in the lab file's notation, in four digits where the kernel has rounded it."""
    if isinstance(value, float):
        return f"{value:.4g}"
    if parameter.type == "rate" and isinstance(value, int):
        digits = max(0, len(str(value)) - 4)
        return format_rate(round(value, -digits))
    return parameter.show(value)


def _controllers(lab: ResolvedLab, plan: Plan) -> Iterator[tuple[Key, Effective]]:
    if not lab.has_rate:
        return
    classes: dict[ControllerSpec, list[str]] = {}
    for host, spec in lab.controllers.items():
        classes.setdefault(spec, []).append(host)
    for spec, hosts in classes.items():
        group = "controller" if len(classes) == 1 else f"controller of {_first(hosts)}"
        yield from _controller(group, controllers()[spec.name], spec)


def _controller(group: str, controller: Controller, spec: ControllerSpec) -> Iterator[tuple[Key, Effective]]:
    signal = spec.signal
    if signal != "rtt":
        signal += f" of {spec.unit} in {spec.bits} {'bit' if spec.bits == 1 else 'bits'}"
        signal += ", forward" if spec.forward else ""
    if spec.compact is not None:
        signal += f", header of {spec.header_bytes} bytes"
    yield Key(group, "controller"), Effective(f"{spec.name} by {signal}")
    values, lengths = controller.values(spec.options), controller.lengths
    drain = _drain(lengths, values, 1, 1, 1) if lengths.rate else None
    for name, value in values.items():
        parameter = controller.by_name[name]
        if drain is not None and name in lengths.thresholds:
            yield Key(group, name), drain.effective(parameter, value)
        else:
            minor = name not in (lengths.rate, lengths.packet)
            yield Key(group, name, minor), Effective(_shown(parameter, value))
