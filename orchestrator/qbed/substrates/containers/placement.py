# SPDX-License-Identifier: Apache-2.0
"""Which kernel each host of a lab in containers runs on: the machine's own, or the lab's (`qbed`), as switches do.

A switch that BMv2 runs is on the machine's own: what a link needs there is in the lab's kernel at its other end.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from qbed.base.errors import LabError
from qbed.config.reach import trusted
from qbed.plan.model import Plan
from qbed.plan.sysctls import RTO_MIN, usual
from qbed.plan.workload import Exchanges
from qbed.substrates.containers import bmv2
from qbed.substrates.containers.beside import host_images

SYSCTLS = Path("/proc/sys")
MAX_NAMES = 4


@dataclass(frozen=True)
class Machine:
    """The features of the machine's kernel. `sysctls` is its /proc/sys."""

    sysctls: Path = SYSCTLS

    @cached_property
    def congestion_controls(self) -> frozenset[str]:
        try:
            text = (self.sysctls / "net/ipv4/tcp_available_congestion_control").read_text()
        except OSError:
            return frozenset()
        return frozenset(text.split())

    def has(self, sysctl: str) -> bool:
        return (self.sysctls / sysctl).exists()


@dataclass(frozen=True)
class Placement:
    """The nodes on the machine's kernel, by index; `notes` and `warnings` are for the user, a sentence each."""

    host_kernel: tuple[int, ...]
    dilation: int
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def place(plan: Plan, machine: Machine, dilation: int = 1) -> Placement:
    """Put every host on a kernel.

    Raise `LabError` if the lab requests the machine's kernel and that cannot do it, or if it has a switch's controller:
    in a container, the controller would be root on this machine.
    """
    if controlled := [node.name for node in plan.nodes if node.pipeline is not None and node.programs]:
        text = f"{shorten(controlled)}: a switch's controller runs in virtual time only"
        raise LabError([f"lab {plan.lab}: {text}; expected `controller: off`"])
    if plan.launches and not trusted():
        text = "its programs would be root on this machine, in containers; only with --trust are they run"
        raise LabError([f"lab {plan.lab}: {text}"])
    if images := host_images(plan):
        if not trusted():
            text = f"{shorten(images)}: an image would be root on this machine; only with --trust is it run"
            raise LabError([f"lab {plan.lab}: {text}"])
        if other := [node.name for node in plan.nodes if node.name in images and node.kernel == "qbed"]:
            text = f"{shorten(other)}: an image runs on the machine's kernel; expected `kernel: host` or `auto`"
            raise LabError([f"lab {plan.lab}: {text}"])
    if offloading := [node.name for node in plan.nodes if node.offload is not None]:
        text = f"{shorten(offloading)}: in containers every packet is a frame; offloads are of virtual time"
        raise LabError([f"lab {plan.lab}: {text}; expected `offload: off`"])
    for node in (plan.nodes[index] for index in bmv2.switches(plan)):
        if node.pipeline is not None and (lack := bmv2.unsupported(node.pipeline)) is not None:
            raise LabError([f"lab {plan.lab}: {node.name}: BMv2 {lack}; expected `engine: p4switch`"])
    return _Placer(plan, machine, dilation).place()


class _Placer:
    def __init__(self, plan: Plan, machine: Machine, dilation: int) -> None:
        self._plan, self._machine, self._dilation = plan, machine, dilation
        self._bmv2 = bmv2.switches(plan)
        hosts = ((i, node) for i, node in enumerate(plan.nodes) if node.kind == "host")
        self._requested = {i: node.kernel if node.image is None else "host" for i, node in hosts}
        self._controls = self._congestion_controls()
        self._rate = self._by_rate()
        self._errors: list[str] = []

    def place(self) -> Placement:
        on_host = list(self._bmv2)
        why_not: dict[str, list[str]] = {}
        for node, requested in self._requested.items():
            lacks = self._unsupported(node)
            if requested == "host":
                if lacks is not None:
                    self._refuse(node, lacks)
                on_host.append(node)
            elif requested is None:
                reason = f"at dilation {self._dilation}" if self._dilation > 1 else lacks or self._crowded(node)
                if reason is None:
                    on_host.append(node)
                else:
                    why_not.setdefault(reason, []).append(self._name(node))
        self._check_links(set(on_host))
        if self._errors:
            raise LabError(self._errors)
        notes = [f"{shorten(names)} on the qbed kernel: {reason}" for reason, names in why_not.items()]
        hosts = [node for node in on_host if node in self._requested]
        return Placement(tuple(sorted(on_host)), self._dilation, tuple(notes), tuple(self._warnings(hosts)))

    def _name(self, node: int) -> str:
        return self._plan.nodes[node].name

    def _congestion_controls(self) -> dict[int, set[str]]:
        """Congestion controls by host: of its settings, its changes and the workloads that it sends in."""
        found = {i: {self._plan.nodes[i].sysctls["net/ipv4/tcp_congestion_control"]} for i in self._requested}
        for change in self._plan.changes:
            if change.node is not None:
                found[change.node.node].add(change.node.congestion_control)
        for workload in self._plan.workloads:
            if workload.congestion_control is None:
                continue
            senders = {a for a, _ in workload.pairs or ()} | set(getattr(workload, "sources", None) or ())
            if isinstance(workload, Exchanges):  # servers send, too
                senders |= {b for _, b in workload.pairs or ()} | set(workload.destinations or ())
            for node in senders:
                found[node].add(workload.congestion_control)
        return found

    def _by_rate(self) -> set[int]:
        """The hosts at an end of the transport `rate`, which is a module of the lab's kernel."""
        found: set[int] = set()
        for workload in self._plan.workloads:
            if workload.transport != "rate":
                continue
            found.update(node for pair in workload.pairs or () for node in pair)
            for ends in ("sources", "destinations"):
                found.update(getattr(workload, ends, None) or ())
        return found

    def _unsupported(self, node: int) -> str | None:
        """The feature that this host needs and the machine's kernel lacks, or None."""
        if node in self._rate:
            return "the machine's kernel has no transport `rate`"
        missing = sorted(self._controls[node] - self._machine.congestion_controls)
        if missing:
            return f"the machine's kernel has no {', '.join(missing)}"
        if self._plan.parameters:
            return f"the machine's kernel keeps its own {', '.join(self._plan.parameters)}"
        routes = self._plan.nodes[node].routes
        for sysctl, value in self._plan.nodes[node].sysctls.items():
            # Route metrics have a minimum RTO in whole milliseconds.
            by_route = sysctl == RTO_MIN and all(f"{r.metrics.rto_min_ms}000" == value for r in routes)
            if not (usual(sysctl) or by_route or self._machine.has(sysctl)):
                return f"the machine's kernel has no {sysctl}"
        return None

    def _crowded(self, node: int) -> str | None:
        """A reason if a neighbour would be on the machine's kernel too: none of them could hold the link's queue."""
        peers = list(self._peers(node))
        if direct := [self._name(peer) for peer in peers if peer in self._requested]:
            return f"the link to {shorten(direct)}, a host too, needs it"
        direct = [self._name(peer) for peer in peers if peer in self._bmv2]
        return f"the link to {shorten(direct)}, which BMv2 runs, needs it" if direct else None

    def _peers(self, node: int) -> Iterable[int]:
        for link in self._plan.links:
            if node in (link.a.node, link.b.node):
                yield link.b.node if link.a.node == node else link.a.node

    def _refuse(self, node: int, lacks: str) -> None:
        remedy = "expected `kernel: qbed` or `auto`"
        if node not in self._rate:
            remedy += ", or load the module (`modprobe tcp_NAME`)"
        self._errors.append(self._message(node, f"host {self._name(node)}: {lacks}; {remedy}"))

    def _check_links(self, on_host: set[int]) -> None:
        for link in self._plan.links:
            if link.a.node in on_host and link.b.node in on_host:
                programmed = [node for node in (link.a.node, link.b.node) if node in self._bmv2]
                what = ("two hosts on", "a host and a switch of BMv2, both on", "two switches of BMv2, both on")
                remedy = "`engine: p4switch`" if len(programmed) == 2 else "`kernel: qbed`"
                whom = "the host" if len(programmed) == 1 else "one of them"
                text = (
                    f"the link `{link.name}` joins {what[len(programmed)]} the machine's kernel, where nothing holds"
                    f" its rate, delay and queue; expected {remedy} for {whom}"
                )
                self._errors.append(self._message(link.a.node, text))

    def _message(self, node: int, text: str) -> str:
        """Prefix `text` with the place in the lab that requests this host's kernel, if the plan has it."""
        requested_at = self._plan.nodes[node].kernel_requested_at
        return f"{requested_at}: {text}" if requested_at else text

    def _warnings(self, on_host: list[int]) -> Iterable[str]:
        if self._dilation > 1 and self._bmv2:
            yield (
                f"{shorten(self._name(node) for node in self._bmv2)}: BMv2's clock is not dilated: what its program"
                f" measures or sets in time is {self._dilation} times too long; `engine: p4switch` is"
            )
        if self._dilation > 1 and on_host:
            yield (
                f"{shorten(self._name(node) for node in on_host)} on the machine's kernel: its timers are not dilated:"
                f" TCP's retransmission timeouts, delayed ACKs, tail-loss probes, pacing and TIME_WAIT run"
                f" {self._dilation} times too fast in the lab's time; `kernel: qbed` dilates them"
            )


def shorten(names: Iterable[str]) -> str:
    """`h1, h2, h3, h4 and 6 more`."""
    every = list(names)
    more = f" and {len(every) - MAX_NAMES} more" if len(every) > MAX_NAMES + 1 else ""
    return ", ".join(every[: MAX_NAMES if more else None]) + more
