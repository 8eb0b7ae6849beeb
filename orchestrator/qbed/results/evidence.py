# SPDX-License-Identifier: Apache-2.0
"""The evidence of a cell: where packets waited, were marked and dropped, and whether the counters add up.

Every packet must be somewhere. Three independent books are kept: the tap of each queue, the link device, and the
counters of each node's network stack. Where two of them disagree, the run *contradicts* its plan: the cell is
`invalid`, its numbers go into no claim and no figure. What is merely remarkable (a host's own queue dropped) is a
*warning*.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from qbed.network.frames import ETHERNET_BYTES
from qbed.plan.model import Plan
from qbed.plan.ports import port_names
from qbed.results.frames import lost_between
from qbed.results.wall import examine_wall
from qbed.schemes.declaration import registry
from qbed.telemetry.records import Counters, LinkCounters
from qbed.telemetry.wall import Wall

SMALLEST_FRAME = 42  # Ethernet + IPv4 + UDP without payload
LARGEST_FRAME = 65549
MOST_SHOWN = 20
_SUPER_PACKET_BYTES = 65536
_MOST_HEADERS = 120  # IPv6 and TCP with all its options, about


@dataclass(frozen=True)
class QueueSummary:
    """The tap's totals of one queue (docs/formats.md section 4, record 3)."""

    duration_ns: int = 0
    byte_ns: int = 0
    packet_ns: int = 0
    max_bytes: int = 0
    max_packets: int = 0
    offered_packets: int = 0
    offered_bytes: int = 0
    sent_packets: int = 0
    sent_bytes: int = 0
    dropped_packets: int = 0
    dropped_bytes: int = 0
    marked_packets: int = 0
    queue_packets: int = 0
    queue_bytes: int = 0
    start_queue_packets: int = 0
    start_queue_bytes: int = 0


@dataclass
class Evidence:
    """What a run says about itself. `details` is JSON: the report shows it."""

    bottleneck: str | None = None
    contradictions: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Slack:
    """By how many packets two books may differ that were read `ns` apart, while packets went on. 0: not at all."""

    ns: int = 0
    duration_ns: int = 1
    """Of the run, for the mean rate of a queue's packets."""

    def packets(self, sent: int) -> int:
        """Of a queue that has sent so many: four times what it sends in that time on average, and a burst."""
        return 4 * sent * self.ns // self.duration_ns + 10 if self.ns else 0


def slack_of(plan: Plan, wall: Wall | None) -> Slack:
    """By how much the books of a run may differ: in virtual time not at all."""
    return Slack() if wall is None else Slack(wall.slack_ns, plan.duration_ns)


def examine(plan: Plan, summaries: dict[int, QueueSummary], counters: Counters, wall: Wall | None = None) -> Evidence:
    """Compare the three books of one run. In virtual time every number in `counters` is of one instant; on the wall
    clock (`wall`) they were read one after the other, and the machine has to have kept up.
    """
    evidence = Evidence()
    slack = slack_of(plan, wall)
    wrong = evidence.contradictions
    if len(counters.links) != len(plan.links) or len(counters.queues) != len(plan.queues):
        wrong.append(
            f"the counters are of {len(counters.links)} links and {len(counters.queues)} queues,"
            f" the plan has {len(plan.links)} and {len(plan.queues)}"
        )
        return evidence
    ports = port_names(plan)
    for index, port in enumerate(ports):
        if index not in summaries:
            wrong.append(f"queue {port} has no summary in the tap stream")
    if wrong:
        return evidence
    outside = {} if wall is None else lost_between(plan, wall)
    books = Books(plan, ports, summaries, counters, slack, wrong, outside)
    books.queues()
    books.links()
    books.nodes()
    books.programs()
    _where(plan, ports, summaries, counters, evidence)
    if wall is not None:
        unfaithful, warnings, evidence.details["wall"] = examine_wall(plan, wall, slack.packets)
        wrong.extend(unfaithful)
        evidence.warnings.extend(warnings)
    return evidence


class _Snmp:
    """The counters of one node; what is absent is 0."""

    def __init__(self, groups: dict[str, dict[str, int]]) -> None:
        self._groups = groups

    def __call__(self, group: str, *names: str) -> int:
        values = self._groups.get(group, {})
        return sum(values.get(name, values.get(group + name, 0)) for name in names)

    def has(self, group: str, name: str) -> bool:
        return name in self._groups.get(group, {}) or group + name in self._groups.get(group, {})


def _ipv4_unaccounted(snmp: _Snmp) -> int:
    """IPv4 datagrams that came in and neither went on, nor up, nor have a counted reason.

    As net/ipv4/ip_input.c, ip_forward.c and route.c count.
    InCsumErrors are counted within InHdrErrors. Reassembly takes ReasmReqds fragments and gives ReasmOKs datagrams.
    FragFails of forwarding are of received datagrams, those of output are not, so they are a tolerance: see the caller.
    """
    taken = snmp("Ip", "InHdrErrors", "InAddrErrors", "InUnknownProtos", "InDiscards", "InDelivers", "ForwDatagrams")
    taken += snmp("IpExt", "InNoRoutes", "InTruncatedPkts") + snmp("TcpExt", "IPReversePathFilter")
    taken += snmp("Ip", "ReasmReqds") - snmp("Ip", "ReasmOKs")
    return snmp("Ip", "InReceives") - taken


def _ipv6_unaccounted(snmp: _Snmp) -> int:
    """The same for IPv6 (net/ipv6/ip6_input.c, ip6_output.c); multicast that nobody joined is dropped uncounted."""
    taken = snmp("Ip6", "InHdrErrors", "InTooBigErrors", "InNoRoutes", "InAddrErrors", "InUnknownProtos")
    taken += snmp("Ip6", "InTruncatedPkts", "InDiscards", "InDelivers", "OutForwDatagrams")
    taken += snmp("Ip6", "ReasmReqds") - snmp("Ip6", "ReasmOKs")
    return snmp("Ip6", "InReceives") - taken


def _held(plan: Plan, counters: Counters) -> list[dict[str, int]]:
    """By node and family, the packets that schemes hold between reception and routing."""
    held = [{"ipv4": 0, "ipv6": 0} for _ in plan.nodes]
    for queue, own in zip(plan.queues, counters.queues, strict=True):
        scheme = registry().get(queue.scheme)
        if scheme is None or plan.nodes[queue.node].pipeline is not None:
            continue
        values = scheme.decode(bytes.fromhex(own.xstats))
        for statistic in scheme.statistics:
            if statistic.holds is not None:
                held[queue.node][statistic.holds] += values.get(statistic.name, 0)
    return held


@dataclass(frozen=True)
class Books:
    """The three books of one run, which have to agree: taps, qdiscs and links, and each node's own counters. What does
    not goes to `wrong`.
    """

    plan: Plan
    ports: list[str]
    summaries: dict[int, QueueSummary]
    counters: Counters
    slack: Slack
    wrong: list[str]
    outside: Mapping[tuple[int, str], int] = field(default_factory=dict)
    """Frames lost between the containers, by link and sending side."""

    def queues(self) -> None:
        """Tap against itself (offered = sent + dropped + queued) and against the qdisc's own statistics.

        When its link goes down, a qdisc forgets what waits without counting it as dropped; the tap does count it.
        What a program drops behind a queue, the qdisc has sent, and the tap counts as dropped.
        """
        downs = self._downs()
        for index, port in enumerate(self.ports):
            tap, own = self.summaries[index], self.counters.queues[index]
            for unit, offered, sent, dropped, queued in (
                ("packets", tap.offered_packets, tap.sent_packets, tap.dropped_packets, tap.queue_packets),
                ("bytes", tap.offered_bytes, tap.sent_bytes, tap.dropped_bytes, tap.queue_bytes),
            ):
                if offered != sent + dropped + queued:
                    self.wrong.append(
                        f"queue {port}: {offered} {unit} offered, but {sent} sent + {dropped} dropped + {queued} queued"
                    )
            behind = self._behind(index)
            compared = [
                ("sent bytes", 0 if behind else tap.sent_bytes, 0 if behind else own.bytes),
                ("dropped packets", tap.dropped_packets - behind, own.drops),
            ]
            if not self.burst(index):
                compared += [
                    ("sent packets", tap.sent_packets + behind, own.packets),
                    ("queued packets", tap.queue_packets, own.backlog_packets),
                    ("queued bytes", tap.queue_bytes, own.backlog_bytes),
                ]
            for what, seen, counted in compared:
                room = self.slack.packets(tap.sent_packets) * (LARGEST_FRAME if what.endswith("bytes") else 1)
                forgotten = downs[index] * tap.max_packets if what == "dropped packets" else 0
                if not -room <= seen - counted <= room + forgotten:
                    self.wrong.append(
                        f"queue {port}: the tap saw {seen} {what}, the qdisc ({own.kind}) counts {counted}"
                    )

    def _downs(self) -> Counter[int]:
        """How often the link behind each queue went down."""
        return Counter(
            end.queue
            for event in self.plan.events
            if event.state == "down"
            for end in (self.plan.links[event.link].a, self.plan.links[event.link].b)
        )

    def _behind(self, queue: int) -> int:
        """Packets that a switch's program dropped as they had left this queue."""
        if self.plan.nodes[self.plan.queues[queue].node].pipeline is None:
            return 0
        return max(self.counters.queues[queue].packets - self.summaries[queue].sent_packets, 0)

    def links(self) -> None:
        """Each direction: what left the queue was sent; sent = delivered + lost + in flight; no frame is too large."""
        downs = self._downs()
        for index, (link, pair) in enumerate(zip(self.plan.links, self.counters.links, strict=True)):
            for side, end, here, there in (("a", link.a, pair.a, pair.b), ("b", link.b, pair.b, pair.a)):
                name = self.ports[end.queue]
                flying = here.sent - here.delivered - here.lost
                far = self.plan.ends_ever[index, side][1]
                bits = (far.delay_ns + far.jitter_ns) * far.rate_bps // 1_000_000_000
                capacity = bits // (8 * (SMALLEST_FRAME + end.overhead_bytes)) + 2
                room = self.slack.packets(here.sent)
                if not -room <= flying <= capacity + room:
                    self.wrong.append(
                        f"link {name}: {here.sent} frames sent, {here.delivered} delivered, {here.lost} lost:"
                        f" {flying} would be in flight, where 0 to {capacity} fit"
                    )
                # A qdisc counts a super-packet's segments as it leaves; those of the last may wait in the network card,
                # and are gone when the link goes down.
                burst = self.burst(end.queue) // max(1, link.mtu - _MOST_HEADERS) * (1 + downs[end.queue])
                left = self.counters.queues[end.queue].packets if burst else self.summaries[end.queue].sent_packets
                runs_program = self.plan.nodes[end.node].pipeline is not None  # which may drop there: see programs()
                if not runs_program and not -room <= left - here.sent <= room + burst:
                    self.wrong.append(f"link {name}: {left} packets left its queue, {here.sent} were transmitted")
                outside = self.outside.get((index, side), 0)
                if not -room <= here.delivered - there.rx_packets - there.rx_dropped <= room + outside:
                    self.wrong.append(
                        f"link {name}: {here.delivered} frames delivered, its peer received {there.rx_packets}"
                        f" and dropped {there.rx_dropped}"
                        + (f", {outside} were lost between the containers" if outside else "")
                    )
                largest = link.mtu + ETHERNET_BYTES
                if self.summaries[end.queue].sent_bytes > left * largest:
                    self.wrong.append(f"link {name}: frames larger than its MTU of {link.mtu}: an offload is on")

    def burst(self, queue: int) -> int:
        """The largest packet of a host's queue whose network card cuts what TCP gives it; 0: none is larger than a
        frame. Such a packet is one to tap and IP, and as many as its segments to qdisc and link.
        """
        return _SUPER_PACKET_BYTES if self.plan.nodes[self.plan.queues[queue].node].offload else 0

    def nodes(self) -> None:
        """Each node: frames in = datagrams in = forwarded + delivered + held + dropped for a reason; out likewise.

        Loopback appears in both books of a node by the same number: InReceives - frames in = OutTransmits - frames out.
        """
        received = [0] * len(self.plan.nodes)
        offered = [0] * len(self.plan.nodes)
        for link, pair in zip(self.plan.links, self.counters.links, strict=True):
            for end, here in ((link.a, pair.a), (link.b, pair.b)):
                received[end.node] += here.rx_packets
                offered[end.node] += self.summaries[end.queue].offered_packets
        held = _held(self.plan, self.counters)
        for index, groups in enumerate(self.counters.nodes):
            if self.plan.nodes[index].pipeline is not None:
                continue
            snmp, name = _Snmp(groups), self.plan.nodes[index].name
            room = self.slack.packets(received[index] + offered[index])
            rest = _ipv4_unaccounted(snmp) - held[index]["ipv4"]
            if not -room <= rest <= snmp("Ip", "FragFails") + room:
                self.wrong.append(
                    f"node {name}: {rest} of {snmp('Ip', 'InReceives')} IPv4 packets received are unaccounted for"
                )
            rest = _ipv6_unaccounted(snmp) - held[index]["ipv6"]
            if not -room <= rest <= snmp("Ip6", "InMcastPkts") + room:
                self.wrong.append(
                    f"node {name}: {rest} of {snmp('Ip6', 'InReceives')} IPv6 packets received are unaccounted for"
                )
            looped = snmp("Ip", "InReceives") + snmp("Ip6", "InReceives") - received[index]
            if looped < -room:
                self.wrong.append(
                    f"node {name}: {received[index]} frames received, but {-looped} of them never reached IP"
                )
            if not (snmp.has("Ip", "OutTransmits") or snmp.has("Ip6", "OutTransmits")):
                continue
            out = snmp("Ip", "OutTransmits", "FragCreates") - snmp("Ip", "FragOKs") + snmp("Ip6", "OutTransmits")
            if looped >= -room and abs(out - looped - offered[index]) > room:
                self.wrong.append(
                    f"node {name}: IP sent {out - looped} packets to its links,"
                    f" their queues were offered {offered[index]}"
                )

    def programs(self) -> None:
        """Each switch in P4: what its links received, its program got; what left its queues, its program got again or
        the module dropped as not of it; what it gave out, its links transmitted; and what was dropped behind queues is
        among its program's drops. The CPU port has no link and no queue.
        """
        for name, counted in self.counters.switches.items():
            node = self.plan.node_index(name)
            received = left = sent = behind = 0
            for link, pair in zip(self.plan.links, self.counters.links, strict=True):
                for end, here in ((link.a, pair.a), (link.b, pair.b)):
                    if end.node == node:
                        received, sent = received + here.rx_packets, sent + here.sent
                        left += self.summaries[end.queue].sent_packets + self._behind(end.queue)
                        behind += self._behind(end.queue)
            sent += sum(port.sent for port in counted.recirculation.values())
            left += sum(port.queue.packets for port in counted.recirculation.values())
            shell, totals = Counter(counted.shell), Counter(counted.totals)
            for what, seen, told in (
                ("frames received", received, shell["received"]),
                ("packets left its queues", left, totals["egress"] + shell["foreign"] - shell["packets_in"]),
                ("frames transmitted", sent, shell["sent"]),
            ):
                if abs(seen - told) > self.slack.packets(seen):
                    self.wrong.append(f"switch {name}: {seen} {what}, its program counts {told}")
            if behind > sum(counted.drops.values()) + self.slack.packets(left):
                self.wrong.append(f"switch {name}: {behind} packets dropped behind its queues, its program says fewer")


def _where(
    plan: Plan, ports: list[str], summaries: dict[int, QueueSummary], counters: Counters, evidence: Evidence
) -> None:
    """Which queue was the bottleneck: the one where packets waited most, summed over all packets."""
    rates = plan.mean_rates
    ranking = sorted(range(len(plan.queues)), key=lambda index: (-summaries[index].packet_ns, index))
    waited = sum(summary.packet_ns for summary in summaries.values())
    if waited:
        evidence.bottleneck = ports[ranking[0]]

    def row(index: int) -> dict[str, Any]:
        tap = summaries[index]
        busy = tap.sent_bytes * 8e9 / rates[index] / plan.duration_ns
        return {
            "queue": ports[index],
            "role": plan.queues[index].role,
            "share_of_waiting": tap.packet_ns / waited if waited else 0.0,
            "utilisation": busy,
            "max_packets": tap.max_packets,
            "dropped": tap.dropped_packets,
            "marked": tap.marked_packets,
        }

    def those(test: Any) -> list[dict[str, Any]]:
        return [row(index) for index in ranking if test(index)][:MOST_SHOWN]

    outside = [index for index in ranking if plan.queues[index].role == "host"]
    evidence.details = {
        "waiting": those(lambda index: summaries[index].packet_ns > 0)[:5],
        "drops": those(lambda index: summaries[index].dropped_packets > 0),
        "marks": those(lambda index: summaries[index].marked_packets > 0),
        "outside_the_plan": those(lambda index: index in outside and summaries[index].packet_ns > 0),
        "outside_share_of_waiting": sum(summaries[index].packet_ns for index in outside) / waited if waited else 0.0,
        "lost": _lost(plan, ports, counters),
        "offloads": _offloads(plan),
    }
    if evidence.bottleneck is not None and ranking[0] in outside:
        evidence.warnings.append(f"packets waited most at {evidence.bottleneck}, a host's own queue, not at a switch")
    evidence.warnings.extend(
        f"{ports[index]}, a host's own queue, dropped {summaries[index].dropped_packets} packets"
        for index in outside
        if summaries[index].dropped_packets
    )


def _offloads(plan: Plan) -> str:
    names = [node.name for node in plan.nodes if node.offload is not None]
    more = f" and {len(names) - MOST_SHOWN} more" if len(names) > MOST_SHOWN else ""
    return f"tso at {', '.join(names[:MOST_SHOWN])}{more}" if names else "off"


def _lost(plan: Plan, ports: list[str], counters: Counters) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for link, pair in zip(plan.links, counters.links, strict=True):
        ends: tuple[tuple[Any, LinkCounters], ...] = ((link.a, pair.a), (link.b, pair.b))
        rows.extend({"link": ports[end.queue], "lost": here.lost} for end, here in ends if here.lost)
    return rows[:MOST_SHOWN]
