# SPDX-License-Identifier: Apache-2.0
"""Which settings hold where: defaults, layers, globs and names put together for every link end, queue and host.

The more specific kind of key wins: default < layer < the topology's own settings < glob < name < glob of one direction < one
direction. Within a kind, the later entry wins. Settings that match nothing are errors.
"""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from qbed.errors import nearest
from qbed.lab import Lab
from qbed.schemes import Scheme, registry
from qbed.selectors import is_glob, select
from qbed.settings import LinkFields, QueueSettings
from qbed.source import FieldPath
from qbed.units import Amount, format_rate

ETHERNET_BYTES = 14
CUSTOM = "custom"
_HOST_QUEUE = {"scheme": "droptail", "buffer": Amount(1000, "packets")}


@dataclass
class Problems:
    """What is wrong (errors) or suspicious (warnings) in a lab."""

    lab: Lab
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def error(self, path: FieldPath, text: str, *, at_key: bool = False) -> None:
        self.errors.append(self.lab.source.message(path, text, at_key=at_key))

    def warn(self, path: FieldPath, text: str) -> None:
        message = self.lab.source.message(path, text)
        if message not in self.warnings:
            self.warnings.append(message)


@dataclass
class EndSettings:
    """One end of a link: its transmitter."""

    rate_bps: int = 0
    delay_ns: int = 0
    overhead_bytes: int = 0
    loss: float = 0.0


@dataclass
class LinkState:
    """A link with both ends."""

    a: EndSettings = field(default_factory=EndSettings)
    b: EndSettings = field(default_factory=EndSettings)
    mtu: int = 1500


@dataclass(frozen=True)
class QueueSpec:
    """A queue: a scheme with its parameters in base units, or a discipline in tc's words."""

    scheme: str
    values: dict[str, Any]
    tc: tuple[str, ...] | None = None

    def buffer_bytes(self, frame_bytes: int) -> int:
        """The longest queue; of a discipline in tc's words an assumption (1000 frames)."""
        buffer = self.values.get("buffer", Amount(1000, "packets"))
        return int(buffer.in_bytes(frame_bytes))


Origin = dict[str, tuple[Any, FieldPath]]
"""Settings with the path of the entry that gave each."""


class Resolver:
    """Computes the settings of everything in a lab; what is wrong goes to `problems`."""

    def __init__(self, lab: Lab, problems: Problems | None = None) -> None:
        self.lab = lab
        self.network = lab.network
        self.problems = problems or Problems(lab)
        self._specs: dict[Any, QueueSpec | None] = {}

    # --- links -------------------------------------------------------------------------------------------------

    @cached_property
    def links(self) -> list[LinkState]:
        """The settings of every link, in the network's order."""
        states = [LinkState() for _ in self.network.links]
        inline = [(1.5, 0, (), {}, i) for i, link in enumerate(self.network.links) if link.settings]
        entries: list[tuple[float, int, FieldPath, Any, Any]] = [*inline]
        for order, (key, settings) in enumerate(self.lab.links.items()):
            rank, targets = self._link_targets(key)
            entries.append((rank, order, ("links", key), settings, targets))
        for rank, _, path, settings, targets in sorted(entries, key=lambda entry: entry[:2]):
            if rank == 1.5:
                self._apply_inline(states, targets)
                continue
            self._apply(states, settings.given(), targets, path)
            for node, own in settings.ends.items():
                self._apply_end(states, node, own, targets, (*path, "ends", node))
        for link, state in zip(self.network.links, states, strict=True):
            for node, end in ((link.a, state.a), (link.b, state.b)):
                if end.rate_bps == 0:
                    self.problems.error(("links",), f"the link {link.name} has no rate at {node}; expected one under `links.default.rate`")
                    return states
        return states

    def _link_targets(self, key: str) -> tuple[float, list[tuple[int, str]]]:
        """The rank of a key under `links` and what it means: (link index, "a", "b" or "ab")."""
        links = self.network.links
        if key == "default":
            return 0, [(i, "ab") for i in range(len(links))]
        if ">" in key:
            exact = not is_glob(key) and ".." not in key
            return (5 if exact else 4), self.directions(("links", key), key)
        if any(link.layer == key for link in links):
            return 1, [(i, "ab") for i, link in enumerate(links) if link.layer == key]
        chosen = set(self._selected(("links", key), key, [link.name for link in links]))
        if not chosen:
            names = {link.name for link in links} | {link.layer for link in links} | {"default"}
            self.problems.error(("links", key), f"no link or layer is called `{key}`{nearest(key, names)}", at_key=True)
        return (2 if is_glob(key) else 3), [(i, "ab") for i, link in enumerate(links) if link.name in chosen]

    def directions(self, path: FieldPath, key: str) -> list[tuple[int, str]]:
        """The link ends that `x>y` means: at x, towards y; both may be globs or ranges."""
        left, _, right = key.partition(">")
        nodes = list(self.network.nodes)
        near, far = (set(self._selected(path, part, nodes)) for part in (left, right))
        found = [
            (i, side)
            for i, link in enumerate(self.network.links)
            for side, here, there in (("a", link.a, link.b), ("b", link.b, link.a))
            if here in near and there in far
        ]
        if not found:
            names = {f"{link.a}>{link.b}" for link in self.network.links} | {
                f"{link.b}>{link.a}" for link in self.network.links
            }
            self.problems.error(path, f"no link leads `{key}`{nearest(key, names)}", at_key=True)
        return found

    def _selected(self, path: FieldPath, pattern: str, names: list[str]) -> list[str]:
        try:
            return select(pattern, names)
        except ValueError as error:
            self.problems.error(path, str(error), at_key=True)
            return []

    def _apply(
        self, states: list[LinkState], given: dict[str, Any], targets: list[tuple[int, str]], path: FieldPath
    ) -> None:
        for name in ("rate", "delay"):
            values = given.get(name)
            if values and targets and (len(values) > len(targets) or len(targets) % len(values)):
                self.problems.error(
                    (*path, name), f"a list of {len(values)} does not spread evenly over the {len(targets)} links it names"
                )
                return
            if name == "rate" and values and 0 in values:
                self.problems.error((*path, name), f"expected more than {format_rate(0)}, got `0`")
        for position, (index, sides) in enumerate(targets):
            for side in sides:
                _set_end(getattr(states[index], side), given, position, len(targets))
            if "mtu" in given:
                if not 68 <= given["mtu"] <= 65535:
                    self.problems.error((*path, "mtu"), f"expected 68 to 65535 bytes, got `{given['mtu']} B`")
                    return
                states[index].mtu = given["mtu"]

    def _apply_end(
        self, states: list[LinkState], node: str, own: LinkFields, targets: list[tuple[int, str]], path: FieldPath
    ) -> None:
        links = self.network.links
        nodes = set(self._selected(path, node, list(self.network.nodes)))
        ends = [
            (i, side) for i, sides in targets for side in sides if (links[i].a if side == "a" else links[i].b) in nodes
        ]
        if not ends and targets:
            names = {name for i, _ in targets for name in (links[i].a, links[i].b)}
            self.problems.error(path, f"no such end of {path[1]}{nearest(node, names)}", at_key=True)
        self._apply(states, own.given(), ends, path)

    def _apply_inline(self, states: list[LinkState], index: int) -> None:
        """The settings that an explicit link gives itself; a list spreads over the links of its entry."""
        settings = self.network.links[index].settings
        group = [i for i, link in enumerate(self.network.links) if link.settings is settings]
        if group[0] == index:
            entry = ("topology", "explicit", "links", settings.get("entry", 0))
            self._apply(states, settings, [(i, "ab") for i in group], entry)

    # --- queues ------------------------------------------------------------------------------------------------

    @cached_property
    def switch_queues(self) -> dict[tuple[int, str], QueueSpec]:
        """The queue of every link end at a switch: (link index, "a" or "b") to its specification."""
        per_switch: dict[str, Origin] = {name: {} for name, kind in self.network.nodes.items() if kind == "switch"}
        per_port: dict[tuple[int, str], list[Origin]] = {}
        ranked = sorted(self.lab.switches.items(), key=lambda item: _switch_rank(item[0]))
        for key, settings in ranked:
            path: FieldPath = ("switches", key)
            origin = {name: (value, (*path, name)) for name, value in settings.given().items()}
            self._check_names(settings, path)
            if ">" in key:
                for end in self.directions(path, key):
                    if self.network.nodes[self._node(end)] != "switch":
                        self.problems.error(path, f"{self._node(end)} is a host; its queue is `hosts.{self._node(end)}.queue`")
                        break
                    per_port.setdefault(end, []).append(origin)
                continue
            names = list(per_switch) if key == "default" else self._selected(path, key, list(per_switch))
            if not names and key != "default":
                self.problems.error(path, f"no switch is called `{key}`{nearest(key, per_switch)}", at_key=True)
            for name in names:
                _merge_queue(per_switch[name], origin)
        queues: dict[tuple[int, str], QueueSpec] = {}
        for end, node in self._ends("switch"):
            merged = per_switch[node]
            if end in per_port:
                merged = dict(merged)
                for origin in per_port[end]:
                    _merge_queue(merged, origin)
            spec = self._spec(merged, self.links[end[0]].mtu + ETHERNET_BYTES, ("switches",))
            if spec is not None:
                queues[end] = spec
        return queues

    @cached_property
    def host_queues(self) -> dict[tuple[int, str], QueueSpec]:
        """The queue of every link end at a host."""
        queues: dict[tuple[int, str], QueueSpec] = {}
        for end, node in self._ends("host"):
            spec = self._spec(self.hosts[node]["queue"], self.links[end[0]].mtu + ETHERNET_BYTES, ("hosts",))
            if spec is not None:
                queues[end] = spec
        return queues

    def _node(self, end: tuple[int, str]) -> str:
        link = self.network.links[end[0]]
        return link.a if end[1] == "a" else link.b

    def _ends(self, kind: str) -> Iterator[tuple[tuple[int, str], str]]:
        nodes = self.network.nodes
        for i, link in enumerate(self.network.links):
            for side, node in (("a", link.a), ("b", link.b)):
                if nodes[node] == kind:
                    yield (i, side), node

    def _check_names(self, settings: QueueSettings, path: FieldPath) -> None:
        known = {p.name for scheme in registry().values() for p in scheme.parameters}
        for name in settings.model_extra or {}:
            if name not in known:
                fields = known | set(type(settings).model_fields)
                self.problems.error((*path, name), f"unknown field{nearest(name, fields)}", at_key=True)
        if settings.scheme is not None and settings.scheme not in registry():
            text = f"no scheme is called `{settings.scheme}`{nearest(settings.scheme, registry())}"
            self.problems.error((*path, "scheme"), text)
        if settings.scheme is not None and settings.qdisc is not None:
            self.problems.error((*path, "qdisc"), "expected `scheme` or `qdisc`, not both")

    def _spec(self, origin: Origin, frame_bytes: int, fallback: FieldPath) -> QueueSpec | None:
        key = (tuple(sorted((name, repr(value)) for name, (value, _) in origin.items())), frame_bytes)
        if key not in self._specs:
            self._specs[key] = self._make_spec(origin, frame_bytes, fallback)
        return self._specs[key]

    def _make_spec(self, origin: Origin, frame_bytes: int, fallback: FieldPath) -> QueueSpec | None:
        if "qdisc" in origin:
            text, path = origin["qdisc"]
            try:
                words = tuple(shlex.split(text))
            except ValueError as error:
                self.problems.error(path, f"expected tc's words such as `fq_codel limit 100`: {error}")
                return None
            if not words:
                self.problems.error(path, "expected tc's words such as `fq_codel limit 100`, got nothing")
                return None
            return QueueSpec(CUSTOM, {}, words)
        name = origin["scheme"][0] if "scheme" in origin else "droptail"
        scheme = registry().get(name)
        if scheme is None:
            return None
        values = self._parameters(scheme, origin)
        if values is None:
            return None
        buffer: Amount = values["buffer"]
        path = origin["buffer"][1] if "buffer" in origin else fallback
        if buffer.value < (frame_bytes if buffer.unit == "bytes" else 1):
            self.problems.error(path, f"expected room for one frame of {frame_bytes} bytes at least, got `{buffer}`")
        for parameter, value in values.items():
            if parameter != "buffer" and isinstance(value, Amount) and parameter in origin:
                if value.in_bytes(frame_bytes) > buffer.in_bytes(frame_bytes):
                    self.problems.warn(origin[parameter][1], f"`{value}` is more than the buffer of `{buffer}`: never reached")
        return QueueSpec(name, values)

    def _parameters(self, scheme: Scheme, origin: Origin) -> dict[str, Any] | None:
        """The scheme's parameters in base units, defaults filled in; None if some are wrong."""
        values = scheme.defaults()
        complete = True
        for name, (value, path) in origin.items():
            if name in ("scheme", "qdisc"):
                continue
            parameter = scheme.by_name.get(name)
            if parameter is None:
                others = [s.by_name[name] for s in registry().values() if name in s.by_name]
                if not others:
                    complete = False
                    continue
                self.problems.warn(path, f"the scheme `{scheme.name}` has no parameter `{name}`: not used")
            try:
                parsed = (parameter or others[0]).parse(value)
            except ValueError as error:
                self.problems.error(path, str(error))
                complete = False
                continue
            if parameter is not None:
                values[name] = parsed
        return values if complete else None

    # --- hosts -------------------------------------------------------------------------------------------------

    @cached_property
    def hosts(self) -> dict[str, dict[str, Any]]:
        """The settings of every host; `queue` as an Origin."""
        names = self.network.hosts
        result: dict[str, dict[str, Any]] = {}
        for name in names:
            result[name] = {"sysctls": {}, "queue": {k: (v, ("hosts",)) for k, v in _HOST_QUEUE.items()}}
        for key, settings in sorted(self.lab.hosts.items(), key=lambda item: _switch_rank(item[0])):
            path: FieldPath = ("hosts", key)
            chosen = names if key == "default" else self._selected(path, key, names)
            if not chosen and key != "default":
                self.problems.error(path, f"no host is called `{key}`{nearest(key, names)}", at_key=True)
            given = settings.given()
            sysctls, queue = given.pop("sysctls", {}), given.pop("queue", None)
            origin: Origin = {}
            if queue is not None:
                self._check_names(queue, (*path, "queue"))
                origin = {name: (value, (*path, "queue", name)) for name, value in queue.given().items()}
            for name in chosen:
                result[name].update(given)
                result[name]["sysctls"].update(sysctls)
                _merge_queue(result[name]["queue"], origin)
        return result


def _set_end(end: EndSettings, given: dict[str, Any], position: int, count: int) -> None:
    """The fields for one end; lists spread over `count` links in equal blocks."""
    if "rate" in given:
        end.rate_bps = given["rate"][position * len(given["rate"]) // count]
    if "delay" in given:
        end.delay_ns = given["delay"][position * len(given["delay"]) // count]
    end.overhead_bytes = given.get("overhead", end.overhead_bytes)
    end.loss = given.get("loss", end.loss)


def _merge_queue(merged: Origin, origin: Origin) -> None:
    """A more specific entry over a more general one; `scheme` and `qdisc` replace each other."""
    for name, other in (("scheme", "qdisc"), ("qdisc", "scheme")):
        if name in origin:
            merged.pop(other, None)
    merged.update(origin)


def _switch_rank(key: str) -> int:
    """default < glob or range < name < glob of ports < port."""
    if key == "default":
        return 0
    wide = is_glob(key) or ".." in key
    return (3 if wide else 4) if ">" in key else (1 if wide else 2)
