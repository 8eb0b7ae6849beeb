# SPDX-License-Identifier: Apache-2.0
"""The resolved lab: the effective settings of every link end, queue and host, and the routes between them."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property

from qbed.base.errors import nearest
from qbed.config.layers import Layer, layer, rank
from qbed.config.problems import Problems, Unread
from qbed.config.source import FieldPath, Source
from qbed.config.units import Amount
from qbed.lab.model import Lab
from qbed.lab.settings import Given, P4Engine
from qbed.lab.topology import Network
from qbed.network import links
from qbed.network.controllers import ControllerSpec, ControllerSpecs, check_controller
from qbed.network.frames import CONGESTION_BYTES, ETHERNET_BYTES, rate_of_packets
from qbed.network.kernels import LabKernel, lab_kernel
from qbed.network.launches import Launch, Launches
from qbed.network.links import LinkEnd, LinkState, Side
from qbed.network.queues import QueueSpec, Specs, buffer_length, check_names, merge
from qbed.network.routes import Routing
from qbed.p4.entry import Entry, Port, RecirculationPort, SettingError
from qbed.p4.scheme_entries import port_entries, recirculation_port, switch_entries
from qbed.p4.sources import Program
from qbed.p4.switch_program import (
    FORWARDING,
    SWITCH_FIELDS,
    USER_FIELDS,
    Programs,
    Script,
    check_port,
    check_sizes,
    controller,
    forwards,
    queue_under_program,
    recirculation_of,
)
from qbed.p4.user_entries import EntryReader, UserEntries
from qbed.schemes.declaration import default_scheme, registry

MIN_BEHIND_BURSTS = 1000
"""Minimum queue, in packets, of a host that sends bursts: a burst of 64 KB has about 45 segments."""
HOST_BUFFER = Amount(1000, "packets")


def host_queue() -> Layer:
    """Return the queue of a host for which the lab gives none."""
    return {"scheme": (default_scheme(), ("hosts",)), "buffer": (HOST_BUFFER, ("hosts",))}


class ResolvedLab:
    """A lab file's model, its network, and the effective settings of all its parts, each computed once.

    Errors are added to `problems`. `qbed.network.load` returns no lab with errors, so a plan can be compiled without
    further checks.
    """

    def __init__(self, lab: Lab, network: Network, problems: Problems) -> None:
        self.lab, self.network, self.problems = lab, network, problems
        self._specs, self._controllers = Specs(problems, self._order), ControllerSpecs(problems, self.has_rate)
        self._signal_buffers: dict[str, set[int]] = {}

    @property
    def source(self) -> Source:
        """The source file, for messages."""
        return self.problems.source

    @property
    def warnings(self) -> list[str]:
        """Settings that are valid but probably not intended, one message each."""
        return self.problems.warnings

    @property
    def unread(self) -> dict[FieldPath, Unread]:
        """The settings that nothing in the lab reads."""
        return self.problems.unread

    @property
    def has_rate(self) -> bool:
        """Whether a workload has the transport `rate`."""
        return any(getattr(workload.content, "transport", "") == "rate" for workload in self.lab.workload)

    @cached_property
    def kernel(self) -> LabKernel | None:
        """The kernel that the file selects."""
        return None if self.lab.kernel is None else lab_kernel(self.lab.kernel, self.problems)

    @cached_property
    def index(self) -> dict[str, int]:
        """Each node's number, in the network's order."""
        return {name: i for i, name in enumerate(self.network.nodes)}

    @cached_property
    def routing(self) -> Routing:
        """Shortest paths between the nodes, by their numbers."""
        pairs = [(self.index[link.a], self.index[link.b]) for link in self.network.links]
        return Routing([kind == "host" for kind in self.network.nodes.values()], pairs)

    @cached_property
    def links(self) -> list[LinkState]:
        """The settings of every link, in the network's order."""
        delays_change = any(event.delay is not None for event in self.lab.events)
        return links.resolve_links(self.network, self.lab.links, self.problems, delays_change=delays_change)

    @cached_property
    def smallest_mtu(self) -> int:
        """The smallest MTU of all links."""
        return min((link.mtu for link in self.links), default=1500)

    @cached_property
    def observed(self) -> dict[LinkEnd, object]:
        """The modes in `observe.ports`, by link end."""
        ports = self.lab.observe.ports
        return {end: ports[key] for key in ports for end in self._directions(("observe", "ports", key), key)}

    @cached_property
    def captures(self) -> dict[LinkEnd, int]:
        """The link ends where packets are captured, and the number of bytes captured of each packet."""
        return {
            end: capture.snaplen
            for entry, capture in enumerate(self.lab.capture)
            for end in self._directions(("capture", entry), capture.end)
        }

    def _directions(self, path: FieldPath, key: str) -> list[LinkEnd]:
        """Return the link ends that `x>y` matches."""
        return links.directions(self.network, self.problems, path, key)

    def _order(self, path: FieldPath) -> int:
        """Return the position of a field's entry in the order in which entries are merged; an event's entry is the
        last.
        """
        return self._orders.get(path[:2], len(self._orders)) if len(path) > 1 else -1

    @cached_property
    def _orders(self) -> dict[FieldPath, int]:
        entries = [("switches", key) for key in _merged(self.lab.switches)]
        entries += [("hosts", key) for key in _merged(self.lab.hosts)]
        return {entry: number for number, entry in enumerate(entries)}

    @cached_property
    def _switch_settings(self) -> tuple[dict[str, Layer], dict[LinkEnd, Layer]]:
        """The settings that the file gives for each switch, and those that it gives for its ports."""
        switches: dict[str, Layer] = {name: {} for name, kind in self.network.nodes.items() if kind == "switch"}
        ports: dict[LinkEnd, Layer] = {}
        for key in _merged(self.lab.switches):
            settings = self.lab.switches[key]
            path: FieldPath = ("switches", key)
            check_names(settings, path, self.problems)
            given = layer(settings.given(), path)
            if ">" in key:
                check_port(settings, path, self.problems)
                ends = self._switch_ports(path, key)
                if given:
                    ports |= {end: merge(ports.get(end, {}), given) for end in ends}
                continue
            for name in self._named(path, key, switches, "switch"):
                switches[name] = merge(switches[name], given)
        return switches, ports

    @cached_property
    def programs(self) -> dict[str, Program]:
        """The program of each switch that runs one."""
        chosen = Programs(self.problems)
        found = ((name, chosen.of(settings)) for name, settings in self._switch_settings[0].items())
        return {name: program for name, program in found if program is not None}

    @cached_property
    def controllers_of_switches(self) -> dict[str, Script]:
        """The controller of each switch that has one."""
        found = (
            (name, controller(settings, self.programs.get(name), self.problems))
            for name, settings in self._switch_settings[0].items()
        )
        return {name: script for name, script in found if script is not None}

    @cached_property
    def launches(self) -> list[Launch]:
        """The lab's programs with their nodes."""
        launches = Launches(self.index, self.lab.duration, self.problems)
        return [launches.of(number, program) for number, program in enumerate(self.lab.programs)]

    @cached_property
    def engines(self) -> dict[str, P4Engine]:
        """The P4 engine in containers of each switch for which the file names one."""
        settings = self._switch_settings[0]
        found: Given = {name: settings[name]["engine"][0] for name in self.programs if "engine" in settings[name]}
        return found

    @cached_property
    def switch_queues(self) -> dict[LinkEnd, QueueSpec]:
        """The queue of each link end at a switch; at a switch that runs a program, the queue has the program's
        parameters.
        """
        switches = self._switch_settings[0]

        def settings(end: LinkEnd, node: str) -> Layer:
            given, program = self.given_at(end, node), self.programs.get(node)
            return (
                given
                if program is None
                else queue_under_program(program, given, "program" in switches[node], self.problems)
            )

        return self._queues("switch", settings)

    def given_at(self, end: LinkEnd, node: str) -> Layer:
        """Return the file's settings for the queue of a switch's link end."""
        return merge(self._of_ports[node], self._switch_settings[1].get(end, {}))

    @cached_property
    def _of_ports(self) -> dict[str, Layer]:
        switches = self._switch_settings[0]
        return {name: {k: v for k, v in given.items() if k not in SWITCH_FIELDS} for name, given in switches.items()}

    def queue_spec(self, given: Layer, frame_bytes: int) -> QueueSpec | None:
        """Return the queue of these settings for frames of at most `frame_bytes`; None if they are invalid."""
        return self._specs.get(given, frame_bytes)

    def program_ports(self, name: str) -> list[LinkEnd]:
        """Return the link ends of a switch that runs a program, by port number, in the network's order."""
        return [(i, "b" if side else "a") for i, side in self.routing.outs[self.index[name]]]

    @cached_property
    def recirculation(self) -> dict[str, RecirculationPort]:
        """The recirculation port of each switch that runs a program and has one."""
        found = {}
        for name, program in self.programs.items():
            ends = self.program_ports(name)
            values = [self.switch_queues[end].values for end in ends if end in self.switch_queues]
            fastest = max((getattr(self.links[i], side).rate_bps for i, side in ends), default=1)
            default = recirculation_port(program.scheme or "", values, fastest)
            recirculation = recirculation_of(self._switch_settings[0][name], default, len(ends), program, self.problems)
            if recirculation is not None:
                found[name] = recirculation
        return found

    @cached_property
    def _signal_formats(self) -> set[tuple[str, int]]:
        """Units and numbers of bits in which hosts request occupancy."""
        unquantized = ("rtt", "ind", "vector")
        return {(spec.unit, spec.bits) for spec in self.controllers.values() if spec.signal not in unquantized}

    @cached_property
    def scheme_entries(self) -> dict[str, list[Entry]]:
        """Table entries that carry the scheme's parameters, per switch."""
        found: dict[str, list[Entry]] = {}
        for name, program in self.programs.items():
            ports = [end for end in self.program_ports(name) if end in self.switch_queues]
            values = [self.switch_queues[end].values for end in ports]
            entries = found[name] = []
            scheme = program.scheme or ""
            try:
                entries.extend(switch_entries(scheme, values, self.recirculation.get(name)))
                for number, end in enumerate(ports):
                    link = self.links[end[0]]
                    port = Port(number, getattr(link, end[1]).rate_bps, link.mtu + ETHERNET_BYTES)
                    entries.extend(port_entries(scheme, port, values[number], self._signal_formats))
                check_sizes(program, entries)
            except SettingError as error:
                self._refuse_setting(name, ports, error)
        return found

    @cached_property
    def user_entries(self) -> dict[str, UserEntries]:
        """Entries that the file gives for user-supplied programs, per switch."""
        found = {}
        for name, program in self.programs.items():
            given = self._switch_settings[0][name]
            if program.scheme is None and any(field in given for field in USER_FIELDS):
                outs = self.routing.outs[self.index[name]]
                names = list(self.network.nodes)
                ports = {names[self.routing.peer(out)]: number for number, out in reversed(list(enumerate(outs)))}
                recirculation = self.recirculation.get(name)
                numbers = [*range(len(outs)), *([recirculation.port] if recirculation is not None else [])]
                taken = FORWARDING if forwards(program) else ()
                found[name] = EntryReader(program.info, ports, numbers, self.problems).read_user_entries(given, taken)
        return found

    def _refuse_setting(self, switch: str, ends: list[LinkEnd], error: SettingError) -> None:
        """Report an error at the switch's or port's field with the parameter, otherwise at the field that selects the
        program.
        """
        settings, ports = self._switch_settings
        given = [settings[switch], *(ports[end] for end in ends if end in ports)]
        places = [
            settings[name][1] for settings in given for name in (error.parameter, "program", "kind") if name in settings
        ]
        self.problems.error(next(iter(places), ("switches",)), f"`{error.parameter}`: {error}")

    def _switch_ports(self, path: FieldPath, key: str) -> list[LinkEnd]:
        ends = self._directions(path, key)
        for end in ends:
            node = self._node(end)
            if self.network.nodes[node] == "host":
                self.problems.error(path, f"`{node}` is a host; its queue is `queue` under `hosts`", at_key=True)
                return []
        return ends

    @cached_property
    def host_queues(self) -> dict[LinkEnd, QueueSpec]:
        """The queue of each link end at a host."""
        return self._queues("host", lambda _, node: self.hosts[node]["queue"])

    @cached_property
    def queues(self) -> dict[LinkEnd, QueueSpec]:
        """The queue of each link end."""
        return self.switch_queues | self.host_queues

    def _queues(self, kind: str, settings: Callable[[LinkEnd, str], Layer]) -> dict[LinkEnd, QueueSpec]:
        found: dict[LinkEnd, QueueSpec] = {}
        for end, node in self.ends(kind):
            spec = self._specs.get(settings(end, node), self.links[end[0]].mtu + ETHERNET_BYTES)
            if spec is not None:
                found[end] = spec
        return found

    def ends(self, kind: str) -> Iterator[tuple[LinkEnd, str]]:
        """The link ends at switches, or at hosts, each with its node."""
        sides: tuple[Side, Side] = ("a", "b")
        for i in range(len(self.network.links)):
            for side in sides:
                node = self._node((i, side))
                if self.network.nodes[node] == kind:
                    yield (i, side), node

    def _node(self, end: LinkEnd) -> str:
        node: str = getattr(self.network.links[end[0]], end[1])
        return node

    def _named(self, path: FieldPath, key: str, names: Mapping[str, object], kind: str) -> list[str]:
        if key == "default":
            if not names:
                self.problems.error(path, f"the lab has no {kind}: expected no settings of one", at_key=True)
            return list(names)
        chosen = self.problems.select(path, key, names)
        if not chosen:
            self.problems.error(path, f"no {kind} is called `{key}`{nearest(key, names)}", at_key=True)
        return chosen

    @cached_property
    def hosts(self) -> dict[str, Given]:
        """The settings that the file gives for each host, and always `sysctls`, `queue` and `controller` (as layers).

        `kernel_at` is the field that sets the kernel.
        """
        names = self.network.hosts
        nothing: Given = {"sysctls": {}, "queue": host_queue(), "controller": {}}
        result: dict[str, Given] = {name: dict(nothing) for name in names}
        winners: dict[str, dict[str, FieldPath]] = {name: {} for name in names}
        for key in _merged(self.lab.hosts):
            settings = self.lab.hosts[key]
            path: FieldPath = ("hosts", key)
            given: Given = settings.given()
            sysctls, queue = given.pop("sysctls", {}), given.pop("queue", None)
            controller = given.pop("controller", None)
            queue_layer: Layer = {}
            controller_layer: Layer = {}
            if queue is not None:
                check_names(queue, (*path, "queue"), self.problems)
                queue_layer = layer(queue.given(), (*path, "queue"))
            if controller is not None:
                check_controller(controller, (*path, "controller"), self.problems)
                controller_layer = layer(controller.given(), (*path, "controller"))
            if "kernel" in given:
                given["kernel_at"] = (*path, "kernel")
            paths = {field: (*path, field) for field in given} | {name: (*path, "sysctls", name) for name in sysctls}
            for name in self._named(path, key, result, "host"):
                host = result[name]
                host |= given
                winners[name] |= paths
                if sysctls:
                    host["sysctls"] = host["sysctls"] | sysctls
                if queue_layer:
                    host["queue"] = merge(host["queue"], queue_layer)
                if controller_layer:
                    host["controller"] = host["controller"] | controller_layer
        won = {(field, path) for paths in winners.values() for field, path in paths.items()}
        for field_path in {path for field, path in won if field != "reflect" or self.has_rate}:
            self.problems.read(field_path)
        self._check_bursts(result)
        return result

    def _check_bursts(self, hosts: dict[str, Given]) -> None:
        """Check the queues of hosts that send bursts: the segments of a burst that is being sent count in the qdisc's
        length, which distorts the decisions of schemes.
        """
        for name, settings in hosts.items():
            queue: Layer = settings["queue"]
            scheme, _ = queue.get("scheme", (None, ()))
            size, path = queue.get("buffer", (HOST_BUFFER, ("hosts",)))
            long = isinstance(size, Amount) and size.unit == "packets" and size.value >= MIN_BEHIND_BURSTS
            if settings.get("offload") == "tso" and not (scheme == default_scheme() and long):
                _, at = queue.get("qdisc", queue.get("scheme", (None, path)))
                at = path if scheme == default_scheme() else at
                expected = f"expected {default_scheme()} of at least {MIN_BEHIND_BURSTS} packets"
                text = f"{name} has `offload: tso`: {expected}"
                self.problems.error(at, text)

    @cached_property
    def controllers(self) -> dict[str, ControllerSpec]:
        """The controller of each host that has one."""
        found = {}
        for name, settings in self.hosts.items():
            out = self.routing.primary(self.index[name])
            state = None if out is None else self.links[out[0]]
            end = None if state is None or out is None else (state.b if out[1] else state.a)
            packets_bps = None if end is None else rate_of_packets(end.rate_bps, end.overhead_bytes, self.smallest_mtu)
            spec = self._controllers.get(settings["controller"], packets_bps)
            if spec is not None:
                lengths = () if spec.compact is None else self.signal_buffers(spec)
                found[name] = replace(spec, compact=max(lengths)) if lengths else spec
        return found

    @cached_property
    def congestion_bytes(self) -> int:
        """The longest congestion header of the lab's controllers, for which each packet of `rate` has room."""
        return max((spec.header_bytes for spec in self.controllers.values()), default=CONGESTION_BYTES)

    def signal_buffers(self, spec: ControllerSpec) -> set[int]:
        """Lengths of the buffers, in the unit of a signal, of queues that provide it; none for `rtt` and `ind`."""
        if spec.signal in ("rtt", "ind"):
            return set()
        if spec.unit not in self._signal_buffers:
            self._signal_buffers[spec.unit] = {
                buffer_length(queue, spec.unit, self.links[end[0]].mtu + ETHERNET_BYTES)
                for end, queue in self.queues.items()
                if queue.scheme in registry() and "signal" in registry()[queue.scheme].provides
            }
        return self._signal_buffers[spec.unit]


def _merged(entries: Mapping[str, object]) -> list[str]:
    """Return the keys under `switches` or `hosts` in the order in which their settings are merged."""
    return sorted(entries, key=rank)
