# SPDX-License-Identifier: Apache-2.0
"""Human-readable form of a plan for `qbed inspect`: plain data and tables."""

from collections.abc import Callable, Iterator

from rich.table import Table

from qbed.base.json_files import Row
from qbed.config.units import format_duration, format_rate, format_size
from qbed.p4.entry import Entry, plan_number
from qbed.p4.switch_program import FORWARDING
from qbed.plan.model import End, Link, Plan
from qbed.plan.pipeline import Pipeline, RecirculationPort
from qbed.plan.queue import ChildQdisc, KernelQdisc, Queue, TcQdisc
from qbed.plan.workload import (
    Arrivals,
    Cdf,
    Controller,
    Exchanges,
    Exponential,
    Fixed,
    Flows,
    ParetoSize,
    ParetoTime,
    Size,
    Time,
    Uniform,
    Workload,
)
from qbed.schemes.declaration import Scheme, controllers, registry


def summary(plan: Plan) -> Row:
    """Nodes, links, queues, workloads and table entries of P4 switches, one row each, with units in the text."""
    peers = _peers(plan)
    programs = {"programs": list(_programs(plan))} if plan.p4 else {}
    return {
        "lab": plan.lab,
        "seed": plan.seed,
        "duration": format_duration(plan.duration_ns),
        "memory": f"{plan.memory_bytes >> 20} MiB",
        "nodes": [_node(plan, index) for index in range(len(plan.nodes))],
        **programs,
        "links": [_link(plan, link) for link in plan.links],
        "queues": [_queue(queue, peers[i]) for i, queue in enumerate(plan.queues)],
        "workloads": [describe_workload(plan, workload) for workload in plan.workloads],
    }


def tables(plan: Plan) -> list[Table]:
    """The summary as one table for each kind; a large lab's rows are elided in the middle."""
    data = summary(plan)
    title = f"{data['lab']}: {data['duration']}, seed {data['seed']}, {data['memory']} of memory"
    found: list[Table] = []
    for kind in ("nodes", "programs", "links", "queues", "workloads"):
        rows: list[Row] = data.get(kind, [])
        if not rows:
            continue
        table = Table(
            title=f"{title}\n{len(rows)} {kind}" if not found else f"{len(rows)} {kind}", title_justify="left"
        )
        for column in rows[0]:
            table.add_column(column)
        for row in [*rows[:20], None, *rows[-5:]] if len(rows) > 30 else rows:
            table.add_row(*(str(cell) for cell in row.values()) if row else ("...",) * len(rows[0]))
        found.append(table)
    return found


def _node(plan: Plan, index: int) -> Row:
    node = plan.nodes[index]
    tcp = node.sysctls.get("net/ipv4/tcp_congestion_control", "")
    routes = [f"{route.to} via {', '.join(via.interface for via in route.via)}" for route in node.routes]
    shown = [*routes[:3], "..."] if len(routes) > 3 else routes
    row = {
        "name": node.name,
        "kind": node.kind,
        "addresses": " ".join(node.addresses),
        "interfaces": len(plan.routing.outs[index]),
        "tcp": tcp,
        "routes": "; ".join(shown),
    }
    if plan.p4:
        row["program"] = node.pipeline.program if node.pipeline else ""
    by_rate = any(workload.transport == "rate" for workload in plan.workloads)
    return row | {"controller": _controller(node.controller)} if by_rate else row


def _programs(plan: Plan) -> Iterator[Row]:
    """Table entries of P4 switches except routes: one row for all switches with equal entries."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for node in plan.nodes:
        if node.pipeline is not None:
            groups.setdefault((node.pipeline.program, *_entries(node.pipeline)), []).append(node.name)
    for (program, *entries), names in groups.items():
        yield {"switches": " ".join(names), "program": program, "entries": "; ".join(entries)}


def _entries(pipeline: Pipeline) -> Iterator[str]:
    entries = [entry for entry in pipeline.entries if entry.table not in FORWARDING]
    yield from dict.fromkeys(map(_action, entries))
    yield from map(_recirculation, pipeline.recirculation)


def _action(entry: Entry) -> str:
    arguments = ", ".join(f"{name} {plan_number(value)}" for name, value in entry.arguments.items())
    return f"{entry.action}({arguments})"


def _recirculation(port: RecirculationPort) -> str:
    rate = "at once" if port.rate_bps is None else f"at {format_rate(port.rate_bps)}"
    return f"port {port.port} without a link, {rate}"


def _controller(controller: Controller | None) -> str:
    """A host's controller and its input, then its parameters."""
    if controller is None:
        return ""
    signal: str = controller.signal
    if signal != "rtt":
        forward = ", forward" if controller.forward else ""
        signal += f" of {controller.unit} in {controller.bits} bits{forward}"
    if controller.compact is not None:
        signal += f", header of {controller.header_bytes} bytes"
    shown = controllers()[controller.name].describe(bytes.fromhex(controller.parameters))
    return "; ".join([f"{controller.name} by {signal}", ", ".join(f"{name} {value}" for name, value in shown.items())])


def _link(plan: Plan, link: Link) -> Row:
    return {
        "name": link.name,
        "ends": " ".join(f"{plan.nodes[end.node].name}:{end.interface}" for end in (link.a, link.b)),
        "rate": _both(link, lambda end: format_rate(end.rate_bps)),
        "delay": _both(link, lambda end: format_duration(end.delay_ns)),
        "loss": _both(link, lambda end: f"{end.loss:g}"),
        "mtu": link.mtu,
        "addresses": " ".join([*link.a.addresses, *link.b.addresses]),
    }


def _both(link: Link, show: Callable[[End], str]) -> str:
    """One text if both ends are equal, otherwise those of a and b."""
    a, b = show(link.a), show(link.b)
    return str(a) if a == b else f"{a} / {b}"


def _queue(queue: Queue, peer: str) -> Row:
    mode = "every packet" if queue.observe.events else "summary"
    if queue.observe.interval_ns:
        mode = format_duration(queue.observe.interval_ns)
    qdisc = queue.qdisc
    parameters = ""
    if isinstance(qdisc, KernelQdisc) and queue.scheme in registry():
        scheme = registry()[queue.scheme]
        parameters = _parameters(scheme if scheme.has_kind(qdisc.kind) else _of_kind(qdisc.kind), qdisc)
        if qdisc.child is not None:
            inside = _of_kind(qdisc.child.kind)
            parameters += f"; inside: {inside.name}, {_parameters(inside, qdisc.child)}"
    return {
        "name": queue.name,
        "towards": peer,
        "role": queue.role,
        "scheme": queue.scheme,
        "qdisc": " ".join(qdisc.tc) if isinstance(qdisc, TcQdisc) else qdisc.kind,
        "parameters": parameters,
        "observed": mode,
    }


def _of_kind(kind: str) -> Scheme:
    return next(scheme for scheme in registry().values() if scheme.has_kind(kind))


def _parameters(scheme: Scheme, qdisc: ChildQdisc) -> str:
    shown = scheme.describe(qdisc.kind, bytes.fromhex(qdisc.options))
    return ", ".join(f"{name} {value}" for name, value in shown.items())


def _peers(plan: Plan) -> dict[int, str]:
    """The name of the neighbour behind each queue."""
    names = [node.name for node in plan.nodes]
    return {
        local.queue: names[peer.node] for link in plan.links for local, peer in ((link.a, link.b), (link.b, link.a))
    }


def describe_workload(plan: Plan, workload: Workload) -> Row:
    """A workload in words."""
    if isinstance(workload, Flows):
        hosts, flows = _flows(plan, workload)
    else:
        hosts, flows = _exchanges(workload) if isinstance(workload, Exchanges) else _arrivals(workload)
    return {
        "label": workload.label,
        "transport": workload.transport,
        "tcp": workload.congestion_control or "",
        "hosts": hosts,
        "flows": flows,
        "start": format_duration(workload.start_ns),
        "stop": "" if workload.stop_ns is None else format_duration(workload.stop_ns),
    }


def _flows(plan: Plan, workload: Flows) -> tuple[str, str]:
    pairs = [f"{plan.nodes[a].name}>{plan.nodes[b].name}" for a, b in workload.pairs]
    hosts = pairs[0] if len(set(pairs)) == 1 else f"{pairs[0]} ... {pairs[-1]}"
    size = "unlimited" if workload.size_bytes is None else format_size(workload.size_bytes)
    return hosts, f"{len(pairs)} of {'at most ' if workload.each else ''}{size}"


def _ends(workload: Arrivals | Exchanges) -> str:
    if workload.pairs is not None:
        return f"{len(workload.pairs)} pairs"
    return f"{len(workload.sources or [])} to {len(workload.destinations or [])} hosts"


def _exchanges(workload: Exchanges) -> tuple[str, str]:
    quantities = [
        ("request", workload.request, format_size),
        ("on", workload.on_ns, format_duration),
        ("response", workload.response, format_size),
        ("think" if workload.response else "off", workload.think_ns, format_duration),
    ]
    parts = [f"{name} {_distribution(found, show)}" for name, found, show in quantities if found is not None]
    at_once = "all" if workload.fanout is None else workload.fanout
    return _ends(workload), ", ".join([f"{at_once} at once", *parts])


def _distribution(found: Size | Time, show: Callable[[int], str]) -> str:
    """A random size or time, in the lab file's notation."""
    match found:
        case Fixed():
            return show(found.fixed)
        case Uniform():
            return " to ".join(map(show, found.uniform))
        case Exponential():
            return f"exponential of mean {show(round(found.exponential))}"
        case ParetoSize(pareto=pareto):
            limit = f", {show(pareto.max_bytes)} at most" if pareto.max_bytes is not None else ""
            return f"pareto of mean {show(pareto.mean_bytes)} and shape {pareto.shape:g}{limit}"
        case ParetoTime(pareto=pareto):
            return f"pareto of mean {show(round(pareto.mean_ns))} and shape {pareto.shape:g}"
        case Cdf():
            return f"cdf of {len(found.cdf)} points"


def _arrivals(workload: Arrivals) -> tuple[str, str]:
    spacing = "exponential" if isinstance(workload.interarrival_ns, Exponential) else "fixed"
    at_once = "all at once, " if workload.together else ""
    often = f"{at_once}{spacing} every {workload.mean_interarrival_ns / 1000:.6g} us"
    return _ends(workload), f"{often}, {_distribution(workload.size, format_size)}"
