# SPDX-License-Identifier: Apache-2.0
"""The evidence of a cell: where packets waited, were marked and dropped, and whether all counters are consistent.

Every packet is accounted for by three independent sets of counters: the tap of each queue, the link device, and the
network stack of each node. If two of them disagree, the run *contradicts* its plan: the cell is `invalid`, and no
claim or figure uses its numbers. A remarkable but consistent observation (a host's queue dropped) is a *warning*.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from qbed.base.json_files import Row
from qbed.cells.frames import lost_between
from qbed.cells.wall_clock import examine_wall
from qbed.network.frames import ETHERNET_BYTES
from qbed.plan.model import End, Plan
from qbed.plan.ports import port_names
from qbed.schemes.declaration import registry
from qbed.telemetry.records import Counters, LinkCounters
from qbed.telemetry.wall import Wall

SMALLEST_FRAME = 42  # Ethernet + IPv4 + UDP without payload
LARGEST_FRAME = 65549
MAX_SHOWN = 20
_SUPER_PACKET_BYTES = 65536
_MAX_HEADERS = 120  # IPv6 and TCP with all its options, about


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
    """The bottleneck, contradictions and warnings of a cell. `details` is JSON: the report shows it."""

    bottleneck: str | None = None
    contradictions: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    details: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Slack:
    """Tolerance between two counters that were read `ns` apart while packets were forwarded; 0: none."""

    ns: int = 0
    duration_ns: int = 1
    """Duration of the run, from which a queue's mean packet rate follows."""

    def packets(self, sent: int) -> int:
        """Tolerance for a queue that sent `sent` packets: four times its mean in `ns`, and a burst of 10."""
        return 4 * sent * self.ns // self.duration_ns + 10 if self.ns else 0


def slack_of(plan: Plan, wall: Wall | None) -> Slack:
    """The tolerance between the counters of a run; none in virtual time."""
    return Slack() if wall is None else Slack(wall.slack_ns, plan.duration_ns)


def examine(plan: Plan, summaries: dict[int, QueueSummary], counters: Counters, wall: Wall | None = None) -> Evidence:
    """Compare the counters of one run. In virtual time all `counters` are of one instant; on the wall clock (`wall`)
    they were read one after the other, and the lateness of the machine is checked too.
    """
    evidence = Evidence()
    slack = slack_of(plan, wall)
    violations = evidence.contradictions
    if len(counters.links) != len(plan.links) or len(counters.queues) != len(plan.queues):
        violations.append(
            f"the counters are of {len(counters.links)} links and {len(counters.queues)} queues,"
            f" the plan has {len(plan.links)} and {len(plan.queues)}"
        )
        return evidence
    ports = port_names(plan)
    for index, port in enumerate(ports):
        if index not in summaries:
            violations.append(f"queue {port} has no summary in the tap stream")
    if violations:
        return evidence
    outside = {} if wall is None else lost_between(plan, wall)
    accounting = Accounting(plan, ports, summaries, counters, slack, violations, outside)
    accounting.queues()
    accounting.links()
    accounting.nodes()
    accounting.programs()
    _locate_bottleneck(plan, ports, summaries, counters, evidence)
    if wall is not None:
        unfaithful, warnings, evidence.details["wall"] = examine_wall(plan, wall, slack.packets)
        violations.extend(unfaithful)
        evidence.warnings.extend(warnings)
    return evidence


class _Snmp:
    """The SNMP counters of one node; an absent counter is 0."""

    def __init__(self, groups: dict[str, dict[str, int]]) -> None:
        self._groups = groups

    def __call__(self, group: str, *names: str) -> int:
        values = self._groups.get(group, {})
        return sum(values.get(name, values.get(group + name, 0)) for name in names)

    def has(self, group: str, name: str) -> bool:
        return name in self._groups.get(group, {}) or group + name in self._groups.get(group, {})


def _ipv4_unaccounted(snmp: _Snmp) -> int:
    """IPv4 datagrams received, but neither forwarded, delivered nor counted as dropped.

    The counters are those of net/ipv4/ip_input.c, ip_forward.c and route.c.
    InHdrErrors includes InCsumErrors. Reassembly turns ReasmReqds fragments into ReasmOKs datagrams.
    FragFails counts received datagrams in forwarding, but not in output; the caller uses it as a tolerance.
    """
    taken = snmp("Ip", "InHdrErrors", "InAddrErrors", "InUnknownProtos", "InDiscards", "InDelivers", "ForwDatagrams")
    taken += snmp("IpExt", "InNoRoutes", "InTruncatedPkts") + snmp("TcpExt", "IPReversePathFilter")
    taken += snmp("Ip", "ReasmReqds") - snmp("Ip", "ReasmOKs")
    return snmp("Ip", "InReceives") - taken


def _ipv6_unaccounted(snmp: _Snmp) -> int:
    """IPv6 datagrams received, but neither forwarded, delivered nor counted as dropped.

    The counters are those of net/ipv6/ip6_input.c and ip6_output.c. Multicast without a member is dropped uncounted.
    """
    taken = snmp("Ip6", "InHdrErrors", "InTooBigErrors", "InNoRoutes", "InAddrErrors", "InUnknownProtos")
    taken += snmp("Ip6", "InTruncatedPkts", "InDiscards", "InDelivers", "OutForwDatagrams")
    taken += snmp("Ip6", "ReasmReqds") - snmp("Ip6", "ReasmOKs")
    return snmp("Ip6", "InReceives") - taken


def _held(plan: Plan, counters: Counters) -> list[dict[str, int]]:
    """Packets that schemes hold between reception and routing, by node and address family."""
    held = [{"ipv4": 0, "ipv6": 0} for _ in plan.nodes]
    for queue, counted in zip(plan.queues, counters.queues, strict=True):
        scheme = registry().get(queue.scheme)
        if scheme is None or plan.nodes[queue.node].pipeline is not None:
            continue
        values = scheme.decode(bytes.fromhex(counted.xstats))
        for statistic in scheme.statistics:
            if statistic.holds is not None:
                held[queue.node][statistic.holds] += values.get(statistic.name, 0)
    return held


@dataclass(frozen=True)
class Accounting:
    """Packet accounting of one run: taps, qdiscs, links and nodes must have consistent counters.

    Each inconsistency is appended to `violations`.
    """

    plan: Plan
    ports: list[str]
    summaries: dict[int, QueueSummary]
    counters: Counters
    slack: Slack
    violations: list[str]
    outside: Mapping[tuple[int, str], int] = field(default_factory=dict)
    """Frames lost between the containers, by link and sending side."""

    def queues(self) -> None:
        """Check that offered = sent + dropped + queued at each tap, and that the tap agrees with the qdisc.

        When its link goes down, a qdisc purges its packets without counting them as dropped; the tap counts them.
        Packets that a P4 program drops after a queue are sent for the qdisc and dropped for the tap.
        """
        downs = self._downs()
        for index, port in enumerate(self.ports):
            tap, qdisc = self.summaries[index], self.counters.queues[index]
            for unit, offered, sent, dropped, queued in (
                ("packets", tap.offered_packets, tap.sent_packets, tap.dropped_packets, tap.queue_packets),
                ("bytes", tap.offered_bytes, tap.sent_bytes, tap.dropped_bytes, tap.queue_bytes),
            ):
                if offered != sent + dropped + queued:
                    self.violations.append(
                        f"queue {port}: {offered} {unit} offered, but {sent} sent + {dropped} dropped + {queued} queued"
                    )
            after_queue = self._dropped_after_queue(index)
            compared = [
                ("sent bytes", 0 if after_queue else tap.sent_bytes, 0 if after_queue else qdisc.bytes),
                ("dropped packets", tap.dropped_packets - after_queue, qdisc.drops),
            ]
            if not self.burst(index):
                compared += [
                    ("sent packets", tap.sent_packets + after_queue, qdisc.packets),
                    ("queued packets", tap.queue_packets, qdisc.backlog_packets),
                    ("queued bytes", tap.queue_bytes, qdisc.backlog_bytes),
                ]
            for what, tapped, counted in compared:
                slack = self.slack.packets(tap.sent_packets) * (LARGEST_FRAME if what.endswith("bytes") else 1)
                purged = downs[index] * tap.max_packets if what == "dropped packets" else 0
                if not -slack <= tapped - counted <= slack + purged:
                    self.violations.append(
                        f"queue {port}: the tap saw {tapped} {what}, the qdisc ({qdisc.kind}) counts {counted}"
                    )

    def _downs(self) -> Counter[int]:
        """How often the link behind each queue went down."""
        return Counter(
            end.queue
            for event in self.plan.events
            if event.state == "down"
            for end in (self.plan.links[event.link].a, self.plan.links[event.link].b)
        )

    def _dropped_after_queue(self, queue: int) -> int:
        """Packets that the switch's P4 program dropped after they left this queue."""
        if self.plan.nodes[self.plan.queues[queue].node].pipeline is None:
            return 0
        return max(self.counters.queues[queue].packets - self.summaries[queue].sent_packets, 0)

    def links(self) -> None:
        """Check each direction: queue output = sent = delivered + lost + in flight, and no frame exceeds the MTU."""
        downs = self._downs()
        for index, (link, pair) in enumerate(zip(self.plan.links, self.counters.links, strict=True)):
            for side, end, tx, rx in (("a", link.a, pair.a, pair.b), ("b", link.b, pair.b, pair.a)):
                name = self.ports[end.queue]
                in_flight = tx.sent - tx.delivered - tx.lost
                longest = self.plan.ends_ever[index, side][1]
                bits = (longest.delay_ns + longest.jitter_ns) * longest.rate_bps // 1_000_000_000
                capacity = bits // (8 * (SMALLEST_FRAME + end.overhead_bytes)) + 2
                slack = self.slack.packets(tx.sent)
                if not -slack <= in_flight <= capacity + slack:
                    self.violations.append(
                        f"link {name}: {tx.sent} frames sent, {tx.delivered} delivered, {tx.lost} lost:"
                        f" {in_flight} would be in flight, where 0 to {capacity} fit"
                    )
                # A qdisc counts the segments of a super-packet at dequeue; those of the last one may still be in the
                # network card, and are lost when the link goes down.
                burst = self.burst(end.queue) // max(1, link.mtu - _MAX_HEADERS) * (1 + downs[end.queue])
                left = self.counters.queues[end.queue].packets if burst else self.summaries[end.queue].sent_packets
                runs_program = self.plan.nodes[end.node].pipeline is not None  # it may drop there: see programs()
                if not runs_program and not -slack <= left - tx.sent <= slack + burst:
                    self.violations.append(f"link {name}: {left} packets left its queue, {tx.sent} were transmitted")
                outside = self.outside.get((index, side), 0)
                if not -slack <= tx.delivered - rx.rx_packets - rx.rx_dropped <= slack + outside:
                    self.violations.append(
                        f"link {name}: {tx.delivered} frames delivered, its peer received {rx.rx_packets}"
                        f" and dropped {rx.rx_dropped}"
                        + (f", {outside} were lost between the containers" if outside else "")
                    )
                largest = link.mtu + ETHERNET_BYTES
                if self.summaries[end.queue].sent_bytes > left * largest:
                    self.violations.append(f"link {name}: frames larger than its MTU of {link.mtu}: an offload is on")

    def burst(self, queue: int) -> int:
        """The largest packet in the queue of a host with segmentation offload; 0 without the offload.

        Tap and IP count such a packet once; qdisc and link count its segments.
        """
        return _SUPER_PACKET_BYTES if self.plan.nodes[self.plan.queues[queue].node].offload else 0

    def nodes(self) -> None:
        """Check each node: frames in = datagrams in = forwarded + delivered + held + counted drops; out likewise.

        Loopback adds the same number to both directions: InReceives - frames in = OutTransmits - frames out.
        """
        received = [0] * len(self.plan.nodes)
        offered = [0] * len(self.plan.nodes)
        for link, pair in zip(self.plan.links, self.counters.links, strict=True):
            for end, counted in ((link.a, pair.a), (link.b, pair.b)):
                received[end.node] += counted.rx_packets
                offered[end.node] += self.summaries[end.queue].offered_packets
        held = _held(self.plan, self.counters)
        for index, groups in enumerate(self.counters.nodes):
            if self.plan.nodes[index].pipeline is not None:
                continue
            snmp, name = _Snmp(groups), self.plan.nodes[index].name
            slack = self.slack.packets(received[index] + offered[index])
            rest = _ipv4_unaccounted(snmp) - held[index]["ipv4"]
            if not -slack <= rest <= snmp("Ip", "FragFails") + slack:
                self.violations.append(
                    f"node {name}: {rest} of {snmp('Ip', 'InReceives')} IPv4 packets received are unaccounted for"
                )
            rest = _ipv6_unaccounted(snmp) - held[index]["ipv6"]
            if not -slack <= rest <= snmp("Ip6", "InMcastPkts") + slack:
                self.violations.append(
                    f"node {name}: {rest} of {snmp('Ip6', 'InReceives')} IPv6 packets received are unaccounted for"
                )
            looped = snmp("Ip", "InReceives") + snmp("Ip6", "InReceives") - received[index]
            if looped < -slack:
                self.violations.append(
                    f"node {name}: {received[index]} frames received, but {-looped} of them never reached IP"
                )
            if not (snmp.has("Ip", "OutTransmits") or snmp.has("Ip6", "OutTransmits")):
                continue
            out = snmp("Ip", "OutTransmits", "FragCreates") - snmp("Ip", "FragOKs") + snmp("Ip6", "OutTransmits")
            if looped >= -slack and abs(out - looped - offered[index]) > slack:
                self.violations.append(
                    f"node {name}: IP sent {out - looped} packets to its links,"
                    f" their queues were offered {offered[index]}"
                )

    def programs(self) -> None:
        """Check each P4 switch:

        - frames received by its links = packets received by the module;
        - packets dequeued = packets in the egress pipeline and packets that the module dropped as foreign;
        - packets sent by the module = frames transmitted by its links;
        - packets dropped after queues are at most the program's drops.

        The CPU port has no link and no queue.
        """
        for name, counted in self.counters.switches.items():
            node = self.plan.node_index(name)
            received = left = sent = after_queue = 0
            for link, pair in zip(self.plan.links, self.counters.links, strict=True):
                for end, interface in ((link.a, pair.a), (link.b, pair.b)):
                    if end.node == node:
                        received, sent = received + interface.rx_packets, sent + interface.sent
                        left += self.summaries[end.queue].sent_packets + self._dropped_after_queue(end.queue)
                        after_queue += self._dropped_after_queue(end.queue)
            sent += sum(port.sent for port in counted.recirculation.values())
            left += sum(port.queue.packets for port in counted.recirculation.values())
            shell, totals = Counter(counted.shell), Counter(counted.totals)
            for what, outside, inside in (
                ("frames received", received, shell["received"]),
                ("packets left its queues", left, totals["egress"] + shell["foreign"] - shell["packets_in"]),
                ("frames transmitted", sent, shell["sent"]),
            ):
                if abs(outside - inside) > self.slack.packets(outside):
                    self.violations.append(f"switch {name}: {outside} {what}, its program counts {inside}")
            if after_queue > (dropped := sum(counted.drops.values())) + self.slack.packets(left):
                self.violations.append(
                    f"switch {name}: {after_queue} packets dropped after its queues, its program counts {dropped}"
                )


def _locate_bottleneck(
    plan: Plan, ports: list[str], summaries: dict[int, QueueSummary], counters: Counters, evidence: Evidence
) -> None:
    """Find the bottleneck, the queue with the largest sum of waiting times, and list where packets waited."""
    rates = plan.mean_rates
    ranking = sorted(range(len(plan.queues)), key=lambda index: (-summaries[index].packet_ns, index))
    waited = sum(summary.packet_ns for summary in summaries.values())
    if waited:
        evidence.bottleneck = ports[ranking[0]]

    def row(index: int) -> Row:
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

    def rows_where(test: Callable[[int], bool]) -> list[Row]:
        return [row(index) for index in ranking if test(index)][:MAX_SHOWN]

    at_hosts = [index for index in ranking if plan.queues[index].role == "host"]
    evidence.details = {
        "waiting": rows_where(lambda index: summaries[index].packet_ns > 0)[:5],
        "drops": rows_where(lambda index: summaries[index].dropped_packets > 0),
        "marks": rows_where(lambda index: summaries[index].marked_packets > 0),
        "outside_the_plan": rows_where(lambda index: index in at_hosts and summaries[index].packet_ns > 0),
        "outside_share_of_waiting": sum(summaries[index].packet_ns for index in at_hosts) / waited if waited else 0.0,
        "lost": _lost(plan, ports, counters),
        "offloads": _offloads(plan),
    }
    if evidence.bottleneck is not None and ranking[0] in at_hosts:
        evidence.warnings.append(f"packets waited most at {evidence.bottleneck}, a host's queue, not at a switch")
    evidence.warnings.extend(
        f"{ports[index]}, a host's queue, dropped {summaries[index].dropped_packets} packets"
        for index in at_hosts
        if summaries[index].dropped_packets
    )


def _offloads(plan: Plan) -> str:
    names = [node.name for node in plan.nodes if node.offload is not None]
    more = f" and {len(names) - MAX_SHOWN} more" if len(names) > MAX_SHOWN else ""
    return f"tso at {', '.join(names[:MAX_SHOWN])}{more}" if names else "off"


def _lost(plan: Plan, ports: list[str], counters: Counters) -> list[Row]:
    rows: list[Row] = []
    for link, pair in zip(plan.links, counters.links, strict=True):
        ends: tuple[tuple[End, LinkCounters], ...] = ((link.a, pair.a), (link.b, pair.b))
        rows.extend({"link": ports[end.queue], "lost": counted.lost} for end, counted in ends if counted.lost)
    return rows[:MAX_SHOWN]
