# SPDX-License-Identifier: Apache-2.0
"""Workloads of the lab file to workloads of the plan: hosts become indices, defaults become values."""

from typing import Any

from qbed.lab.workloads import Arrivals, Flow, Flows, Incast, Sizes, Udp
from qbed.network.pairs import flow_pairs, select_hosts
from qbed.network.resolve import ResolvedLab
from qbed.plan import model as p

_FIRST_PORT = 5001


def compile_workloads(resolved: ResolvedLab) -> list[p.Flows | p.Arrivals]:
    """The plan's workloads, in the file's order."""
    lab = resolved.lab
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
            compiled.append(p.Arrivals(**common, **_arrivals(content, resolved)))
        else:
            compiled.append(p.Flows(**common, **_flows(content, resolved)))
    return compiled


def _flows(content: Flow | Flows | Incast | Udp, resolved: ResolvedLab) -> dict[str, Any]:
    index = resolved.index
    pairs = [(index[a], index[b]) for a, b in flow_pairs(content, resolved.network.hosts) for _ in range(content.count)]
    is_udp = isinstance(content, Udp)
    return {
        "transport": "udp" if is_udp else "tcp",
        "pairs": pairs,
        "size_bytes": content.size,
        "spread_ns": getattr(content, "spread", 0),
        "rate_bps": content.rate if isinstance(content, Udp) else None,
        "packet_bytes": content.packet if isinstance(content, Udp) else None,
    }


def _arrivals(content: Arrivals, resolved: ResolvedLab) -> dict[str, Any]:
    hosts, index = resolved.network.hosts, resolved.index
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
            _capacity(resolved, set(sources), sending=True), _capacity(resolved, set(targets), sending=False)
        )
        mean = content.size.mean_bytes() * 8e9 / ((content.load or 1.0) * capacity)
    interarrival = {"exponential": mean} if content.spacing == "poisson" else {"fixed": max(1, round(mean))}
    return {**ends, "interarrival_ns": interarrival, "size": _size(content.size), "limit": content.limit}


def _capacity(resolved: ResolvedLab, hosts: set[str], *, sending: bool) -> int:
    """Bits a second that the hosts' links carry from them, or to them."""
    total = 0
    for link, state in zip(resolved.network.links, resolved.links, strict=True):
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
