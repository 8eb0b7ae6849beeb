# SPDX-License-Identifier: Apache-2.0
"""Which settings hold where: defaults, globs and names put together for every link end, queue and host."""

from collections.abc import Iterator
from functools import cached_property
from typing import Any

from qbed.errors import nearest
from qbed.lab.model import Lab
from qbed.language.problems import Problems
from qbed.language.source import FieldPath
from qbed.language.units import Amount
from qbed.network import links
from qbed.network.links import LinkEnd, LinkState, Side
from qbed.network.queues import Origin, QueueSpec, Specs, check_names, merge, origin, rank
from qbed.plan.model import ETHERNET_BYTES

_HOST_QUEUE: Origin = {"scheme": ("droptail", ("hosts",)), "buffer": (Amount(1000, "packets"), ("hosts",))}


class Resolver:
    """Computes the settings of everything in a lab; what is wrong goes to `problems`."""

    def __init__(self, lab: Lab, problems: Problems | None = None) -> None:
        self.lab = lab
        self.network = lab.network
        self.problems = problems or Problems(lab.source)
        self._specs = Specs(self.problems)

    @cached_property
    def links(self) -> list[LinkState]:
        """The settings of every link, in the network's order."""
        return links.resolve_links(self.network, self.lab.links, self.problems)

    def directions(self, path: FieldPath, key: str) -> list[LinkEnd]:
        """The link ends that `x>y` means."""
        return links.directions(self.network, self.problems, path, key)

    @cached_property
    def switch_queues(self) -> dict[LinkEnd, QueueSpec]:
        """The queue of every link end at a switch."""
        switches: dict[str, Origin] = {name: {} for name, kind in self.network.nodes.items() if kind == "switch"}
        ports: dict[LinkEnd, Origin] = {}
        for key, settings in sorted(self.lab.switches.items(), key=lambda item: rank(item[0])):
            path: FieldPath = ("switches", key)
            check_names(settings, path, self.problems)
            given = origin(settings, path)
            if ">" in key:
                for end in self._switch_ports(path, key):
                    ports[end] = merge(ports.get(end, {}), given)
                continue
            for name in self._named(path, key, list(switches), "switch"):
                switches[name] = merge(switches[name], given)
        return self._queues("switch", lambda end, node: merge(switches[node], ports.get(end, {})))

    def _switch_ports(self, path: FieldPath, key: str) -> list[LinkEnd]:
        ends = self.directions(path, key)
        for end in ends:
            node = self._node(end)
            if self.network.nodes[node] == "host":
                self.problems.error(path, f"`{node}` is a host; its queue is `queue` under `hosts`", at_key=True)
                return []
        return ends

    @cached_property
    def host_queues(self) -> dict[LinkEnd, QueueSpec]:
        """The queue of every link end at a host."""
        return self._queues("host", lambda _, node: self.hosts[node]["queue"])

    def _queues(self, kind: str, settings: Any) -> dict[LinkEnd, QueueSpec]:
        found: dict[LinkEnd, QueueSpec] = {}
        for end, node in self._ends(kind):
            spec = self._specs.get(settings(end, node), self.links[end[0]].mtu + ETHERNET_BYTES)
            if spec is not None:
                found[end] = spec
        return found

    def _ends(self, kind: str) -> Iterator[tuple[LinkEnd, str]]:
        sides: tuple[Side, Side] = ("a", "b")
        for i in range(len(self.network.links)):
            for side in sides:
                node = self._node((i, side))
                if self.network.nodes[node] == kind:
                    yield (i, side), node

    def _node(self, end: LinkEnd) -> str:
        node: str = getattr(self.network.links[end[0]], end[1])
        return node

    def _named(self, path: FieldPath, key: str, names: list[str], kind: str) -> list[str]:
        if key == "default":
            return names
        chosen = self.problems.select(path, key, names)
        if not chosen:
            self.problems.error(path, f"no {kind} is called `{key}`{nearest(key, names)}", at_key=True)
        return chosen

    @cached_property
    def hosts(self) -> dict[str, dict[str, Any]]:
        """The settings of every host that the file gives, and always `sysctls` and `queue` (an Origin).

        `kernel_at`: the field that gives the kernel.
        """
        names = self.network.hosts
        result: dict[str, dict[str, Any]] = {name: {"sysctls": {}, "queue": _HOST_QUEUE} for name in names}
        for key, settings in sorted(self.lab.hosts.items(), key=lambda item: rank(item[0])):
            path: FieldPath = ("hosts", key)
            given = settings.given()
            sysctls, queue = given.pop("sysctls", {}), given.pop("queue", None)
            queue_origin: Origin = {}
            if queue is not None:
                check_names(queue, (*path, "queue"), self.problems)
                queue_origin = origin(queue, (*path, "queue"))
            if "kernel" in given:
                given["kernel_at"] = (*path, "kernel")
            for name in self._named(path, key, names, "host"):
                result[name] |= given
                result[name]["sysctls"] = result[name]["sysctls"] | sysctls
                result[name]["queue"] = merge(result[name]["queue"], queue_origin)
        return result
