# SPDX-License-Identifier: Apache-2.0
"""Compilation of a lab to its plan: a pure function of the lab file and the seed."""

import zlib
from collections.abc import Iterable
from functools import cached_property
from typing import Literal

from qbed.base.errors import LabError
from qbed.config.selectors import select
from qbed.config.units import LARGEST, format_duration
from qbed.lab.model import EVERY_PACKET
from qbed.network.addresses import ADDRESS_BITS, Addresses, Family, Number, Side
from qbed.network.changes import LinkChange, QueueChange, changes
from qbed.network.congestion import controls_in_use
from qbed.network.frames import ETHERNET_BYTES
from qbed.network.links import LinkEnd
from qbed.network.queues import QueueSpec, default_queue
from qbed.network.resolve import ResolvedLab
from qbed.network.routes import Out
from qbed.p4.entry import Prefix, RecirculationPort
from qbed.p4.sources import Program
from qbed.p4.switch_program import forwards
from qbed.p4.user_entries import UserEntries
from qbed.plan import controlling, frr, launches, p4_switch
from qbed.plan import model as p
from qbed.plan import pipeline as p4
from qbed.plan import queue as q
from qbed.plan import workload as w
from qbed.plan.demand import MAX_COPIED, Demand, queued_bytes
from qbed.plan.frr.systems import systems
from qbed.plan.parts import IndivisibleError, divide, least_delays_ns
from qbed.plan.sysctls import global_sysctls, host_metrics, host_sysctls, switch_sysctls
from qbed.plan.workloads import compile_workloads
from qbed.schemes.congestion import declaration_of
from qbed.schemes.declaration import default_scheme, registry

_SIDES: tuple[Side, Side] = ("a", "b")
_RATE_MODULE, _BULK_MODULE = "qrate", "qbulk"
_EPOCH_NS = 2_000_000_000


def compile_lab(resolved: ResolvedLab, seed: int | None = None) -> p.Plan:
    """The plan of a lab as `load_lab` returns it; `seed` instead of the lab's own."""
    return _Compiler(resolved, resolved.lab.seed if seed is None else seed).plan()


class _Compiler:
    def __init__(self, resolved: ResolvedLab, seed: int) -> None:
        self.resolved, self.seed = resolved, seed
        self.lab, self.network, self.routing = resolved.lab, resolved.network, resolved.routing
        self.names = list(self.network.nodes)
        self.addresses = Addresses(self.network)
        self.is_frr = self.lab.routing == "frr"
        self.families: tuple[Family, ...] = {"ipv4": (4,), "ipv6": (6,), "both": (4, 6)}[self.lab.addressing]  # type: ignore[assignment]
        self._prefixes: dict[tuple[int, Family], str] = {}
        self._vias: dict[tuple[Family | Out, ...], list[p.Via]] = {}
        self.interfaces: dict[Out, str] = {
            out: f"eth{position}" for outs in self.routing.outs for position, out in enumerate(outs)
        }

    def plan(self) -> p.Plan:
        workloads = compile_workloads(self.resolved, self.seed)
        self.has_rate = any(workload.transport == "rate" for workload in workloads)
        used = map(declaration_of, controls_in_use(self.resolved))
        self.controls = {declared.name: declared for declared in used if declared is not None}
        queues = self.queues()
        links = self.links()
        routers = self.routing.is_host.count(False) - len(self.resolved.programs)
        programs = routers * len(frr.programs(self.lab.frr)) if self.is_frr else 0
        programs += controlling.SIZE * len(self.resolved.controllers_of_switches)
        programs += launches.SIZE * sum(len(launch.nodes) for launch in self.resolved.launches)
        changes = self.changes()
        demand = Demand(self.resolved, at_most(links, changes), workloads, programs)
        epoch_ns = _EPOCH_NS + 10 * demand.longest_rtt_ns + (self.lab.frr.settle if self.is_frr else 0)
        if epoch_ns + self.lab.duration > LARGEST:
            text = f"with a longest round-trip time of {format_duration(demand.longest_rtt_ns)} it ends too late"
            raise LabError([self.resolved.source.message(("duration",), text)])
        return p.Plan(
            version=1,
            lab=self.lab.name,
            seed=self.seed,
            epoch_ns=epoch_ns,
            duration_ns=self.lab.duration,
            memory_bytes=self.lab.memory or demand.memory_of_part(self.lab.parts),
            kernel=self.resolved.kernel.name if self.resolved.kernel else None,
            kernel_folder=str(self.resolved.kernel.folder or "") if self.resolved.kernel else "",
            modules=self.modules(workloads),
            sysctls=global_sysctls(),
            parameters=dict(sorted(self.parameters().items())),
            nodes=list(launches.with_files(self.resolved, self.nodes(demand.socket_buffer_bytes, epoch_ns))),
            links=links,
            queues=queues,
            workloads=workloads,
            launches=launches.launches(self.resolved, self.seed, epoch_ns),
            captures=self.captures(),
            events=self.events(),
            changes=changes,
            flow_interval_ns=self.lab.observe.flows if isinstance(self.lab.observe.flows, int) else 0,
            flow_statistics=sorted(
                name for declared in self.controls.values() if declared.statistics for name in declared.controls
            ),
            statistics_interval_ns=self.lab.observe.statistics if isinstance(self.lab.observe.statistics, int) else 0,
            sojourn=self.lab.observe.sojourn,
            windows=self.windows(),
            p4=p4_switch.programs(self.resolved.programs, self.resolved.engines),
            parts=self.parts(links, changes),
        )

    # --- links and queues --------------------------------------------------------------------------------------

    def number(self, out: Out) -> Number:
        return self.addresses.ends[out[0], _SIDES[out[1]]]

    def links(self) -> list[p.Link]:
        links = []
        for i, (link, state) in enumerate(zip(self.network.links, self.resolved.links, strict=True)):
            a, b = (
                p.End(
                    node=self.routing.links[i][side],
                    interface=self.interfaces[i, side],
                    mac=_mac_text(_mac(2 * i + side)),
                    addresses=[f"{self.number((i, side)).text(f)}/{31 if f == 4 else 127}" for f in self.families],
                    rate_bps=end.rate_bps,
                    delay_ns=end.delay_ns,
                    overhead_bytes=end.overhead_bytes,
                    loss=end.loss,
                    jitter_ns=end.jitter_ns,
                    reordering=end.reordering,
                    queue=2 * i + side,
                )
                for side, end in enumerate((state.a, state.b))
            )
            links.append(p.Link(name=link.name, mtu=state.mtu, a=a, b=b))
        return links

    def queues(self) -> list[q.Queue]:
        """Two queues for each link, in the links' order, that of end a first."""
        modes, specs = self.resolved.observed, self.resolved.queues
        qdiscs = {id(spec): _qdisc(spec) for spec in {id(spec): spec for spec in specs.values()}.values()}
        programs = self.resolved.programs
        queues = []
        for i, pair in enumerate(self.routing.links):
            for side, node in enumerate(pair):
                end = (i, _SIDES[side])
                role: Literal["host", "switch"] = "host" if self.routing.is_host[node] else "switch"
                spec = specs[end]
                mode = modes.get(end, self.lab.observe.queues if role == "switch" else self.lab.observe.host_queues)
                interface = self.interfaces[i, side]
                queues.append(
                    q.Queue(
                        name=f"{self.names[node]}:{interface}",
                        node=node,
                        interface=interface,
                        scheme=spec.scheme,
                        role=role,
                        qdisc=qdiscs[id(spec)] if self.names[node] not in programs else _qdisc(default_queue(spec)),
                        observe=q.Observe(
                            interval_ns=mode if isinstance(mode, int) else 0,
                            bin_bytes=self.resolved.links[i].mtu + ETHERNET_BYTES,
                            events=mode == EVERY_PACKET,
                        ),
                    )
                )
        return queues

    def modules(self, workloads: Iterable[w.Workload]) -> list[str]:
        """The kernel modules of the schemes in use, those of queues inside others too, of congestion controls, of the
        transport `rate`, and of payload that is too much to be copied.
        """
        specs = (self.kernel_queue(end, spec) for end, spec in self.resolved.queues.items())
        schemes = {s.scheme for spec in specs for s in (spec, spec.child) if s is not None}
        found = {module for module in map(_module, schemes) if module is not None}
        found |= {control.module for control in self.controls.values()}
        found |= {p4_switch.MODULE} if self.resolved.programs else set()
        found |= {_BULK_MODULE} if queued_bytes(workloads, self.lab.duration) > MAX_COPIED else set()
        return sorted(found | ({_RATE_MODULE} if self.has_rate else set()))

    def parameters(self) -> dict[str, str]:
        """The parameters of Linux's modules, and of those congestion controls that the lab uses."""
        found = {name: str(value) for name, value in self.lab.kernel_parameters.items()}
        for name, values in self.lab.congestion.items():
            if name in self.controls:
                found |= self.controls[name].module_parameters(values)
        return found

    def kernel_queue(self, end: LinkEnd, spec: QueueSpec) -> QueueSpec:
        """The queue that the kernel has there."""
        node = getattr(self.network.links[end[0]], end[1])
        return default_queue(spec) if node in self.resolved.programs else spec

    def captures(self) -> list[p.Capture]:
        found = []
        for (i, side_name), snaplen in self.resolved.captures.items():
            side = _SIDES.index(side_name)
            node, interface = self.routing.links[i][side], self.interfaces[i, side]
            name = f"{self.names[node]}:{interface}"
            found.append(p.Capture(name=name, node=node, interface=interface, snaplen=snaplen))
        return found

    def events(self) -> list[p.LinkEvent]:
        """The changes by time."""
        index = self.network.link_names
        found = [
            p.LinkEvent(at_ns=event.at, link=index[name], state=event.state)
            for event in self.lab.events
            if event.link is not None and event.state is not None
            for name in select(event.link, index)
        ]
        return sorted(found, key=lambda event: event.at_ns)

    def changes(self) -> list[p.Change]:
        """The changes by time."""
        found = []
        for change in changes(self.resolved):
            planned = p.Change(at_ns=change.at_ns)
            if isinstance(change, LinkChange):
                link, end = change.end
                planned.link = p.LinkChange(
                    link=link, end=end, rate_bps=change.rate_bps, delay_ns=change.delay_ns, loss=change.loss
                )
            elif isinstance(change, QueueChange):
                queue = 2 * change.end[0] + _SIDES.index(change.end[1])
                planned.queue = q.QueueChange(queue=queue, qdisc=_qdisc(change.spec))
            else:
                planned.node = p.NodeChange(node=self.resolved.index[change.host], congestion_control=change.tcp)
            found.append(planned)
        return found

    def parts(self, links: list[p.Link], changes: list[p.Change]) -> list[int]:
        """The part of each node; empty if the lab is not divided."""
        if self.lab.parts == 1:
            return []
        try:
            return divide(self.routing.is_host, links, least_delays_ns(links, changes), self.lab.parts)
        except IndivisibleError as error:
            text = f"expected {error.units} at most: the ends of a link without delay are in the same part"
            raise LabError([self.resolved.source.message(("parts",), text)]) from error

    def windows(self) -> list[p.Window]:
        end = self.lab.duration
        return [
            p.Window(name=name, from_ns=window.start, until_ns=end if window.until is None else window.until)
            for name, window in self.lab.observe.all_windows.items()
        ]

    # --- nodes -------------------------------------------------------------------------------------------------

    def nodes(self, socket_buffer_bytes: int, epoch_ns: int) -> list[p.Node]:
        nodes = [
            self.host(i, socket_buffer_bytes) if is_host else self.router(i) if self.is_router(i) else self.switch(i)
            for i, is_host in enumerate(self.routing.is_host)
        ]
        for name, script in self.resolved.controllers_of_switches.items():
            node = self.resolved.index[name]
            nodes[node] = controlling.controlled(nodes[node], self.resolved.programs[name], script, epoch_ns)
        return nodes

    def is_router(self, node: int) -> bool:
        """Whether FRR finds a switch's routes."""
        return self.is_frr and self.names[node] not in self.resolved.programs

    def node_addresses(self, node: int) -> list[str]:
        """The node's own address of each family: that of its primary end."""
        out = self.routing.primary(node)
        return [] if out is None else [self.number(out).text(family) for family in self.families]

    def host(self, node: int, socket_buffer_bytes: int) -> p.Node:
        settings = self.resolved.hosts[self.names[node]]
        kernel = settings.get("kernel", "auto")
        return p.Node(
            name=self.names[node],
            kind="host",
            kernel=None if kernel == "auto" else kernel,
            image=settings.get("image"),
            kernel_requested_at=self.resolved.source.place(settings["kernel_at"]) if kernel != "auto" else "",
            addresses=self.node_addresses(node),
            sysctls=host_sysctls(settings, self.lab.addressing, socket_buffer_bytes),
            routes=list(self.host_routes(node, host_metrics(settings))),
            offload="tso" if settings.get("offload") == "tso" else None,
            controller=self.controller(node) if self.has_rate else None,
            reflect=settings.get("reflect", 0.0) if self.has_rate else 0.0,
        )

    def controller(self, node: int) -> w.Controller | None:
        spec = self.resolved.controllers.get(self.names[node])
        if spec is None:
            return None
        return w.Controller.model_validate(
            {
                "name": spec.name,
                "parameters": spec.options.hex(),
                "signal": spec.signal,
                "unit": spec.unit,
                "bits": spec.bits,
                "forward": spec.forward,
                "compact": spec.compact,
            }
        )

    def host_routes(self, node: int, metrics: p.Metrics) -> Iterable[p.Route]:
        """One default route; more only with several links."""
        routing = self.routing
        uplinks = routing.uplinks(node)
        for family in self.families:
            if uplinks:
                yield self.route("0.0.0.0/0" if family == 4 else "::/0", uplinks[:1], family, metrics)
            for edge, out in routing.detours(node):
                yield self.route(self.prefix(edge, family), [out], family, metrics)
            for out in routing.direct(node):
                local, remote = self.number(out), self.number((out[0], 1 - out[1]))
                prefix = Number(min(local.offset, remote.offset), core=True).text(family)
                length = 31 if family == 4 else 127
                if metrics != p.Metrics():
                    interface = self.interfaces[out]
                    via = [p.Via(interface=interface, gateway=None)]
                    yield p.Route(to=f"{prefix}/{length}", via=via, metrics=metrics)
                primary = routing.primary(routing.peer(out))
                if primary is not None and primary[0] != out[0]:
                    yield self.route(f"{self.number(primary).text(family)}/{length + 1}", [out], family, metrics)

    def switch(self, node: int) -> p.Node:
        program = self.resolved.programs.get(self.names[node])
        # Layers take turns: qbed.network.routes says why.
        hash_seed = zlib.crc32(f"{self.seed}/{self.routing.levels[node] % 2}".encode()) | 1
        return p.Node(
            name=self.names[node],
            kind="switch",
            addresses=self.node_addresses(node),
            sysctls=switch_sysctls(self.lab.addressing, hash_seed),
            routes=[] if program else list(self.switch_routes(node)),
            pipeline=self.pipeline(node, program) if program else None,
        )

    def pipeline(self, node: int, program: Program) -> p4.Pipeline:
        """Return a P4 switch's program, and its routes to its hosts and to the hosts of every other edge switch."""
        routing, forwarding = self.routing, p4_switch.Forwarding(self.routing.levels[node])
        name = self.names[node]
        scheme_entries, user_entries = (
            self.resolved.scheme_entries[name],
            self.resolved.user_entries.get(name, UserEntries()),
        )
        recirculation = self.resolved.recirculation.get(name)
        hops = {
            out: p4_switch.Hop(port, *(_mac(2 * out[0] + side) for side in (out[1], 1 - out[1])))
            for port, out in enumerate(routing.outs[node])
        }
        if forwards(program):
            for out in (out for out in hops if routing.is_host[routing.peer(out)]):
                for family in self.families:
                    remote = self.number((out[0], 1 - out[1])).value(family)
                    forwarding.add(Prefix(remote, ADDRESS_BITS[family]), [hops[out]], family)
            for edge in routing.edges:
                outs, block = routing.next_hops(node, edge), self.addresses.blocks[self.names[edge]]
                for family in self.families if outs else ():
                    prefix = Prefix(Number(block.offset).value(family), block.length(family))
                    forwarding.add(prefix, [hops[out] for out in outs], family)
        return p4.Pipeline(
            program=program.name,
            engine=self.resolved.engines.get(self.names[node]),
            ports=[self.interfaces[out] for out in hops],
            entries=[*forwarding.entries(), *scheme_entries, *user_entries.entries],
            recirculation=[self.recirculation(node, recirculation)] if recirculation else [],
            sessions=p4_switch.sessions(program, recirculation, user_entries),
            groups=[p4.Group(group=number, ports=ports) for number, ports in user_entries.groups.items()],
            registers=[p4.Register(name=array, index=i, value=value) for array, i, value in user_entries.registers],
        )

    def recirculation(self, node: int, port: RecirculationPort) -> p4.RecirculationPort:
        """Return a recirculation port and its queue."""
        frame = max((self.resolved.links[out[0]].mtu for out in self.routing.outs[node]), default=1500) + ETHERNET_BYTES
        qdisc = _qdisc(QueueSpec(default_scheme(), {"buffer": port.buffer}))
        if port.rate_bps:
            qdisc = p4_switch.shaper(port.rate_bps, port.buffer.in_bytes(frame), frame)
        name = f"recirc{port.port}"
        return p4.RecirculationPort(port=port.port, interface=name, rate_bps=port.rate_bps, qdisc=qdisc)

    def router(self, node: int) -> p.Node:
        """A switch with FRR's routes, and static ones through P4 switches, which run no routing protocol."""
        settings, switch, is_host = self.lab.frr, self.switch(node), self.routing.is_host
        outs = self.routing.outs[node]
        block = self.addresses.blocks.get(self.names[node])
        primary = self.routing.primary(node)
        router = frr.Router(
            name=switch.name,
            identifier=self.number(primary).text(4) if primary else "0.0.0.1",
            system=self.systems[node],
            ports=tuple(
                frr.Port(self.interfaces[out], self.names[peer], fabric=not is_host[peer] and self.is_router(peer))
                for out in outs
                for peer in [self.routing.peer(out)]
            ),
            prefixes={f"ipv{family}": [block.prefix(family)] if block else [] for family in self.families},
        )
        return switch.model_copy(
            update={
                "sysctls": dict(sorted((switch.sysctls | frr.sysctls(settings, router)).items())),
                "environment": frr.environment(),
                "folders": [frr.FOLDER],
                "files": frr.files(settings, router),
                "programs": frr.programs(settings),
                "expects": list(self.expectations(node)),
            }
        )

    @cached_property
    def systems(self) -> dict[int, int]:
        return systems(self.routing)

    def expectations(self, node: int) -> Iterable[w.Expectation]:
        """Return the routes that the compiler would have computed."""
        for edge in (edge for edge in self.routing.edges if node not in self.by_programs[edge]):
            via = [self.interfaces[out] for out in self.routing.next_hops(node, edge)]
            hops = min(len(via), self.lab.frr.maximum_paths)
            for family in self.families if hops else ():
                yield w.Expectation(to=self.prefix(edge, family), hops=hops, via=via)

    @cached_property
    def by_programs(self) -> dict[int, set[int]]:
        """By edge switch: the switches of which some shortest path there leads through a switch in P4, or to one."""
        found: dict[int, set[int]] = {edge: set() for edge in self.routing.edges}
        for edge in self.routing.edges if self.resolved.programs else ():
            for node in sorted(self.routing.distances(edge), key=self.routing.distances(edge).__getitem__):
                peers = (self.routing.peer(out) for out in self.routing.next_hops(node, edge))
                if not self.is_router(node) or any(peer in found[edge] for peer in peers):
                    found[edge].add(node)
        return found

    def switch_routes(self, node: int) -> Iterable[p.Route]:
        """All, or of a router those that FRR cannot find."""
        is_router = self.is_router(node)
        for edge in (edge for edge in self.routing.edges if not is_router or node in self.by_programs[edge]):
            outs = self.routing.next_hops(node, edge)
            for family in self.families if outs else ():
                for prefix in self.host_links(edge) if is_router and self.lab.frr.protocol == "ospf" else ():
                    yield self.route(prefix, outs, family, p.Metrics())
                yield self.route(self.prefix(edge, family), outs, family, p.Metrics())

    def host_links(self, edge: int) -> Iterable[str]:
        """Return a switch's links to hosts, as advertised by OSPF if any of its neighbours speaks OSPF."""
        for out in (out for out in self.routing.outs[edge] if self.routing.is_host[self.routing.peer(out)]):
            ends = (self.number(out), self.number((out[0], 1 - out[1])))
            yield f"{min(ends, key=lambda number: number.offset).text(4)}/31"

    def prefix(self, edge: int, family: Family) -> str:
        """Return the prefix of an edge switch's hosts; every other switch has a route to it."""
        if (edge, family) not in self._prefixes:
            self._prefixes[edge, family] = self.addresses.blocks[self.names[edge]].prefix(family)
        return self._prefixes[edge, family]

    def route(self, to: str, outs: list[Out], family: Family, metrics: p.Metrics) -> p.Route:
        key = (family, *outs)
        if key not in self._vias:
            self._vias[key] = [
                p.Via(interface=self.interfaces[out], gateway=self.number((out[0], 1 - out[1])).text(family))
                for out in outs
            ]
        # Not validated, which would copy them: all routes by the same next hops share these.
        return p.Route.model_construct({"to", "via", "metrics"}, to=to, via=self._vias[key], metrics=metrics)


def _mac(number: int) -> int:
    """A locally administered address."""
    return 2 << 40 | number


def _mac_text(mac: int) -> str:
    return mac.to_bytes(6, "big").hex(":")


def at_most(links: list[p.Link], changes: list[p.Change]) -> list[p.Link]:
    """The links, each with the highest rate and the longest delay, jitter too, that it has during the lab."""
    of_ends = [change.link for change in changes if change.link is not None]
    if not of_ends and not any(end.jitter_ns for link in links for end in (link.a, link.b)):
        return links
    extremes = [[link.a.model_copy(), link.b.model_copy()] for link in links]
    for change in of_ends:
        end = extremes[change.link]["ab".index(change.end)]
        end.rate_bps = max(end.rate_bps, change.rate_bps or 0)
        end.delay_ns = max(end.delay_ns, change.delay_ns or 0)
    for end in (end for ends in extremes for end in ends):
        end.delay_ns += end.jitter_ns
    return [link.model_copy(update={"a": a, "b": b}) for link, (a, b) in zip(links, extremes, strict=True)]


def _qdisc(spec: QueueSpec) -> q.Qdisc:
    if spec.tc is not None:
        return q.TcQdisc(tc=list(spec.tc))
    kind, options = _kind(spec)
    child = None
    if spec.child is not None:
        inside, inside_options = _kind(spec.child)
        child = q.ChildQdisc(kind=inside, options=inside_options)
    return q.KernelQdisc(kind=kind, options=options, child=child)


def _kind(spec: QueueSpec) -> tuple[str, str]:
    """The qdisc's name and its options as hexadecimal digits."""
    scheme = registry()[spec.scheme]
    return scheme.kind(spec.values), scheme.options(spec.values).hex()


def _module(scheme: str) -> str | None:
    return registry()[scheme].qdisc.module if scheme in registry() else None
