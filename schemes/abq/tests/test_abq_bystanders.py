# SPDX-License-Identifier: Apache-2.0
"""ABQ and traffic that it does not target: the switch's own connections, data of the same connection, hosts without
ECN.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from test_abq import ACK, FIN, SYN, arrivals, departures, events

from qbed.plan.model import Plan
from qbed.schemes.declaration import registry
from qbed.testing import CellOutput

LAB = """
name: bystanders
addressing: {addressing}
topology: {{star: {{hosts: 2}}}}
links: {{default: {{rate: 1 Gbit/s, delay: 20 us}}, h1-s1: {{rate: 100 Mbit/s}}}}
switches: {{default: {{scheme: abq, buffer: 128 KB, threshold: 20 packets}}}}
hosts: {{default: {{tcp: dctcp, rto_min: 10 ms}}}}
workload: [{{flow: {{from: h2, to: h1, size: 1 KB}}}}]
duration: 10 s
"""
TC = ("env", "TC_LIB_DIR=/mnt/tc", "tc")

TALK = """
import socket, sys, threading, time
end, address = sys.argv[1:]
sockets = []
if end == "server":
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 7000), family=family) as listener:
        sockets = [listener.accept()[0] for _ in range(8)]
else:
    sockets = [socket.create_connection((address, 7000)) for _ in range(8)]
def read(peer):
    while peer.recv(1 << 16):
        pass
readers = [threading.Thread(target=read, args=(peer,)) for peer in sockets]
for reader in readers:
    reader.start()
for step in range(200):
    for peer in sockets:
        peer.sendall(bytes(1000 if end == "server" else 12500))
    time.sleep(0.001)
for peer in sockets:
    peer.shutdown(socket.SHUT_WR)
for reader in readers:
    reader.join()
"""
"""Eight connections in which both ends send at the same time, the client as much as the link carries."""


def qdisc(lab: Any) -> dict[str, Any]:
    status, output = lab.run("s1", *TC, "-s", "-j", "qdisc", "show", "dev", "eth0", "root")
    assert status == 0, output
    found: dict[str, Any] = json.loads(output)[0]
    return found


def counted(lab: Any, node: str, name: str) -> int:
    """A counter of /proc/net/netstat."""
    status, output = lab.run(node, "cat", "/proc/net/netstat")
    assert status == 0, output
    names, values = (line.split() for line in output.splitlines() if line.startswith("TcpExt:"))
    return int(values[names.index(name)])


@pytest.mark.parametrize("addressing", ["ipv4", "ipv6"])
def test_packets_for_the_switch_itself_are_not_held(
    tc_plugins: None, running_lab: Callable[[str], Any], addressing: str
) -> None:
    """For example BGP's: holding its acknowledgements would delay BGP's data."""
    with running_lab(LAB.format(addressing=addressing)) as lab:
        status, output = lab.run("h1", "sh", "-c", "ip -j addr show dev eth0")
        address = next(
            entry["local"] for entry in json.loads(output)[0]["addr_info"] if entry["scope"] == "global"
        )  # fmt: skip
        lab.background("h1", "python3", "-c", TALK, "server", address)
        status, output = lab.run("s1", "python3", "-c", TALK, "client", address)
        assert status == 0, output
        found = qdisc(lab)
        assert found["entries_cs"] > 10
        assert found["holds"] == 0


def test_data_releases_held_acks_of_its_connection(tc_plugins: None, running_lab: Callable[[str], Any]) -> None:
    """Behind the data, PAWS would discard them for their timestamps, and their ECE with them."""
    with running_lab(LAB.format(addressing="ipv4")) as lab:
        lab.background("h1", "python3", "-c", TALK, "server", "10.0.0.1")
        status, output = lab.run("h2", "python3", "-c", TALK, "client", "10.0.0.1")
        assert status == 0, output
        found = qdisc(lab)
        assert found["holds"] > 100 and found["overtaken"] > 20
        assert counted(lab, "h2", "PAWSEstab") == 0


def test_a_change_of_the_limit_changes_the_child(tc_plugins: None, running_lab: Callable[[str], Any]) -> None:
    with running_lab(LAB.format(addressing="ipv4")) as lab:

        def shown(verb: str, *words: str) -> list[tuple[str, Any]]:
            status, output = lab.run("s1", *TC, "qdisc", verb, "dev", "eth0", "root", "handle", "1:", "abq", *words)
            assert status == 0, output
            status, output = lab.run("s1", *TC, "-j", "qdisc", "show", "dev", "eth0", "invisible")
            assert status == 0, output
            return [(entry["kind"], entry.get("options", {}).get("limit")) for entry in json.loads(output)[1:]]

        threshold = ("threshold", "5p")
        lab.run("s1", *TC, "qdisc", "del", "dev", "eth0", "root")
        assert shown("add", "limit", "30kb", *threshold) == [("bfifo", 30720)]
        assert shown("change", "limit", "60kb", *threshold) == [("bfifo", 61440)]
        assert shown("change", "limit", "50p", *threshold) == [("pfifo", 50)]
        assert shown("change", "limit", "50p", "threshold", "6p") == [("pfifo", 50)]
        status, output = lab.run("s1", *TC, "qdisc", "add", "dev", "eth0", "parent", "1:1", "pfifo", "limit", "7")
        assert status == 0, output
        assert shown("change", "limit", "60kb", *threshold) == [("pfifo", 7)], "a grafted child is not changed"


INCAST = """
name: forged
topology: {star: {hosts: 13}}
links: {default: {rate: 1 Gbit/s, delay: 40 us}}
switches: {default: {scheme: abq, buffer: 400 KB, threshold: 20 packets}}
hosts: {default: {tcp: TCP, rto_min: 10 ms}}
workload:
  - incast: {senders: 12, receiver: h1, size: 64 KB, start: 1 ms, spread: 100 us}
  - flow: {from: h1, to: h2, size: 30 KB, start: 1500 us}
observe: {queues: every packet}
capture: [s1>h1]
duration: 200 ms
"""


def test_a_host_without_ecn_ignores_ece(run_cell: Callable[..., CellOutput]) -> None:
    """RFC 3168: ECE has a meaning only on connections that negotiated ECN."""
    cells = {tcp: run_cell(INCAST.replace("TCP", tcp)) for tcp in ("reno", "dctcp")}
    corrected = {}
    for tcp, cell in cells.items():
        queue = cell.counters().queues[cell.queue("s1>h1")]
        corrected[tcp] = registry()["abq"].decode(bytes.fromhex(queue.xstats))["corrected"]
        assert queue.drops == 0
    assert corrected["reno"] > 30 and corrected["dctcp"] > 30
    counted = {tcp: sum(flow["ce_marks"] for flow in cell.flows()) for tcp, cell in cells.items()}
    assert counted["reno"] == 0 < counted["dctcp"]


def test_the_last_ack_of_the_handshake_is_held(run_cell: Callable[..., CellOutput]) -> None:
    """A switch without connection state cannot distinguish it. The peer's accept is delayed with it, at most while the
    output queue is above X, or until the connection's first data.
    """
    cell = run_cell(INCAST.replace("TCP", "dctcp"))
    flow = cell.flows()[-1]
    receiver = flow["src_address"]
    all_events = events(cell)
    received = [
        (time, segment) for time, segment, _ in arrivals(cell, receiver) if segment.destination == flow["dst_address"]
    ]
    forwarded = {segment: time for time, segment in departures(cell, all_events, receiver)}
    ports = received[[bool(segment.flags & SYN) and not segment.flags & ACK for _, segment in received].index(True)][
        1
    ].ports
    connection = [
        (time, segment) for time, segment in received if segment.ports == ports and not segment.flags & (SYN | FIN)
    ]
    (time, last), (first_data, data) = connection[0], next(entry for entry in connection if entry[1].payload)
    assert last.is_pure_ack and last.payload == 0
    assert time < forwarded[last.with_ece(True)] <= first_data
    assert forwarded[data] == first_data


SLOW = """
import socket, sys, time
end, address = sys.argv[1:]
if end == "server":
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        listener.bind((address, 7001))
        listener.listen()
        peer = listener.accept()[0]
    time.sleep(0.1)
    while peer.recv(1 << 16):
        pass
else:
    time.sleep(0.1)
    with socket.create_connection((address, 7001)) as peer:
        peer.sendall(bytes(20000))
        peer.shutdown(socket.SHUT_WR)
        peer.recv(1)
"""
"""One connection; its server does not read until its window is full."""


def test_a_window_update_is_held(running_lab: Callable[[str], Any], tmp_path: Path) -> None:
    """A pure window update is held like acknowledgements."""
    watched = "workload:", "observe: {queues: every packet}\ncapture: [s1>h1]\nworkload:"
    with running_lab(LAB.format(addressing="ipv4").replace(*watched)) as lab:
        for script in (TALK, SLOW):
            lab.background("h1", "python3", "-c", script, "server", "10.0.0.1")
        lab.background("h2", "python3", "-c", TALK, "client", "10.0.0.1")
        status, output = lab.run("h2", "python3", "-c", SLOW, "client", "10.0.0.1")
        assert status == 0, output
        lab.stop()
    cell = CellOutput(Plan.loads((tmp_path / "live" / "plan.json").read_bytes()), tmp_path / "live")
    received = [(time, segment) for time, segment, _ in arrivals(cell, "10.0.0.1") if 7001 in segment.ports]
    forwarded = [
        (time, segment) for time, segment in departures(cell, events(cell), "10.0.0.1", 2) if 7001 in segment.ports
    ]
    assert [segment.with_ece(True) for _, segment in received] == [segment.with_ece(True) for _, segment in forwarded]
    acks = [(*packet, left) for packet, (left, _) in zip(received, forwarded, strict=True) if packet[1].is_pure_ack]
    updates = [after for before, after in pairwise(acks) if before[1].ack == after[1].ack]
    assert any(left > time for time, _, left in updates), acks
