# SPDX-License-Identifier: Apache-2.0
"""Checks across fields: names that do not exist, pairs without a path, contradictory numbers."""

from collections.abc import Iterable

from qbed.base.errors import nearest
from qbed.config.problems import Problems
from qbed.config.selectors import is_wide, select
from qbed.config.source import FieldPath
from qbed.config.units import format_duration
from qbed.lab.model import MAIN_WINDOW, Lab
from qbed.lab.topology import Network, TopologyError
from qbed.lab.workloads import Arrivals, Bursts, Content, Incast, Paired, Probes, Replay, Requests, Stream
from qbed.network.changes import changes, too_late
from qbed.network.compact_headers import check_compact_headers
from qbed.network.congestion import check_congestion
from qbed.network.frames import CONGESTION_BYTES, rate_headers
from qbed.network.pairs import flow_pairs, select_hosts
from qbed.network.resolve import ResolvedLab
from qbed.network.unread import check_unread, not_read_within
from qbed.p4.sources import DROP_PORT
from qbed.schemes.declaration import controllers, registry

MAX_HOPS = 2_000_000
"""Limit on the sum over all routes; a fat tree of 3,456 hosts has as many."""
MAX_FLOWS = 1_000_000
MAX_EVENTS = 100_000
MAX_PROBES = 100_000_000
MAX_EARLY, MAX_KNOWN = 100_000, 10_000_000
"""Limits on connections of closed loops before the epoch, and on pairs of a client and a server that it may use."""


def check_network(lab: Lab, problems: Problems) -> Network | None:
    """Return the lab's nodes and links, or None if they are invalid: no further checks are possible then."""
    try:
        network: Network = lab.topology.build()  # type: ignore[attr-defined]
    except TopologyError as error:
        generator = lab.topology.generator  # type: ignore[attr-defined]
        problems.error(("topology", generator, *error.field), str(error))
        return None
    _check_nodes(network, problems)
    if not problems.errors:
        _check_routes(lab, network, problems)
    return None if problems.errors else network


def _check_routes(lab: Lab, network: Network, problems: Problems) -> None:
    """Check the number of routes: each switch has a route to each switch with hosts, with a next hop
    per shortest path.
    """
    is_host = {name: kind == "host" for name, kind in network.nodes.items()}
    edges = {
        a for link in network.links for a, b in ((link.a, link.b), (link.b, link.a)) if is_host[b] and not is_host[a]
    }
    between = sum(not is_host[link.a] and not is_host[link.b] for link in network.links)
    if len(edges) * between > MAX_HOPS:
        text = f"{len(edges)} switches with hosts times {between} links between switches are {len(edges) * between}"
        generator = lab.topology.generator  # type: ignore[attr-defined]
        problems.error(("topology", generator), f"{text} next hops of routes; expected at most {MAX_HOPS}")


def check(resolved: ResolvedLab) -> None:
    """Find all problems of a lab with individually valid fields by resolving it."""
    lab, problems = resolved.lab, resolved.problems
    _ = resolved.links, resolved.hosts
    if not problems.errors:
        _ = resolved.host_queues, resolved.switch_queues, resolved.controllers
    _ = resolved.observed, resolved.captures
    _check_routing(lab, problems)
    _check_events(lab, resolved.network, problems)
    _check_windows(lab, problems)
    if not problems.errors:
        _ = resolved.controllers_of_switches, changes(resolved)
    if not problems.errors and resolved.programs:
        _check_programs(resolved)
    _ = resolved.launches, resolved.kernel
    check_congestion(resolved)
    _check_rate_settings(resolved)
    workloads = _Workloads(resolved)
    for number, workload in enumerate(lab.workload):
        path: FieldPath = ("workload", number, workload.kind)
        workloads.check(path, workload.content)
    check_unread(resolved)


def _check_routing(lab: Lab, problems: Problems) -> None:
    if lab.routing == "frr" and lab.frr.protocol == "ospf" and lab.addressing != "ipv4":
        text = f"`ospf` is OSPFv2, which routes IPv4, but the lab's addressing is `{lab.addressing}`; expected `bgp`"
        problems.error(("frr", "protocol"), text)
    if lab.routing == "frr" and lab.frr.hold <= lab.frr.keepalive:
        text = f"expected more than the keepalive of {format_duration(lab.frr.keepalive)}"
        problems.error(("frr", "hold"), text)
    if lab.routing == "static" and "frr" in lab.model_fields_set:
        not_read_within(problems, ("frr",), "has no effect: `routing` is `static`; expected `routing: frr`")


def _check_programs(resolved: ResolvedLab) -> None:
    """Check the P4 programs' table entries and the limits of P4 switches."""
    lab, problems, programs = resolved.lab, resolved.problems, resolved.programs
    _ = resolved.recirculation, resolved.scheme_entries, resolved.user_entries
    if lab.routing == "frr" and len(programs) == len(resolved.network.nodes) - len(resolved.network.hosts):
        text = "all switches are in P4, on which FRR does not run: not used; expected `static`"
        problems.not_read(("routing",), text)
    for name in programs:
        outs = resolved.routing.outs[resolved.index[name]]
        if len(outs) >= DROP_PORT:
            problems.error(("topology",), f"`{name}` has {len(outs)} links, but a switch in P4 {DROP_PORT - 1} at most")
        if len({resolved.links[link].mtu for link, _ in outs}) > 1:
            text = f"the links of `{name}` have different MTUs, but a switch in P4 tells no sender (no ICMP)"
            problems.warn(("links",), text)
    near = {link.name for link in resolved.network.links if {link.a, link.b} & programs.keys()}
    for number, event in enumerate(lab.events):
        if event.state is not None and set(select(event.link or "", resolved.network.link_names)) & near:
            text = "a switch in P4 goes on sending there: its routes stay as they are"
            problems.warn(("events", number, "link"), text)


def _check_rate_settings(resolved: ResolvedLab) -> None:
    """Check for unused controllers, and for controllers without a queue that provides their signal."""
    lab, problems = resolved.lab, resolved.problems
    if resolved.has_rate:
        if not problems.errors:
            _check_signals(resolved)
            check_compact_headers(resolved)
        return
    for key, settings in lab.hosts.items():
        for field in ("controller", "reflect"):
            if field in settings.given():
                text = "no workload has `transport: rate`: not used; expected that of one, or no such setting"
                not_read_within(problems, ("hosts", key, field), text)


def _check_signals(resolved: ResolvedLab) -> None:
    schemes = {spec.scheme for queue in resolved.queues.values() for spec in (queue, queue.child) if spec is not None}
    given = {what for name in schemes & registry().keys() for what in registry()[name].provides}
    for host, spec in resolved.controllers.items():
        settings, inputs = resolved.hosts[host]["controller"], controllers()[spec.name].inputs
        needed = {"signal": spec.signal != "rtt" and "signal" in inputs, "feedback": "feedback" in inputs}
        for what, is_needed in needed.items():
            if is_needed and what not in given:
                could = " or ".join(f"`{scheme.name}`" for scheme in registry().values() if what in scheme.provides)
                path = settings["signal" if what == "signal" else "name"][1]
                resolved.problems.warn(path, f"no queue of the lab provides a {what}, as the scheme {could} does")


def _check_events(lab: Lab, network: Network, problems: Problems) -> None:
    names, found = network.link_names, 0
    for number, event in enumerate(lab.events):
        path: FieldPath = ("events", number)
        if (wrong := too_late(event, lab.duration)) is not None:
            problems.error((*path, "at"), wrong)
        if event.loss == 1:
            problems.error((*path, "loss"), "expected less than 1; a link that loses all is `state: down`")
        if event.link is None or (">" in event.link and event.state is None):
            continue
        chosen = problems.select((*path, "link"), event.link, names)
        found += len(chosen)
        if found > MAX_EVENTS:
            problems.error((*path, "link"), f"{found} events up to here, one a link; expected at most {MAX_EVENTS}")
            return
        if not chosen:
            problems.error((*path, "link"), f"no link is called `{event.link}`{nearest(event.link, names)}")


def _check_windows(lab: Lab, problems: Problems) -> None:
    observe = lab.observe
    end, short = lab.duration, observe.all_windows.keys() - observe.windows.keys()
    if not short and MAIN_WINDOW in observe.windows and {"start", "until"} & observe.model_fields_set:
        text = f"`from` and `until` of `observe` are the window `{MAIN_WINDOW}`: expected another name"
        problems.error(("observe", "windows", MAIN_WINDOW), text)
    for name, window in observe.all_windows.items():
        path: FieldPath = ("observe",) if name in short else ("observe", "windows", name)
        if window.start >= end:
            text = f"begins at {format_duration(window.start)}, but the lab ends at {format_duration(end)}"
            problems.error((*path, "from"), text)
        elif window.until is not None and window.until <= window.start:
            text = f"expected a time after the window's beginning at {format_duration(window.start)}"
            problems.error((*path, "until"), text)
        elif window.until is not None and window.until > end:
            text = f"{format_duration(window.until)} is after the lab's end at {format_duration(end)}"
            problems.error((*path, "until"), text)


def _check_nodes(network: Network, problems: Problems) -> None:
    seen: set[str] = set()
    for link in network.links:
        path: FieldPath = ("topology", "explicit", "links", link.entry)
        for node in (link.a, link.b):
            if node not in network.nodes:
                problems.error((*path, "ends"), f"no node is called `{node}`{nearest(node, network.nodes)}")
        if link.name in seen:
            problems.error(path, f"two links are called `{link.name}`")
        seen.add(link.name)


class _Workloads:
    """Checks of one workload."""

    def __init__(self, resolved: ResolvedLab) -> None:
        self.lab, self.problems, self.resolved = resolved.lab, resolved.problems, resolved
        self.routing, self.index = resolved.routing, resolved.index
        self.hosts = dict.fromkeys(resolved.network.hosts)
        self.links, self.flows, self.probes = len(resolved.network.links), 0, 0
        self.connected: set[tuple[str, str]] = set()

    def check(self, path: FieldPath, content: Content) -> None:
        self._times(path, content)
        self._transport(path, content)
        before = len(self.problems.errors)
        if content.family is not None and self.lab.addressing not in (f"ipv{content.family}", "both"):
            self.problems.error((*path, "family"), f"the lab's addressing is `{self.lab.addressing}`")
        self._names(path, content)
        if isinstance(content, Incast) and len(self.problems.errors) == before:
            self._incast(path, content)
        if getattr(content, "size", None) == 0:
            self.problems.error((*path, "size"), "expected at least 1 byte, got `0 B`")
        if len(self.problems.errors) > before:
            return
        if isinstance(content, Arrivals):
            self._arrivals(path, content)
            return
        if isinstance(content, Requests):
            self._requests(path, content)
            return
        if isinstance(content, Paired) and {content.source is None, content.to is None} != {content.pairs is not None}:
            self.problems.error(path, "expected `pairs`, or `from` and `to`")
            return
        try:
            pairs = flow_pairs(content, self.hosts, f"{self.lab.seed}/{path[1]}")
        except ValueError as error:
            self.problems.error(path, str(error))
            return
        self.flows += len(pairs) * getattr(content, "count", 1)
        if self.flows > MAX_FLOWS:
            self.problems.error(path, f"{self.flows} flows up to here; expected at most {MAX_FLOWS} in a lab")
            return
        if isinstance(content, Probes):
            self._probes(path, content, len(pairs))
        if isinstance(content, Bursts):
            self._early(path, content, len(pairs) * content.count)
        self._senders(path, content, dict.fromkeys(a for a, _ in pairs))
        self._paths(path, pairs)

    def _probes(self, path: FieldPath, content: Probes, pairs: int) -> None:
        span = min(self.lab.duration, content.stop or self.lab.duration) - content.start
        self.probes += pairs * -(-span // content.interval)
        if self.probes > MAX_PROBES:
            text = f"{self.probes} probes up to here; expected at most {MAX_PROBES} in a lab"
            self.problems.error((*path, "interval"), text)

    def _early(self, path: FieldPath, content: Requests | Bursts, sockets: int) -> None:
        if content.connect == "before" and sockets > MAX_EARLY:
            text = f"{sockets} connections before the epoch; expected at most {MAX_EARLY}"
            self.problems.error((*path, "connect"), text)

    def _transport(self, path: FieldPath, content: Content) -> None:
        """Check for fields that the transport `rate` does not support, and that its packets have room for payload."""
        if not isinstance(content, Stream) or content.transport != "rate":
            return
        if content.tcp is not None:
            text = "the transport `rate` has no congestion control of TCP: not used; expected a host's `controller`"
            self.problems.not_read((*path, "tcp"), text)
        if content.dscp is not None:
            self.problems.error((*path, "dscp"), "the transport `rate` has no class for its packets")
        if content.connect == "before":
            text = "the transport `rate` has no handshake: not used; expected no `connect`, or `transport: tcp`"
            self.problems.not_read((*path, "connect"), text)
        family = 6 if content.family == 6 or self.lab.addressing == "ipv6" else 4
        headers = rate_headers(family, CONGESTION_BYTES if self.problems.errors else self.resolved.congestion_bytes)
        if self.resolved.smallest_mtu <= headers:
            text = f"its packets have {headers} bytes of headers, which do not fit an MTU of"
            self.problems.error((*path, "transport"), f"{text} {self.resolved.smallest_mtu} bytes")

    def _senders(self, path: FieldPath, content: Content, senders: Iterable[str]) -> None:
        """Check that each sender of the transport `rate` has a controller."""
        if getattr(content, "transport", "") != "rate":
            return
        without = [host for host in senders if "name" not in self.resolved.hosts[host]["controller"]]
        if without:
            more = f", nor have {len(without) - 1} more" if len(without) > 1 else ""
            example = f"for example `hosts: {{default: {{controller: {next(iter(controllers()))}}}}}`"
            text = f"the sender `{without[0]}` has no controller{more}: expected one, {example}"
            self.problems.error((*path, "transport"), text)

    def _times(self, path: FieldPath, content: Content) -> None:
        end = self.lab.duration
        if content.start >= end:
            text = f"starts at {format_duration(content.start)}, after the lab's end at {format_duration(end)}"
            self.problems.error((*path, "start"), text)
        stop = getattr(content, "stop", None)
        if stop is not None and stop <= content.start:
            self.problems.error((*path, "stop"), f"expected a time after the start at {format_duration(content.start)}")
        if stop is not None and stop > end:
            self.problems.warn((*path, "stop"), f"is after the lab's end at {format_duration(end)}")

    def _names(self, path: FieldPath, content: Content) -> None:
        """Check that all hosts that a workload names exist."""
        if isinstance(content, Replay):
            self._replayed(path, content)
        same = ("to", "receiver", "senders", "clients", "servers")
        for field, attribute in (("from", "source"), *((name, name) for name in same)):
            named = getattr(content, attribute, None)
            for name in [named] if isinstance(named, str) else named if isinstance(named, list) else []:
                self._name((*path, field), name, single=isinstance(named, str))
        for number, pair in enumerate(getattr(content, "pairs", None) or []):
            for end, name in enumerate(pair):
                self._name((*path, "pairs", number, end), name, single=True)

    def _replayed(self, path: FieldPath, content: Replay) -> None:
        """Check the hosts in a file of flows; only the first error is reported."""
        for line, flow in enumerate(content.flows(), start=2):
            for name in (flow.src, flow.dst):
                if name not in self.hosts:
                    is_switch = name in self.index
                    text = f"`{name}` is a switch" if is_switch else f"no host is called `{name}`"
                    hint = "" if is_switch else nearest(name, self.hosts)
                    self.problems.error((*path, "file"), f"line {line}: {text}{hint}")
                    return

    def _name(self, path: FieldPath, name: str, *, single: bool) -> None:
        before = len(self.problems.errors)
        found = [name] if single and name in self.index else self.problems.select(path, name, self.hosts)
        if len(self.problems.errors) > before:
            return
        if name in self.index and name not in self.hosts:
            self.problems.error(path, f"`{name}` is a switch, expected a host")
        elif not found or (single and found != [name]):
            wide = is_wide(name)
            hint = "" if wide else nearest(name, self.hosts)
            text = f"no host matches `{name}`" if wide and not single else f"no host is called `{name}`{hint}"
            self.problems.error(path, text)

    def _incast(self, path: FieldPath, content: Incast) -> None:
        available = len(self.hosts) - 1
        self.problems.spend(path, available)
        if isinstance(content.senders, int):
            if content.senders > available:
                text = f"{content.senders} senders, but the lab has {available} hosts besides the receiver"
                self.problems.error((*path, "senders"), text)
        elif content.receiver in select_hosts(content.senders, self.hosts):
            self.problems.error((*path, "senders"), f"the receiver `{content.receiver}` is among the senders")

    def _arrivals(self, path: FieldPath, content: Arrivals) -> None:
        if content.pairs is not None:
            self._senders(path, content, dict.fromkeys(a for a, _ in content.pairs))
            self._paths(path, content.pairs)
            return
        sources, targets = (
            list(self.hosts) if names is None else select_hosts(names, self.hosts)
            for names in (content.source, content.to)
        )
        # The next steps, here and in the compiler, take time per pair: shares of links, paths of thousands of pairs.
        self.problems.spend(path, self.links + 4 * min(len(sources) * len(targets), 4096))
        if not any(a != b for a in sources for b in targets[:2]):
            self.problems.error(path, "expected two different hosts at least")
            return
        self._senders(path, content, sources)
        # A network with a path from one source to all targets, and from all sources to one target, is connected.
        self._paths(path, [(a, targets[0]) for a in sources if a != targets[0]])
        self._paths(path, [(sources[0], b) for b in targets if b != sources[0]])

    def _requests(self, path: FieldPath, content: Requests) -> None:
        """Check the servers of each client, and that there are enough of them for its fanout."""
        if content.pairs is not None:
            clients, max_fanout = len(content.pairs), 1
            self._paths(path, content.pairs)
        else:
            sources, targets = (select_hosts(names or [], self.hosts) for names in (content.clients, content.servers))
            self.problems.spend(path, 4 * min(len(sources) * len(targets), 4096))
            servers = set(targets)
            clients, max_fanout = len(sources), len(servers) - any(source in servers for source in sources)
            if max_fanout < 1:
                self.problems.error((*path, "servers"), "a client has no server but itself")
                return
            if content.fanout != "all" and content.fanout > max_fanout:
                text = f"a fanout of {content.fanout}, but a client has {max_fanout} servers"
                self.problems.error((*path, "fanout"), text)
                return
            self._paths(path, [(a, targets[0]) for a in sources if a != targets[0]])
            self._paths(path, [(sources[0], b) for b in targets if b != sources[0]])
        sockets = clients * content.outstanding * max_fanout
        self.flows += clients * content.outstanding * (max_fanout if content.fanout == "all" else content.fanout)
        if self.flows > MAX_FLOWS:
            text = f"{self.flows} flows and exchanges at once up to here; expected at most {MAX_FLOWS} in a lab"
            self.problems.error(path, text)
        elif sockets > MAX_KNOWN:
            self.problems.error(
                path, f"{clients * content.outstanding} clients of {max_fanout} servers each are too many"
            )
        self._early(path, content, sockets)

    def _paths(self, path: FieldPath, pairs: list[tuple[str, str]]) -> None:
        unknown = [pair for pair in pairs if pair not in self.connected]
        self.problems.spend(path, len(pairs) + 19 * len(unknown))  # finding a path is a graph search
        for a, b in unknown:
            if a == b:
                self.problems.error(path, f"`{a}` cannot send to itself")
                return
            if not (
                self.routing.path(self.index[a], self.index[b]) and self.routing.path(self.index[b], self.index[a])
            ):
                self.problems.error(path, f"there is no path between `{a}` and `{b}`")
                return
            self.connected.add((a, b))
