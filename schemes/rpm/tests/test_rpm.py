# SPDX-License-Identifier: Apache-2.0
"""rpm, packet by packet: TCP through a bottleneck, compared with the behaviour expected from captures."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rpm_model import (
    ACK,
    CE,
    ECE,
    FIN,
    RST,
    SYN,
    CoDel,
    Expected,
    Segment,
    expect,
    segments,
)

from qbed.plan.model import Metrics, Plan, Route, Via
from qbed.schemes.declaration import registry
from qbed.substrates.virtual.substrate import VirtualSubstrate
from qbed.testing import LIMITS, CellOutput, store_tables, write_plan

from qbed_testing.pcap import read_pcap

DUMBBELL = """
name: rpm
topology: {{dumbbell: {{left: {hosts}, right: {hosts}}}}}
links:
  default: {{rate: 10 Gbit/s, delay: 5 us}}
  right: {{delay: {delay}}}
  bottleneck: {{rate: 1 Gbit/s}}
switches:
  default: {{scheme: droptail, buffer: 10 MB}}
  "s1>s2": {{scheme: rpm, buffer: 10000 packets, target: 50 us, interval: 500 us{extra}}}
hosts: {{default: {{tcp: {tcp}, ecn: {ecn}, queue: 10000 packets}}}}
addressing: both
workload:
  - flows: {{from: h1..h{hosts}, to: h{first}..h{last}, size: {size}, start: 1 ms, family: {family}}}
capture: [{{end: "h1>s1", snaplen: 1600 B}}, "s1>s2", "s1>h*"]
observe: {{ports: {{"s1>s2": every packet}}}}
duration: 200 ms
"""
TARGET_NS, INTERVAL_NS = 50_000, 500_000


def dumbbell(
    hosts: int = 1,
    tcp: str = "cubic",
    family: int = 4,
    delay: str = "5 us",
    extra: str = "",
    ecn: str = "on",
    size: str = "6 MB",
) -> str:
    return DUMBBELL.format(
        hosts=hosts,
        first=hosts + 1,
        last=2 * hosts,
        tcp=tcp,
        family=family,
        delay=delay,
        extra=extra,
        ecn=ecn,
        size=size,
    )


def captured(cell: CellOutput, port: str) -> list[Segment]:
    queue = cell.plan.queues[cell.queue(port)]
    name = f"{cell.plan.nodes[queue.node].name}-{queue.interface}.pcap"
    return list(segments(read_pcap(cell.out / name)))


def statistics(cell: CellOutput, port: str) -> dict[str, int]:
    return registry()["rpm"].decode(bytes.fromhex(cell.counters().queues[cell.queue(port)].xstats))


def is_data_direction(cell: CellOutput, segment: Segment) -> bool:
    """Whether a segment is sent from a sender to a receiver."""
    return segment.flow[3] in {workload.port for workload in cell.plan.workloads}


def leaving(cell: CellOutput, port: str = "s1>s2") -> list[Segment]:
    return [segment for segment in captured(cell, port) if is_data_direction(cell, segment)]


def arriving(cell: CellOutput, hosts: int) -> list[Segment]:
    ports = (captured(cell, f"s1>h{number + 1}") for number in range(hosts))
    return [segment for segment in itertools.chain(*ports) if is_data_direction(cell, segment)]


def expected_of(cell: CellOutput, hosts: int = 1, per_port: bool = False) -> Expected:
    codel = CoDel(TARGET_NS, INTERVAL_NS, cell.plan.epoch_ns)
    return expect(codel, arriving(cell, hosts), captured(cell, "s1>s2"), per_port=per_port)


def check_counters(found: dict[str, int]) -> None:
    assert found["marked"] == sum(
        found[name]
        for name in ("forward_marks", "ce_arrived", "reverse_marks", "ece_already_set", "cleared", "pending")
    )


MARK, SIGNAL = 4, 5


def tap_events(cell: CellOutput, op: int, port: str = "s1>s2") -> list[tuple[int, int, int]]:
    """The tap's events of one operation: time, TCP sequence number and ECN of the packet."""
    events = np.concatenate(cell.taps(port)["events"])
    return [(int(e["time_ns"]), int(e["tcp_seq"]), int(e["ecn"])) for e in events[events["op"] == op]]


def echoes(cell: CellOutput, host: int = 1) -> list[Segment]:
    """The acknowledgements that the switch sends towards the sender."""
    return [segment for segment in captured(cell, f"s1>h{host}") if not is_data_direction(cell, segment)]


@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.parametrize("tcp", ["cubic", "dctcp", "reno"])
def test_each_decision_sets_ece_in_the_next_ack(run_cell: Callable[..., CellOutput], tcp: str, family: int) -> None:
    cell = run_cell(dumbbell(tcp=tcp, family=family))
    expected = expected_of(cell)
    assert len(expected.decisions) > 20, "the lab does not congest"

    # No packet is sent with CE, and restored headers have correct checksums.
    data = leaving(cell)
    assert not [segment for segment in data if segment.ecn == CE]
    assert all(segment.ip_checksum_holds for segment in data)

    # The tap records each decision when its packet is dequeued.
    sent = {segment.identity: segment.time_ns for segment in data}
    assert [signal[:2] for signal in tap_events(cell, SIGNAL)] == [
        (sent[segment.identity], segment.sequence) for segment in expected.decisions
    ]
    assert not [ecn for *_, ecn in tap_events(cell, SIGNAL) if ecn == CE]
    assert not tap_events(cell, MARK)

    # ECE is set in exactly the acknowledgements that follow decisions. No receiver sets it, since no CE was forwarded.
    out = echoes(cell)
    assert [segment.identity for segment in out] == [segment.identity for segment, _ in expected.echoes]
    plain = [
        (segment, carries) for segment, carries in zip(out, expected.echoes, strict=True) if not segment.flags & SYN
    ]
    assert [bool(segment.flags & ECE) for segment, _ in plain] == [carries for _, (_, carries) in plain]
    assert not any(arrived.flags & ECE for arrived, _ in expected.echoes if not arrived.flags & SYN)

    found = statistics(cell, "s1>s2")
    check_counters(found)
    assert found["marked"] == len(expected.decisions)
    assert found["reverse_marks"] == sum(carries for _, carries in expected.echoes)
    assert found["pending"] == expected.pending
    assert found["forward_marks"] == found["dropped"] == found["overlimit"] == found["collisions"] == 0
    if not expected.pending:
        assert found["pending_time"] == expected.waited_ns

    # The sender receives correct segments and responds to ECE.
    at_sender = [segment for segment in captured(cell, "h1>s1") if not is_data_direction(cell, segment)]
    assert all(segment.tcp_checksum_holds for segment in at_sender)
    flow = cell.flows()[0]
    assert flow["status"] == "complete"
    assert flow["ce_marks"] > 0
    assert flow["retransmits"] == 0


def reactions(cell: CellOutput) -> list[int]:
    """The time from each decision until ECE arrives at the sender, in ns."""
    expected = expected_of(cell)
    sent = {segment.identity: segment.time_ns for segment in leaving(cell)}
    decided = [sent[segment.identity] for segment in expected.decisions]
    arrived = [
        segment.time_ns
        for segment in captured(cell, "h1>s1")
        if not is_data_direction(cell, segment) and segment.flags & ECE and not segment.flags & SYN
    ]
    # An acknowledgement carries one decision, the oldest.
    return [end - start for start, end in zip(decided, arrived, strict=False)]


def test_the_reaction_time_does_not_depend_on_the_receiver(run_cell: Callable[..., CellOutput]) -> None:
    """A decision waits for the next ACK, at the spacing of the bottleneck, and then for the link to
    the sender: 5 us and the serialization time. The receiver is 5 or 500 us away.
    """
    acknowledgement_ns = -(-66 * 8 // 10)
    spacing_ns = 2 * 1514 * 8  # one acknowledgement per two segments at 1 Gbit/s
    for delay in ("5 us", "500 us"):
        cell = run_cell(dumbbell(tcp="dctcp", delay=delay, size="20 MB"))
        out = [segment for segment in echoes(cell) if segment.flags & ECE and not segment.flags & (SYN | FIN)]
        times = {s.identity: s.time_ns for s in captured(cell, "h1>s1") if not is_data_direction(cell, s)}
        assert len(out) > 5
        assert {times[segment.identity] - segment.time_ns for segment in out} == {5000 + acknowledgement_ns}
        waits = [total - 5000 - acknowledgement_ns for total in reactions(cell)]
        assert min(waits) >= 0
        if delay == "5 us":
            assert max(waits) <= spacing_ns
        # even if the acknowledgements of a distant receiver have gaps, the reaction is faster than a round trip
        assert sorted(waits)[len(waits) // 2] <= spacing_ns


def test_per_port_state_marks_the_next_ack_of_any_flow(run_cell: Callable[..., CellOutput]) -> None:
    cell = run_cell(dumbbell(hosts=3, extra=", per_port: on", size="3 MB"))
    expected = expected_of(cell, hosts=3, per_port=True)
    out = sorted(itertools.chain(*(echoes(cell, host) for host in (1, 2, 3))), key=lambda s: s.time_ns)
    marked = {(s.identity, s.time_ns) for s in out if s.flags & ECE and not s.flags & SYN}
    assert marked == {(s.identity, s.time_ns) for s, carries in expected.echoes if carries}
    other_flows = sum(carries for _, carries in expected.echoes) - sum(
        carries for _, carries in expected_of(cell, hosts=3).echoes
    )
    found = statistics(cell, "s1>s2")
    check_counters(found)
    assert found["reverse_marks"] == len(marked) > 20
    assert found["forward_marks"] == 0
    assert not [segment for segment in leaving(cell) if segment.ecn == CE]
    assert other_flows >= 0


def test_flows_that_share_a_switch_have_separate_registers(run_cell: Callable[..., CellOutput]) -> None:
    cell = run_cell(dumbbell(hosts=3, size="3 MB"))
    expected = expected_of(cell, hosts=3)
    carried = {(s.identity, s.time_ns) for s, carries in expected.echoes if carries}
    out = itertools.chain(*(echoes(cell, host) for host in (1, 2, 3)))
    assert {(s.identity, s.time_ns) for s in out if s.flags & ECE and not s.flags & SYN} == carried
    assert len({identity[0] for identity, _ in carried}) == 3
    assert statistics(cell, "s1>s2")["collisions"] == 0


def test_flows_that_collide_are_marked_forward(run_cell: Callable[..., CellOutput]) -> None:
    """With one register, the flow of the first ACK holds it; the others are marked as by CoDel."""
    cell = run_cell(dumbbell(hosts=3, extra=", registers: 1", size="3 MB"))
    sent = leaving(cell)
    reversed_flows = {s.back for s in captured(cell, "s1>s2") if not is_data_direction(cell, s)}
    marked_flows = {segment.flow for segment in sent if segment.ecn == CE}
    assert [mark[:2] for mark in tap_events(cell, MARK)] == [(s.time_ns, s.sequence) for s in sent if s.ecn == CE]
    assert len(reversed_flows) == 3
    assert len(marked_flows) == 2
    found = statistics(cell, "s1>s2")
    check_counters(found)
    assert found["collisions"] == found["forward_marks"] == sum(segment.ecn == CE for segment in sent) > 10
    assert found["reverse_marks"] > 0
    assert len(tap_events(cell, SIGNAL)) == found["marked"] - found["forward_marks"]
    assert found["marked"] == len(expected_of(cell, hosts=3).decisions)
    # only the holder's acknowledgements get ECE, which they did not have on arrival
    holder = (reversed_flows - marked_flows).pop()
    received = [s for s in captured(cell, "s1>s2") if s.back == holder and not s.flags & SYN]
    assert not [segment for segment in received if segment.flags & ECE]
    forwarded = [s for host in (1, 2, 3) for s in echoes(cell, host) if s.back == holder and not s.flags & SYN]
    assert sum(bool(segment.flags & ECE) for segment in forwarded) == found["reverse_marks"]


def test_the_register_of_an_ended_flow_is_reused(run_cell: Callable[..., CellOutput]) -> None:
    """Immediately, not after `reverse_timeout` (1 s): one register, and a second flow 10 ms after the first."""
    text = dumbbell(hosts=2, extra=", registers: 1")
    flow = "  - flow: {{from: {}, to: {}, size: 3 MB, start: {}}}\n"
    text = re.sub(r"  - flows: .*\n", flow.format("h1", "h3", "1 ms") + flow.format("h2", "h4", "80 ms"), text)
    cell = run_cell(text)
    first, second = cell.flows()
    assert first["status"] == second["status"] == "complete"
    assert first["end_ns"] < 70_000_000
    found = statistics(cell, "s1>s2")
    check_counters(found)
    assert found["collisions"] == found["forward_marks"] == 0
    assert all(sum(bool(s.flags & ECE) for s in echoes(cell, host) if not s.flags & SYN) > 5 for host in (1, 2))


@pytest.mark.parametrize("delayed", ["on", "off"])
def test_dctcp_counts_all_data_of_a_marked_acknowledgement(run_cell: Callable[..., CellOutput], delayed: str) -> None:
    """Linux adds all data that an ACK with ECE covers to `delivered_ce`. A receiver sends separate acknowledgements for
    marked and unmarked segments (RFC 8257, 3.2); a switch does not know how many an acknowledgement covers. So
    DCTCP's alpha is up to twice that of forward marks, unless every segment is acknowledged.
    """
    text = dumbbell(tcp="dctcp").replace("hosts: {default: {", f'hosts: {{default: {{delayed_ack: "{delayed}", ')
    cell = run_cell(text)
    found = statistics(cell, "s1>s2")
    echoed = sum(bool(s.flags & ECE) for s in echoes(cell) if not s.flags & SYN)
    assert echoed == found["reverse_marks"] > 20
    counted = cell.flows()[0]["ce_marks"]
    if delayed == "on":
        assert 1.5 * echoed < counted <= 2 * echoed
    else:
        assert counted == echoed


def test_a_port_register_is_also_emptied_by_flows_without_ecn(run_cell: Callable[..., CellOutput]) -> None:
    """Pure acknowledgements are never ECN-capable, and there is no flow state, so the decision is lost."""
    text = dumbbell(hosts=2, extra=", per_port: on", size="3 MB")
    text = text.replace("10000 packets}}\naddr", '10000 packets}, h2: {ecn: "off"}, h4: {ecn: "off"}}\naddr')
    cell = run_cell(text)
    found = statistics(cell, "s1>s2")
    check_counters(found)
    without_ecn = [s for s in echoes(cell, 2) if s.flags & ECE]
    assert len(without_ecn) > 3
    assert found["reverse_marks"] == len(without_ecn) + sum(
        bool(s.flags & ECE) for s in echoes(cell) if not s.flags & SYN
    )
    assert cell.flows()[1]["ce_marks"] == 0, "its sender did not negotiate ECN and ignores ECE"


def test_flows_without_ecn_lose_packets(run_cell: Callable[..., CellOutput]) -> None:
    cell = run_cell(dumbbell(ecn="off"))
    found = statistics(cell, "s1>s2")
    assert found["dropped"] > 0
    assert found["dropped"] == cell.counters().queues[cell.queue("s1>s2")].drops
    assert found["marked"] == found["reverse_marks"] == found["forward_marks"] == 0
    assert not [segment for segment in captured(cell, "s1>h1") if segment.flags & ECE and not segment.flags & SYN]


ASYMMETRIC = """
name: asymmetric
topology:
  explicit:
    nodes: {h1..h2: host, s1..s2: switch}
    links:
      - {ends: [h1, s1]}
      - {ends: [h1, s2]}
      - {ends: [s1, h2], rate: 1 Gbit/s}
      - {ends: [s2, h2]}
links: {default: {rate: 10 Gbit/s, delay: 5 us}}
switches:
  default: {scheme: droptail, buffer: 10 MB}
  "s1>h2": {scheme: rpm, buffer: 10000 packets, target: 50 us, interval: 500 us}
hosts: {default: {tcp: cubic, ecn: on, queue: 10000 packets}}
workload:
  - flow: {from: h1, to: h2, size: 6 MB, start: 1 ms}
capture: ["s1>h2", "h2>s1", "h2>s2"]
duration: 200 ms
"""


def route_acknowledgements_by_s2(plan: Plan) -> None:
    """Change the compiler's symmetric routes: those of h2 and s2 towards h1 avoid s1."""
    nodes = {node.name: index for index, node in enumerate(plan.nodes)}
    links = {link.name: link for link in plan.links}
    h1_s2, s2_h2 = links["h1-s2"], links["s2-h2"]
    target = links["h1-s1"].a.addresses[0].split("/")[0]
    for node, out, peer in (("h2", s2_h2.b, s2_h2.a), ("s2", h1_s2.b, h1_s2.a)):
        hop = Via(interface=out.interface, gateway=peer.addresses[0].split("/")[0])
        plan.nodes[nodes[node]].routes.append(Route(to=f"{target}/32", via=[hop], metrics=Metrics()))


@pytest.mark.parametrize("back", ["s1", "s2"])
def test_flows_with_asymmetric_routes_are_marked_forward(tmp_path: Path, back: str) -> None:
    plan = write_plan(tmp_path, ASYMMETRIC)
    if back == "s2":
        route_acknowledgements_by_s2(plan)
    (tmp_path / "plan.json").write_text(plan.dumps())
    VirtualSubstrate().cell(tmp_path, plan).run(LIMITS, lambda fraction: None)
    cell = CellOutput(plan, tmp_path)

    assert [s for s in captured(cell, f"h2>{back}") if s.flags & ACK and not is_data_direction(cell, s)]
    found = statistics(cell, "s1>h2")
    check_counters(found)
    assert found["marked"] > 10
    marks = sum(segment.ecn == CE for segment in leaving(cell, "s1>h2"))
    assert marks == found["forward_marks"] == (found["marked"] if back == "s2" else 0)
    assert found["collisions"] == 0
    assert cell.flows()[0]["ce_marks"] > 0


SHARED = """
name: shared
topology: {{dumbbell: {{left: 4, right: 1}}}}
links: {{default: {{rate: 1 Gbit/s, delay: 10 us}}}}
switches: {{default: {{kind: {kind}, scheme: rpm, buffer: 10000 packets, target: 100 us, interval: 1 ms}}}}
hosts: {{default: {{tcp: cubic, ecn: on}}}}
workload:
  - flows: {{from: h1..h4, to: h5, start: 1 ms, spread: 500 us, count: {count}}}
capture: ["s1>s2", "s1>h*", "h*>s1"]
duration: 100 ms
"""


@pytest.mark.parametrize(("count", "minimum"), [(1, 50), (4, 500)])
@pytest.mark.parametrize(("kind", "unit_ns"), [("linux", 1024), ("bmv2", 1000)])
def test_kernel_and_p4_decide_as_codel(
    run_cell: Callable[..., CellOutput], tmp_path: Path, kind: str, unit_ns: int, count: int, minimum: int
) -> None:
    """Also in an unstable case: 16 windows of two segments exceed the target, and CoDel's decisions depend on whether
    its queue is short for an instant.
    """
    cell = run_cell(SHARED.format(kind=kind, count=count))
    codel = CoDel(100_000 // unit_ns * unit_ns, 1_000_000, cell.plan.epoch_ns, unit_ns)
    expected = expect(codel, arriving(cell, 4), captured(cell, "s1>s2"))
    _, table = store_tables(cell, tmp_path)
    (queue,) = (queue for queue in table("queues") if queue["port"] == "s1>s2")
    found = dict(queue["xstats"])
    assert found["forward_marks"] == found["ce_arrived"] == found["dropped"] == queue["dropped_packets"] == 0
    assert found["marked"] == len(expected.decisions) > minimum
    at_hosts = itertools.chain(*(captured(cell, f"h{number}>s1") for number in range(1, 5)))
    carried = Counter(
        s.identity for s in at_hosts if s.flags & ECE and not s.flags & SYN and not is_data_direction(cell, s)
    )
    expected_marks = Counter(segment.identity for segment, carries in expected.echoes if carries)
    assert found["reverse_marks"] == expected_marks.total()
    expected_marks.subtract(carried)
    assert min(expected_marks.values()) == 0 and expected_marks.total() <= 1


def test_two_runs_are_equal(run_cell: Callable[..., CellOutput]) -> None:
    text = dumbbell(hosts=2, size="2 MB")
    assert run_cell(text).digest() == run_cell(text).digest()


def test_rst_and_syn_are_not_modified(run_cell: Callable[..., CellOutput]) -> None:
    """SYN-ACKs negotiate ECN with ECE and are not modified."""
    cell = run_cell(dumbbell())
    opening = [segment for segment in captured(cell, "s1>s2") if segment.flags & SYN and segment.flags & ACK]
    assert opening
    assert {s.flags for s in echoes(cell) if s.flags & SYN} == {s.flags for s in opening}
    assert not [segment for segment in echoes(cell) if segment.flags & RST]


TALKER = """
import socket, sys, threading
sent, wanted = 4_000_000, 12_000_000
if sys.argv[1] == "listen":
    server = socket.create_server(("", 7000))
    sent, wanted = wanted, sent
    peer = server.accept()[0]
else:
    peer = socket.create_connection((sys.argv[1], 7000))
sender = threading.Thread(target=peer.sendall, args=(bytes(sent),))
sender.start()
received = 0
while received < wanted:
    received += len(peer.recv(1 << 16))
sender.join()
"""


def test_acknowledgements_that_carry_data_are_marked(
    tc_plugins: None, tmp_path: Path, running_lab: Callable[[str], Any]
) -> None:
    """One connection with data in both directions: "a packet considered an ACK might carry data" (section V.A)."""
    folder = tmp_path / "live"
    (folder / "talker.py").write_text(TALKER)
    # a short queue on the reverse path as well, so that acknowledgements are not delayed
    text = dumbbell().replace('  "s1>s2"', '  "s2>s1": {scheme: ecn, threshold: 20 packets}\n  "s1>s2"')
    text = re.sub(r"capture: .*\n", "", text)
    with running_lab(text) as lab:
        for interface in ("eth0", "eth1"):
            file = f"/mnt/{interface}.pcap"
            words = f"tcpdump --immediate-mode -U -n -s 96 -B 32768 --nano -Z root -i {interface} -w {file} tcp"
            lab.background("s1", *words.split())
        lab.background("h2", "python3", "/mnt/talker.py", "listen")
        lab.run("h1", "sleep", "1")
        status, output = lab.run("h1", "python3", "/mnt/talker.py", "10.0.0.3")
        assert status == 0, output
        lab.run("h1", "sleep", "1")
        tc = "env TC_LIB_DIR=/mnt/tc tc -s -j qdisc show dev eth1"
        status, output = lab.run("s1", *tc.split())
        assert status == 0, output
        lab.run("s1", "sync")
    found = json.loads(output)[0]
    sender_side = list(segments(read_pcap(folder / "eth0.pcap")))
    receiver_side = list(segments(read_pcap(folder / "eth1.pcap")))
    received = {s.identity: s for s in receiver_side if s.flow[2] == 7000 and not s.flags & SYN}
    forwarded = [s for s in sender_side if s.flow[2] == 7000 and not s.flags & SYN]
    marked = [s for s in forwarded if s.flags & ECE and not received[s.identity].flags & ECE]
    assert len(marked) == found["reverse_marks"] > 10
    assert sum(s.payload > 0 for s in marked) > 10
    assert not [s for s in receiver_side if s.flow[3] == 7000 and s.ecn == CE]
    assert found["forward_marks"] == 0
