# SPDX-License-Identifier: Apache-2.0
"""Workloads of the lab file to workloads of the plan: hosts become indices, defaults become values."""

from typing import Literal, TypedDict

from qbed.base.errors import LabError
from qbed.config.source import FieldPath
from qbed.config.units import LARGEST
from qbed.lab.distributions import Sizes, Times
from qbed.lab.workloads import (
    Arrivals,
    Bursts,
    Content,
    Flow,
    Flows,
    Incast,
    Probes,
    Replay,
    Requests,
    Udp,
    Workload,
)
from qbed.network.frames import rate_headers
from qbed.network.pairs import flow_pairs, select_hosts
from qbed.network.resolve import ResolvedLab
from qbed.plan import workload as p

_FIRST_PORT = 5001
SIGNAL_PORT = 6190
"""UDP port of receivers of the transport `rate`, by which switches recognise its packets
(kernel/include/uapi/qbed/signal.h).
"""
MAX_ARRIVALS = 10_000_000


class _Common(TypedDict):
    """Fields of every workload."""

    id: int
    label: str
    start_ns: int
    stop_ns: int | None
    port: int
    family: Literal[4, 6]
    connect: Literal["at start", "before"]
    congestion_control: str | None
    dscp: int | None


def compile_workloads(resolved: ResolvedLab, seed: int) -> list[p.Workload]:
    """Return the plan's workloads in the file's order; `seed` draws senders and receivers."""
    entries = enumerate(resolved.lab.workload)
    return [_compiled(number, entry, resolved, f"{seed}/{number}") for number, entry in entries]


def _compiled(number: int, entry: Workload, resolved: ResolvedLab, seed: str) -> p.Workload:
    content = entry.content
    common = _common(number, entry, resolved)
    match content:
        case Arrivals():
            found = _arrivals(content, common, resolved)
            _check_arrivals(found, resolved, ("workload", number, entry.kind))
            return found
        case Requests():
            return _requests(content, common, resolved)
        case Bursts():
            return _onoff(content, common, resolved, seed)
        case Replay():
            return _replay(content, common, resolved)
        case Probes():
            return _probes(content, common, resolved, seed)
        case Udp():
            return _udp(content, common, resolved, seed)
        case Flow() | Flows() | Incast():
            return _flows(content, common, resolved, seed)


def _common(number: int, entry: Workload, resolved: ResolvedLab) -> _Common:
    content = entry.content
    is_rate = _payload_bytes(content, resolved) is not None
    return {
        "id": number,
        "label": content.label or entry.kind,
        "start_ns": content.start,
        "stop_ns": getattr(content, "stop", None),
        "port": SIGNAL_PORT if is_rate else _FIRST_PORT + number,
        "family": _family(content, resolved),
        "connect": "at start" if is_rate else getattr(content, "connect", "at start"),
        "congestion_control": None if is_rate else getattr(content, "tcp", None),
        "dscp": content.dscp,
    }


def _family(content: Content, resolved: ResolvedLab) -> Literal[4, 6]:
    return content.family or (6 if resolved.lab.addressing == "ipv6" else 4)


def _payload_bytes(content: Content, resolved: ResolvedLab) -> int | None:
    """Payload of a packet of the transport `rate`: only the compiler knows the smallest MTU of all links."""
    if getattr(content, "transport", None) != "rate":
        return None
    return resolved.smallest_mtu - rate_headers(_family(content, resolved), resolved.congestion_bytes)


def _pairs(content: Flow | Flows | Incast | Udp | Probes | Bursts, resolved: ResolvedLab, seed: str) -> list[p.Pair]:
    index = resolved.index
    return [(index[a], index[b]) for a, b in flow_pairs(content, resolved.hosts, seed)]


def _flows(content: Flow | Flows | Incast, common: _Common, resolved: ResolvedLab, seed: str) -> p.Flows:
    return p.Flows(
        kind="flows",
        transport=content.transport,
        **common,
        pairs=[pair for pair in _pairs(content, resolved, seed) for _ in range(content.count)],
        size_bytes=content.size,
        spread_ns=content.spread,
        rate_bps=None,
        packet_bytes=None,
        payload_bytes=_payload_bytes(content, resolved),
    )


def _udp(content: Udp, common: _Common, resolved: ResolvedLab, seed: str) -> p.Flows:
    return p.Flows(
        kind="flows",
        transport="udp",
        **common,
        pairs=[pair for pair in _pairs(content, resolved, seed) for _ in range(content.count)],
        size_bytes=content.size,
        spread_ns=0,
        rate_bps=content.rate,
        packet_bytes=content.packet,
        payload_bytes=None,
    )


def _probes(content: Probes, common: _Common, resolved: ResolvedLab, seed: str) -> p.Flows:
    return p.Flows(
        kind="flows",
        transport="probe",
        **common,
        pairs=_pairs(content, resolved, seed),
        size_bytes=None,
        spread_ns=content.spread,
        rate_bps=None,
        packet_bytes=content.size,
        payload_bytes=None,
        interval_ns=content.interval,
    )


def _replay(content: Replay, common: _Common, resolved: ResolvedLab) -> p.Flows:
    flows, index = content.flows(), resolved.index
    return p.Flows(
        kind="flows",
        transport=content.transport,
        **common,
        pairs=[(index[flow.src], index[flow.dst]) for flow in flows],
        size_bytes=max(flow.size_bytes for flow in flows),
        spread_ns=0,
        rate_bps=None,
        packet_bytes=None,
        payload_bytes=_payload_bytes(content, resolved),
        each=[(flow.start_ns, flow.size_bytes) for flow in flows],
    )


def _arrivals(content: Arrivals, common: _Common, resolved: ResolvedLab) -> p.Arrivals:
    hosts, index = resolved.hosts, resolved.index
    if content.pairs is not None:
        sources, targets = ([pair[i] for pair in content.pairs] for i in (0, 1))
    else:
        sources, targets = (
            list(hosts) if names is None else select_hosts(names, hosts) for names in (content.source, content.to)
        )
    if content.interval is not None:
        mean = float(content.interval)
    else:
        capacity = min(
            _capacity(resolved, set(sources), sending=True), _capacity(resolved, set(targets), sending=False)
        )
        mean = min(content.size.mean_bytes() * 8e9 / ((content.load or 1.0) * capacity), 2.0 * LARGEST)
    is_poisson = content.spacing == "poisson"
    return p.Arrivals(
        kind="arrivals",
        transport=content.transport,
        **common,
        sources=None if content.pairs is not None else [index[host] for host in sources],
        destinations=None if content.pairs is not None else [index[host] for host in targets],
        pairs=None if content.pairs is None else [(index[a], index[b]) for a, b in content.pairs],
        interarrival_ns=p.Exponential(exponential=mean) if is_poisson else p.Fixed(fixed=max(1, round(mean))),
        size=_size(content.size),
        limit=content.limit,
        payload_bytes=_payload_bytes(content, resolved),
        together=content.together == "on",
    )


def _requests(content: Requests, common: _Common, resolved: ResolvedLab) -> p.Exchanges:
    hosts, index, pairs = resolved.hosts, resolved.index, content.pairs
    clients, servers = (
        None if pairs is not None else [index[host] for host in select_hosts(names or [], hosts)]
        for names in (content.clients, content.servers)
    )
    return p.Exchanges(
        kind="exchanges",
        transport="exchanges",
        **common,
        sources=clients,
        destinations=servers,
        pairs=None if pairs is None else [(index[a], index[b]) for a, b in pairs],
        fanout=None if content.fanout == "all" else content.fanout,
        request=_size(content.request),
        on_ns=None,
        response=_size(content.response),
        think_ns=_time(content.think),
        limit=content.exchanges,
        persistent=content.connections == "persistent",
        outstanding=content.outstanding,
        spread_ns=content.spread,
    )


def _onoff(content: Bursts, common: _Common, resolved: ResolvedLab, seed: str) -> p.Exchanges:
    return p.Exchanges(
        kind="exchanges",
        transport="exchanges",
        **common,
        sources=None,
        destinations=None,
        pairs=_pairs(content, resolved, seed),
        fanout=1,
        request=None if content.size is None else _size(content.size),
        on_ns=None if content.on is None else _time(content.on),
        response=None,
        think_ns=_time(content.off),
        limit=content.bursts,
        persistent=True,
        outstanding=content.count,
        spread_ns=content.spread,
    )


def _check_arrivals(found: p.Arrivals, resolved: ResolvedLab, path: FieldPath) -> None:
    """LabError where more flows are to be expected than a lab can have, or times that no clock has."""
    mean = found.mean_interarrival_ns
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
        for node, egress, ingress in ((link.a, state.a, state.b), (link.b, state.b, state.a)):
            if node in hosts:
                total += (egress if sending else ingress).rate_bps
    return total


def _size(sizes: Sizes) -> p.Size:
    if sizes.fixed is not None:
        return p.Fixed(fixed=sizes.fixed)
    if sizes.uniform is not None:
        return p.Uniform(uniform=sizes.uniform)
    if sizes.pareto is not None:
        pareto = sizes.pareto
        return p.ParetoSize(pareto=p.ParetoBytes(mean_bytes=pareto.mean, shape=pareto.shape, max_bytes=pareto.max))
    return p.Cdf(cdf=sizes.points())


def _time(times: Times) -> p.Time:
    if times.fixed is not None:
        return p.Fixed(fixed=times.fixed)
    if times.exponential is not None:
        return p.Exponential(exponential=float(times.exponential))
    if times.uniform is not None:
        return p.Uniform(uniform=times.uniform)
    assert times.pareto is not None
    return p.ParetoTime(pareto=p.ParetoNs(mean_ns=float(times.pareto.mean), shape=times.pareto.shape))
