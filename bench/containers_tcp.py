# SPDX-License-Identifier: Apache-2.0
"""TCP through switches in containers in real time, against plain Linux forwarding in the same containers.

The peer has the same images, nodes and links as Containerlab makes them, with addresses, routes and TSO. It is measured
without rates, and with `tbf` of the links' rates, as an engine on the machine's kernel would have. Nothing is pinned: a
lab on the wall clock has the whole machine, and so has its peer. Needs root, Docker and Containerlab (`make
containers`).
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.containers import (
    CLOSE_PING,
    PATIENCE_S,
    PING,
    Labs,
    address_of_h2,
    containerlab,
    idle_rtt_ms,
    is_possible,
    output_of,
    plain_topology,
    rtt_ms,
    transfer,
)
from bench.harness import Figure
from qbed.network.load import load_lab
from qbed.plan.compile import compile_lab
from qbed.plan.model import Plan

TOPOLOGIES = {1: "{star: {hosts: 2}}", 2: "{dumbbell: {left: 1, right: 1}}"}
RATES = ((1, 4, 2.0), (2, 1, None), (2, 2, 1.0))
"""Switches, rate of the links and goal for the goodput, both in Gbit/s."""
LINK_SHARE = 1448 / (1514 + 24)
"""Payload in a full frame with preamble, checksum and gap, over its length."""
TIME_S = "5"

Chain = list[tuple[tuple[str, str], tuple[str, str]]]
"""Links in a row, as (node, interface) of their ends."""


def measure(rounds: int) -> list[Figure]:
    if not is_possible():
        return []
    figures = []
    with tempfile.TemporaryDirectory(prefix="qbed-bench-") as name:
        labs = Labs(Path(name))
        plain = {number: through_plain(labs, number, rounds) for number in TOPOLOGIES}
        for number, measured in plain.items():
            for rate, (tcp, rtt) in measured.items():
                what = f"{number} switches, plain Linux, {f'tbf of {rate} Gbit/s' if rate else 'no rates'}"
                figures += [Figure(f"{what}: TCP", tcp, "Gbit/s"), Figure(f"{what}: idle RTT", rtt, "ms")]
        for number, rate, goal in RATES:
            tcp, rtt, close, lost = through_qbed(labs, number, rate, rounds)
            what = f"{number} switches, links of {rate} Gbit/s"
            figures += [
                Figure(f"{what}: TCP", tcp, "Gbit/s", goal, ">="),
                Figure(f"{what}: TCP / the link's limit", tcp / (rate * LINK_SHARE), ""),
                Figure(f"{what}: TCP / plain Linux with tbf", tcp / plain[number][rate][0], ""),
                Figure(f"{what}: packets lost outside the lab's queues", lost, "", 0),
                Figure(f"{what}: idle RTT", rtt, "ms", 0.3),
                Figure(f"{what}: RTT of requests 1 ms apart", close, "ms", 0.3),
                Figure(f"{what}: idle RTT / plain Linux with tbf", rtt / plain[number][rate][1], ""),
            ]
    return figures


def through_qbed(labs: Labs, number: int, rate: int, rounds: int) -> tuple[float, float, float, int]:
    """Goodput (Gbit/s), idle RTT and RTT of close requests (ms), and packets lost outside the lab's queues."""
    name = f"bench-tcp-{number}-{rate}"
    file = labs.write(name, TOPOLOGIES[number], f"{rate} Gbit/s", "0 ns")
    with labs.up(name, file):
        address = address_of_h2(labs, name)
        rtt, close = (
            min(idle_rtt_ms(labs, name, address, ping)[0] for _ in range(rounds)) for ping in (PING, CLOSE_PING)
        )
        ends = [transfer(labs, name, address, "--time", TIME_S)["end"] for _ in range(rounds)]
        header, row = labs.run("ps").splitlines()[:2]
        lost = int(row[header.index("LOST") :].split()[0])
    return max(end["sum_received"]["bits_per_second"] for end in ends) / 1e9, rtt, close, lost


def through_plain(labs: Labs, number: int, rounds: int) -> dict[int, tuple[float, float]]:
    """Goodput (Gbit/s) and idle RTT (ms) by the rate of the links; 0: none."""
    name = f"bench-tcp-{number}"
    file = labs.write(name, TOPOLOGIES[number], "1 Gbit/s", "0 ns")
    chain = chain_of(compile_lab(load_lab(file, {})))
    measured = {}
    with plain_lab(labs, name, file) as topology:
        address = configure(topology, chain)
        for rate in (0, *(rate for switches, rate, _ in RATES if switches == number)):
            for node, interface in (end for link in chain for end in link if rate):
                limits = f"rate {rate}gbit burst 64kb limit 512kb".split()
                inside(topology, node, "tc", "qdisc", "replace", "dev", interface, "root", "tbf", *limits)
            rtt = min(rtt_ms(inside(topology, "h1", *PING, address))[0] for _ in range(rounds))
            measured[rate] = max(iperf3(topology, address) for _ in range(rounds)) / 1e9, rtt
    return measured


@contextmanager
def plain_lab(labs: Labs, name: str, file: Path) -> Iterator[str]:
    """The name of a topology without qbed that is up."""
    path = plain_topology(labs, name, file)
    containerlab("deploy", path)
    try:
        yield f"{name}-plain"
    finally:
        containerlab("destroy", path, "--cleanup")


def inside(topology: str, node: str, *argv: str) -> str:
    return output_of(["docker", "exec", f"clab-{topology}-{node}", *argv], Path.cwd())


def configure(topology: str, chain: Chain) -> str:
    """Give the nodes of a chain of links addresses and routes. Returns the address of h2."""
    for index, (left, right) in enumerate(chain):
        for host, (node, interface) in ((1, left), (2, right)):
            inside(topology, node, "ip", "address", "add", f"10.9.{index}.{host}/24", "dev", interface)
            inside(topology, node, "ip", "link", "set", interface, "up")
            inside(topology, node, "ethtool", "-K", interface, "tx", "on")  # Containerlab disables it, and so TSO
    nodes = [chain[0][0][0], *(right for _, (right, _) in chain)]
    for at, node in enumerate(nodes):
        inside(topology, node, "sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward")
        for index in range(len(chain)):
            if index > at:
                inside(topology, node, "ip", "route", "add", f"10.9.{index}.0/24", "via", f"10.9.{at}.2")
            elif index < at - 1:
                inside(topology, node, "ip", "route", "add", f"10.9.{index}.0/24", "via", f"10.9.{at - 1}.1")
    return f"10.9.{len(chain) - 1}.2"


def chain_of(plan: Plan) -> Chain:
    """The links from h1 to h2."""
    links = [[(plan.nodes[end.node].name, end.interface) for end in (link.a, link.b)] for link in plan.links]
    chain, node = [], "h1"
    while node != "h2":
        link = next(link for link in links if node in (link[0][0], link[1][0]))
        links.remove(link)
        left, right = link if link[0][0] == node else reversed(link)
        chain.append((left, right))
        node = right[0]
    return chain


def iperf3(topology: str, address: str) -> float:
    """Goodput of one transfer from h1 to h2, in bit/s."""
    server = ["docker", "exec", f"clab-{topology}-h2", "iperf3", "--server", "--one-off", "--forceflush"]
    with subprocess.Popen(server, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        while "listening" not in process.stdout.readline():
            pass
        client = ("iperf3", "--client", address, "--json", "--time", TIME_S)
        report = json.loads(inside(topology, "h1", *client))
        process.communicate(timeout=PATIENCE_S)
    return float(report["end"]["sum_received"]["bits_per_second"])
