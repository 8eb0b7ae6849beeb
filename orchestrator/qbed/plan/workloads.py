# SPDX-License-Identifier: Apache-2.0
"""Workloads of the lab file to workloads of the plan: hosts become indices, defaults become values."""

from typing import Any

from qbed.base.errors import LabError
from qbed.config.source import FieldPath
from qbed.config.units import LARGEST
from qbed.lab.workloads import Arrivals, Bursts, Flow, Flows, Incast, Probes, Replay, Requests, Sizes, Times, Udp
from qbed.network.frames import rate_headers
from qbed.network.pairs import flow_pairs, select_hosts
from qbed.network.resolve import ResolvedLab
from qbed.plan import model as p

_FIRST_PORT = 5001
SIGNAL_PORT = 6190
"""UDP port of receivers of the transport `rate`, by which switches recognise its packets
(kernel/include/uapi/qbed/signal.h).
"""
MAX_ARRIVALS = 10_000_000


def compile_workloads(resolved: ResolvedLab, seed: int) -> list[p.Workload]:
    """Return the plan's workloads in the file's order; `seed` draws senders and receivers."""
    lab = resolved.lab
    compiled: list[p.Workload] = []
    for number, entry in enumerate(lab.workload):
        content = entry.content
        family = content.family or (6 if lab.addressing == "ipv6" else 4)
        common: dict[str, Any] = {
            "id": number,
            "label": content.label or entry.kind,
            "start_ns": content.start,
            "stop_ns": getattr(content, "stop", None),
            "port": _FIRST_PORT + number,
            "family": family,
            "connect": getattr(content, "connect", "at start"),
            "congestion_control": getattr(content, "tcp", None),
            "transport": _transport(content),
            "dscp": content.dscp,
        }
        if common["transport"] == "rate":
            # The compiler knows the smallest MTU of all links, a sender only its own.
            payload_bytes = resolved.smallest_mtu - rate_headers(family)
            common |= {"port": SIGNAL_PORT, "payload_bytes": payload_bytes}
            common |= {"connect": "at start", "congestion_control": None}
        if isinstance(content, Arrivals):
            found = p.Arrivals(**common, **_arrivals(content, resolved))
            _check_arrivals(found, resolved, ("workload", number, entry.kind))
            compiled.append(found)
        elif isinstance(content, Requests):
            compiled.append(p.Exchanges(**common, **_requests(content, resolved)))
        elif isinstance(content, Bursts):
            compiled.append(p.Exchanges(**common, **_onoff(content, resolved, f"{seed}/{number}")))
        elif isinstance(content, Replay):
            compiled.append(p.Flows(**common, **_replay(content, resolved)))
        elif isinstance(content, Probes):
            compiled.append(p.Flows(**common, **_probes(content, resolved, f"{seed}/{number}")))
        else:
            compiled.append(p.Flows(**common, **_flows(content, resolved, f"{seed}/{number}")))
    return compiled


def _transport(content: Any) -> str:
    if isinstance(content, Udp | Probes):
        return "udp" if isinstance(content, Udp) else "probe"
    return "exchanges" if isinstance(content, Requests | Bursts) else str(content.transport)


def _flows(content: Flow | Flows | Incast | Udp, resolved: ResolvedLab, seed: str) -> dict[str, Any]:
    index = resolved.index
    named = flow_pairs(content, resolved.hosts, seed)
    pairs = [(index[a], index[b]) for a, b in named for _ in range(content.count)]
    return {
        "pairs": pairs,
        "size_bytes": content.size,
        "spread_ns": getattr(content, "spread", 0),
        "rate_bps": content.rate if isinstance(content, Udp) else None,
        "packet_bytes": content.packet if isinstance(content, Udp) else None,
    }


def _probes(content: Probes, resolved: ResolvedLab, seed: str) -> dict[str, Any]:
    index = resolved.index
    return {
        "pairs": [(index[a], index[b]) for a, b in flow_pairs(content, resolved.hosts, seed)],
        "size_bytes": None,
        "spread_ns": content.spread,
        "rate_bps": None,
        "packet_bytes": content.size,
        "interval_ns": content.interval,
    }


def _replay(content: Replay, resolved: ResolvedLab) -> dict[str, Any]:
    flows, index = content.flows(), resolved.index
    return {
        "pairs": [(index[flow.src], index[flow.dst]) for flow in flows],
        "size_bytes": max(flow.size_bytes for flow in flows),
        "spread_ns": 0,
        "rate_bps": None,
        "packet_bytes": None,
        "each": [(flow.start_ns, flow.size_bytes) for flow in flows],
    }


def _arrivals(content: Arrivals, resolved: ResolvedLab) -> dict[str, Any]:
    hosts, index = resolved.hosts, resolved.index
    if content.pairs is not None:
        sources, targets = ([pair[i] for pair in content.pairs] for i in (0, 1))
        ends: dict[str, Any] = {
            "pairs": [(index[a], index[b]) for a, b in content.pairs],
            "sources": None,
            "destinations": None,
        }
    else:
        sources, targets = (
            list(hosts) if names is None else select_hosts(names, hosts) for names in (content.source, content.to)
        )
        ends = {"pairs": None, "sources": [index[h] for h in sources], "destinations": [index[h] for h in targets]}
    if content.interval is not None:
        mean = float(content.interval)
    else:
        capacity = min(
            _capacity(resolved, set(sources), sending=True), _capacity(resolved, set(targets), sending=False)
        )
        mean = min(content.size.mean_bytes() * 8e9 / ((content.load or 1.0) * capacity), 2.0 * LARGEST)
    interarrival = {"exponential": mean} if content.spacing == "poisson" else {"fixed": max(1, round(mean))}
    return {
        **ends,
        "interarrival_ns": interarrival,
        "size": _size(content.size),
        "limit": content.limit,
        "together": content.together == "on",
    }


def _requests(content: Requests, resolved: ResolvedLab) -> dict[str, Any]:
    hosts, index = resolved.hosts, resolved.index
    ends: dict[str, Any] = {"pairs": None, "sources": None, "destinations": None}
    if content.pairs is not None:
        ends["pairs"] = [(index[a], index[b]) for a, b in content.pairs]
    else:
        ends["sources"] = [index[host] for host in select_hosts(content.clients or [], hosts)]
        ends["destinations"] = [index[host] for host in select_hosts(content.servers or [], hosts)]
    return {
        **ends,
        "fanout": None if content.fanout == "all" else content.fanout,
        "request": _size(content.request),
        "on_ns": None,
        "response": _size(content.response),
        "think_ns": _time(content.think),
        "limit": content.exchanges,
        "persistent": content.connections == "persistent",
        "outstanding": content.outstanding,
        "spread_ns": content.spread,
    }


def _onoff(content: Bursts, resolved: ResolvedLab, seed: str) -> dict[str, Any]:
    pairs = [(resolved.index[a], resolved.index[b]) for a, b in flow_pairs(content, resolved.hosts, seed)]
    return {
        "pairs": pairs,
        "sources": None,
        "destinations": None,
        "fanout": 1,
        "request": None if content.size is None else _size(content.size),
        "on_ns": None if content.on is None else _time(content.on),
        "response": None,
        "think_ns": _time(content.off),
        "limit": content.bursts,
        "persistent": True,
        "outstanding": content.count,
        "spread_ns": content.spread,
    }


def _check_arrivals(found: p.Arrivals, resolved: ResolvedLab, path: FieldPath) -> None:
    """LabError where more flows are to be expected than a lab can have, or times that no clock has."""
    ((_, mean),) = found.interarrival_ns.items()
    at_once = found.flows_at_once
    expected = min(at_once * (found.stop_ns or resolved.lab.duration) / mean, found.limit or LARGEST)
    if not 1 <= mean <= LARGEST or expected > MAX_ARRIVALS:
        flows = f"{at_once} flows" if found.together else "one flow"
        often = f"{flows} in {mean:.3g} ns on average, {expected:.3g} in all"
        text = f"{often}; expected at most {MAX_ARRIVALS}, and one a ns"
        raise LabError([resolved.source.message(path, text)])


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
        most = {} if sizes.pareto.most is None else {"most_bytes": sizes.pareto.most}
        return {"pareto": {"mean_bytes": sizes.pareto.mean, "shape": sizes.pareto.shape, **most}}
    return {"cdf": [list(point) for point in sizes.points()]}


def _time(times: Times) -> dict[str, Any]:
    if times.fixed is not None:
        return {"fixed": times.fixed}
    if times.exponential is not None:
        return {"exponential": float(times.exponential)}
    if times.uniform is not None:
        return {"uniform": list(times.uniform)}
    assert times.pareto is not None
    return {"pareto": {"mean_ns": float(times.pareto.mean), "shape": times.pareto.shape}}
