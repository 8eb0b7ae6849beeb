# SPDX-License-Identifier: Apache-2.0
"""Workloads of the lab file to workloads of the plan: hosts become indices, defaults become values."""

from typing import Any

from qbed.lab.model import Lab
from qbed.lab.workloads import Arrivals, Flow, Flows, Incast, Sizes, Udp
from qbed.language.selectors import select
from qbed.network.resolve import Resolver
from qbed.plan import model as p

_FIRST_PORT = 5001
Pairs = list[tuple[str, str]]


def select_hosts(patterns: list[str], hosts: list[str]) -> list[str]:
    """The hosts that any of the patterns means, each once, in the patterns' order."""
    return list(dict.fromkeys(name for pattern in patterns for name in select(pattern, hosts)))


def incast_senders(incast: Incast, hosts: list[str]) -> list[str]:
    """An incast's senders: the first so many hosts except the receiver, or those that are named."""
    if isinstance(incast.senders, int):
        return [host for host in hosts if host != incast.receiver][: incast.senders]
    return select_hosts(incast.senders, hosts)


def flow_pairs(workload: Flow | Flows | Incast | Udp, hosts: list[str]) -> Pairs:
    """The pairs of a workload's flows, before `count`. ValueError if senders and receivers do not pair up."""
    if isinstance(workload, Incast):
        return [(sender, workload.receiver) for sender in incast_senders(workload, hosts)]
    if not isinstance(workload, Flows):
        return [(workload.source, workload.to)]
    if workload.pairs is not None:
        return list(workload.pairs)
    sources, targets = (select_hosts(names or [], hosts) for names in (workload.source, workload.to))
    if len(targets) == 1:
        targets = targets * len(sources)
    if len(sources) != len(targets):
        raise ValueError(f"{len(sources)} senders and {len(targets)} receivers do not pair up")
    return list(zip(sources, targets, strict=True))


def compile_workloads(lab: Lab, resolver: Resolver, index: dict[str, int]) -> list[p.Flows | p.Arrivals]:
    """The plan's workloads, in the file's order."""
    compiled: list[p.Flows | p.Arrivals] = []
    for number, entry in enumerate(lab.workload):
        content = entry.content
        family = content.family or (6 if lab.addressing == "ipv6" else 4)
        common = {
            "id": number,
            "label": content.label or entry.kind,
            "start_ns": content.start,
            "stop_ns": content.stop,
            "port": _FIRST_PORT + number,
            "family": family,
            "connect": getattr(content, "connect", "at start"),
            "congestion_control": getattr(content, "tcp", None),
        }
        if isinstance(content, Arrivals):
            compiled.append(p.Arrivals(**common, **_arrivals(content, resolver, index)))
        else:
            compiled.append(p.Flows(**common, **_flows(content, lab.network.hosts, index)))
    return compiled


def _flows(content: Flow | Flows | Incast | Udp, hosts: list[str], index: dict[str, int]) -> dict[str, Any]:
    pairs = [(index[a], index[b]) for a, b in flow_pairs(content, hosts) for _ in range(content.count)]
    is_udp = isinstance(content, Udp)
    return {
        "transport": "udp" if is_udp else "tcp",
        "pairs": pairs,
        "size_bytes": content.size,
        "spread_ns": getattr(content, "spread", 0),
        "rate_bps": content.rate if isinstance(content, Udp) else None,
        "packet_bytes": content.packet if isinstance(content, Udp) else None,
    }


def _arrivals(content: Arrivals, resolver: Resolver, index: dict[str, int]) -> dict[str, Any]:
    hosts = resolver.network.hosts
    if content.pairs is not None:
        sources, targets = ([pair[i] for pair in content.pairs] for i in (0, 1))
        ends: dict[str, Any] = {
            "pairs": [(index[a], index[b]) for a, b in content.pairs],
            "sources": None,
            "destinations": None,
        }
    else:
        sources = hosts if content.source is None else select_hosts(content.source, hosts)
        targets = hosts if content.to is None else select_hosts(content.to, hosts)
        ends = {"pairs": None, "sources": [index[h] for h in sources], "destinations": [index[h] for h in targets]}
    if content.interval is not None:
        mean = float(content.interval)
    else:
        capacity = min(
            _capacity(resolver, set(sources), sending=True), _capacity(resolver, set(targets), sending=False)
        )
        mean = content.size.mean_bytes() * 8e9 / ((content.load or 1.0) * capacity)
    interarrival = {"exponential": mean} if content.spacing == "poisson" else {"fixed": max(1, round(mean))}
    return {**ends, "interarrival_ns": interarrival, "size": _size(content.size), "limit": content.limit}


def _capacity(resolver: Resolver, hosts: set[str], *, sending: bool) -> int:
    """Bits a second that the hosts' links carry from them, or to them."""
    total = 0
    for link, state in zip(resolver.network.links, resolver.links, strict=True):
        for node, here, there in ((link.a, state.a, state.b), (link.b, state.b, state.a)):
            if node in hosts:
                total += (here if sending else there).rate_bps
    return total


def _size(sizes: Sizes) -> dict[str, Any]:
    if sizes.fixed is not None:
        return {"fixed": sizes.fixed}
    if sizes.uniform is not None:
        return {"uniform": list(sizes.uniform)}
    if sizes.pareto is not None:
        return {"pareto": {"mean_bytes": sizes.pareto.mean, "shape": sizes.pareto.shape}}
    return {"cdf": [list(point) for point in sizes.points()]}
