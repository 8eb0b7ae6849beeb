# SPDX-License-Identifier: Apache-2.0
"""Settings of hosts, links and queues in a lab file take effect in the kernel, checked packet by packet."""

from __future__ import annotations

import ipaddress
import struct
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qbed.cells.store_cell import store_cell
from qbed.telemetry.records import read_counters
from qbed.testing import CellOutput, store_tables

from qbed_testing.pcap import Packet, read_pcap

ENQUEUE, MARK = 1, 4
FIN, SYN, ACK = 1, 2, 16

PAIR = """
name: pair
topology: {{star: {{hosts: 2}}}}
links: {{default: {{rate: 10 Gbit/s, delay: 50 us{link}}}}}
switches: {{default: {{scheme: droptail, buffer: 1 MB}}}}
hosts: {{default: {{tcp: reno, {host}}}}}
addressing: {addressing}
workload:
  - flow: {{from: h1, to: h2, size: 100 KB, start: 1 ms}}
capture: [h1>s1]
duration: {duration}
"""


def pair(link: str = "", host: str = "ecn: default", addressing: str = "ipv4", duration: str = "20 ms") -> str:
    return PAIR.format(link=link, host=host, addressing=addressing, duration=duration)


def tcp(packet: Packet) -> tuple[int, int, int]:
    """Source port, flags and payload bytes of an IPv4 or IPv6 TCP packet."""
    if packet.data[12:14] == b"\x08\x00":
        header, total = 14 + (packet.data[14] & 15) * 4, struct.unpack_from("!H", packet.data, 16)[0] + 14
    else:
        header, total = 54, packet.length
    port = int(struct.unpack_from("!H", packet.data, header)[0])
    return port, packet.data[header + 13], int(total) - header - (packet.data[header + 12] >> 4) * 4


def from_sender(cell: CellOutput) -> list[tuple[Packet, int, int]]:
    flow = cell.flows()[0]
    packets = [(packet, *tcp(packet)) for packet in read_pcap(cell.out / "h1-eth0.pcap")]
    return [(packet, flags, payload) for packet, port, flags, payload in packets if port == flow["src_port"]]


@pytest.mark.parametrize("packets", [2, 10, 25])
def test_the_initial_window_is_sent_before_the_first_ack(run_cell: Callable[..., Any], packets: int) -> None:
    cell = run_cell(pair(host=f"initial_window: {packets} packets"))
    begun = cell.flows()[0]["connected_ns"]
    first_round = [packet for packet, _, payload in from_sender(cell) if payload and packet.time_ns < begun + 150_000]
    assert len(first_round) == packets


def test_without_delayed_acks_every_segment_is_acknowledged(run_cell: Callable[..., Any]) -> None:
    counts = {}
    for mode in ("on", "off"):
        cell = run_cell(pair(host=f"delayed_ack: {mode}"))
        port = cell.flows()[0]["src_port"]
        packets = [tcp(packet) for packet in read_pcap(cell.out / "h1-eth0.pcap")]
        data = sum(payload > 0 for source, _, payload in packets if source == port)
        acks = sum(payload == 0 and not flags & (SYN | FIN) for source, flags, payload in packets if source != port)
        counts[mode] = acks / data
    assert counts["off"] >= 0.98
    assert counts["on"] <= 0.75  # the first 16 ACKs are quick ACKs


def test_a_kernel_parameter_applies_to_all_hosts(run_cell: Callable[..., Any], tmp_path: Path) -> None:
    """Cubic leaves slow start at the configured threshold."""
    text = pair(host="ecn: on").replace("reno", "cubic") + "observe: {flows: 100 us}\n"
    parameters = (
        "kernel_parameters: {tcp_cubic/hystart: 0, tcp_cubic/initial_ssthresh: 16, tcp_dctcp/dctcp_alpha_on_init: 0}"
    )
    cells = {"linux": run_cell(text), "configured": run_cell(text + parameters)}
    for name in cells:
        (tmp_path / name).mkdir()
    tables = {name: store_tables(cell, tmp_path / name)[1]("tcp_info") for name, cell in cells.items()}
    assert all(sample["ssthresh"] == 16 for sample in tables["configured"])
    assert not any(sample["ssthresh"] == 16 for sample in tables["linux"])
    largest = {name: max(sample["cwnd"] for sample in table) for name, table in tables.items()}
    assert largest["configured"] <= 20 < largest["linux"]


@pytest.mark.parametrize("addressing", ["ipv4", "ipv6", "both"])
def test_every_packet_is_accounted_for(run_cell: Callable[..., Any], addressing: str) -> None:
    cell = run_cell(pair(addressing=addressing, link=", loss: 2%", duration="2 s"))
    flow = cell.flows()[0]
    assert flow["status"] == "complete" and flow["retransmits"] > 0
    assert (":" in flow["src_address"]) == (addressing == "ipv6")
    counters = read_counters(cell.out / "counters.json")
    (cell.folder / "results").mkdir()
    row = store_cell(cell.folder, cell.plan, cell.folder / "results")
    assert (row["status"], row["contradictions"]) == ("complete", [])
    assert sum(end.lost for link in counters.links for end in (link.a, link.b)) > 0


@pytest.mark.parametrize("routing", ["routing: static", "routing: frr", "routing: frr\nfrr: {protocol: ospf}"])
def test_a_flow_takes_the_same_links_both_ways(run_cell: Callable[..., Any], routing: str) -> None:
    """In three tiers, all paths are used and each flow keeps one path."""
    cell = run_cell(f"""
name: ecmp
{routing}
topology: {{clos: {{hosts: 8, racks: 4, leaves: 2, pods: 2, spines: 4}}}}
links: {{default: {{rate: 10 Gbit/s, delay: 1 us}}}}
switches: {{default: {{scheme: droptail, buffer: 1 MB}}}}
hosts: {{default: {{tcp: cubic}}}}
workload:
  - flows: {{from: h1..h16, to: h17..h32, size: 20 KB, count: 4}}
capture: [spine1>*, spine2>*, spine3>*, spine4>*]
duration: 20 ms
""")
    paths: dict[tuple[bytes, int], dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    ports = {(flow["src_address"], flow["src_port"]) for flow in cell.flows()}
    assert len(ports) == 64
    for path in cell.out.glob("spine*.pcap"):
        for packet in read_pcap(path):
            source, destination = struct.unpack_from("!HH", packet.data, 34)
            forward = destination < 10_000
            key = (packet.data[26:30], source) if forward else (packet.data[30:34], destination)
            if (str(ipaddress.ip_address(key[0])), key[1]) not in ports:
                continue  # a packet of the routing protocol
            paths[key]["there" if forward else "back"].add(path.stem)
    assert len(paths) == 64
    for directions in paths.values():
        assert directions["there"] == directions["back"], directions
        assert len({name.split("-")[0] for name in directions["there"]}) == 1
    used = {name for directions in paths.values() for name in directions["there"]}
    assert len({name.split("-")[0] for name in used}) == 4, "some spine is never used"
    assert len(used) == 16, "some link of a spine is never used"


@pytest.mark.parametrize("threshold", ["10 packets", "30 KB"])
def test_step_marking_marks_packets_above_the_threshold(run_cell: Callable[..., Any], threshold: str) -> None:
    """RFC 8257 section 3.1: an arriving packet is marked if the queue is longer than K."""
    cell = run_cell(f"""
name: step
topology: {{star: {{hosts: 3}}}}
links: {{default: {{rate: 1 Gbit/s, delay: 10 us}}}}
switches: {{default: {{scheme: ecn, buffer: 128 KB, threshold: {threshold}}}}}
hosts: {{default: {{tcp: dctcp}}}}
workload:
  - incast: {{senders: 2, receiver: h1, size: 1 MB}}
observe: {{ports: {{s1>h1: every packet}}}}
duration: 50 ms
""")
    taps = cell.taps("s1>h1")
    events = np.concatenate(taps["events"])
    assert int(taps["summary"]["marked_packets"]) > 50
    arrivals = events[events["op"] == ENQUEUE]
    unit, limit = ("bytes", 30_000) if "KB" in threshold else ("packets", 10)
    found = arrivals[f"queue_{unit}"].astype(int) - (arrivals["bytes"].astype(int) if unit == "bytes" else 1)
    ect = (arrivals["ecn"] & 3) != 0
    expected = arrivals["packet"][(found > limit) & ect]
    assert sorted(events["packet"][events["op"] == MARK].tolist()) == sorted(expected.tolist())
    assert sum(flow["ce_marks"] for flow in cell.flows()) > 0
