# SPDX-License-Identifier: Apache-2.0
"""The limit: the machine's own kernel forwards datagrams over veth, without rates and delays, on one core.

The namespaces, addresses and routes are those of the lab's plan, the pairs those of its flows. qbed's figure includes
TCP, both hosts, queues and results; the kernel's is UDP that is not read. Needs root.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.harness import Cell, Figure, cores, pinned, side_by_side
from bench.scale import labs
from qbed.plan.model import Node, Plan
from qbed.plan.workload import Flows

NODES = (3, 46)
PORT, SECONDS = 9, 3.0
PAYLOAD_BYTES, AT_ONCE = 1472, 44
"""Datagrams fill a packet of 1,500 bytes; so many are passed in one call, and segmented at the sender's interface."""
_DATAGRAMS = bytes(PAYLOAD_BYTES * AT_ONCE)
_UDP_SEGMENT = 103
_LIBC = ctypes.CDLL(None, use_errno=True)


class HostNetwork:
    """A plan's network in namespaces of the machine's kernel."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.names = [f"qbed-bench-{os.getpid()}-{number}" for number in range(len(plan.nodes))]

    def build(self) -> None:
        _ip(f"netns add {name}" for name in self.names)
        _ip(self._links())
        for number, node in enumerate(self.plan.nodes):
            _ip(self._node(number, node), "-n", self.names[number])
            settings = [f"net.ipv4.ip_forward={int(node.kind == 'switch')}", "net.ipv4.conf.all.rp_filter=0"]
            subprocess.run(["ip", "netns", "exec", self.names[number], "sysctl", "-q", "-w", *settings], check=True)

    def remove(self) -> None:
        for name in self.names:
            subprocess.run(["ip", "netns", "delete", name], check=False, stderr=subprocess.DEVNULL)

    def _links(self) -> Iterator[str]:
        for link in self.plan.links:
            a, b = link.a, link.b
            yield (
                f"link add {a.interface} netns {self.names[a.node]} mtu {link.mtu} gso_max_segs 1 type veth "
                f"peer {b.interface} netns {self.names[b.node]} mtu {link.mtu} gso_max_segs 1"
            )

    def _node(self, number: int, node: Node) -> Iterator[str]:
        ends = [end for link in self.plan.links for end in (link.a, link.b) if end.node == number]
        at_links = {address.split("/")[0] for end in ends for address in end.addresses}
        yield "link set lo up"
        yield from (f"address add {address}/32 dev lo" for address in node.addresses if address not in at_links)
        for end in ends:
            yield from (f"address add {address} dev {end.interface}" for address in end.addresses)
            yield f"link set {end.interface} gso_max_segs 1 up"
        for route in node.routes:
            hops = " ".join(
                f"nexthop dev {via.interface}" + (f" via {via.gateway}" if via.gateway else "") for via in route.via
            )
            yield f"route replace {route.to} {hops}"

    def sent(self) -> int:
        """Packets transmitted by all interfaces."""
        total = 0
        for name in self.names:
            shown = subprocess.run(["ip", "-n", name, "-j", "-s", "link"], check=True, capture_output=True).stdout
            total += sum(link["stats64"]["tx"]["packets"] for link in json.loads(shown) if link["ifname"] != "lo")
        return total

    @contextmanager
    def inside(self, node: int) -> Iterator[None]:
        """Sockets that are created here belong to the node."""
        with Path("/proc/self/ns/net").open() as outer, Path("/run/netns", self.names[node]).open() as inner:
            _setns(inner.fileno())
            try:
                yield
            finally:
                _setns(outer.fileno())

    @contextmanager
    def connected(self, source: int, target: int) -> Iterator[socket.socket]:
        """A socket of one node that sends to another, which does not read: so nothing but forwarding is measured."""
        with self.inside(source):
            sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with self.inside(target):
            receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with sender, receiver:
            receiver.bind(("", PORT))
            sender.connect((self.plan.nodes[target].addresses[0], PORT))
            sender.setsockopt(socket.IPPROTO_UDP, _UDP_SEGMENT, PAYLOAD_BYTES)
            yield sender


def _setns(descriptor: int) -> None:
    if _LIBC.setns(descriptor, 0):
        raise OSError(ctypes.get_errno(), "setns")


def _ip(commands: Iterator[str], *arguments: str) -> None:
    subprocess.run(["ip", *arguments, "-batch", "-"], input="\n".join(commands), text=True, check=True)


def host_rate(plan: Plan) -> float:
    """Packet-hops a second of the machine's kernel on one core: datagrams between the pairs of the plan's flows."""
    workload = plan.workloads[0]
    assert isinstance(workload, Flows)
    network = HostNetwork(plan)
    with ExitStack() as stack:
        stack.callback(network.remove)
        network.build()
        senders = [stack.enter_context(network.connected(source, target)) for source, target in workload.pairs]
        before, begun, sends = network.sent(), time.monotonic(), 0
        while (taken := time.monotonic() - begun) < SECONDS:
            for sender in senders:
                sender.send(_DATAGRAMS)
            sends += len(senders)
        hops = network.sent() - before
        assert hops >= sends * AT_ONCE * 2, "frames were lost"  # a path has two hops at least
        return hops / taken


def measure(rounds: int) -> list[Figure]:
    figures = []
    for nodes in NODES:
        load, rest = (Cell(text) for text in labs()[nodes])
        full, empty = side_by_side(rounds, load.run, rest.run)
        load.run()
        ours = load.packet_hops() / (full.cpu_s - empty.cpu_s)
        with pinned(cores()[-1]):
            limit = max(host_rate(load.plan) for _ in range(rounds))
        figures += [
            Figure(f"{nodes} nodes: packet-hops a second on one core, the machine's kernel", limit / 1e6, "M/s"),
            Figure(f"{nodes} nodes: packet-hops a CPU second, qbed", ours / 1e6, "M/s"),
            Figure(f"{nodes} nodes: qbed / the machine's kernel", ours / limit, ""),
        ]
        load.close()
        rest.close()
    return figures
