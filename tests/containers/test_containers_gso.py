# SPDX-License-Identifier: Apache-2.0
"""TCP of an interactive lab in real time crosses between containers as GSO packets; its queues have frames only."""

from __future__ import annotations

import hashlib
import json
import random
from pathlib import Path

import pytest

from qbed_testing.container_labs import docker, lost, qbed, wait_until, write_lab

LAB = """\
name: NAME
topology: {dumbbell: {left: 1, right: 1}}
links: {default: {rate: 1 Gbit/s, delay: 5 us}}
switches: {default: {scheme: droptail, buffer: 2 MB}}
hosts: {default: {tcp: cubic, kernel: KERNEL}}
duration: 100 ms
"""
BYTES = 16_000_000
FRAMES = BYTES / 1448
RECEIVE = """
import hashlib, socket
listener = socket.create_server(("", 7))
print("listening", flush=True)
connection, _ = listener.accept()
seen = hashlib.sha256()
while part := connection.recv(1 << 18):
    seen.update(part)
print(seen.hexdigest(), flush=True)
"""
SEND = """
import random, socket, sys
with socket.create_connection(("h2", 7)) as connection:
    connection.sendall(random.Random(3).randbytes(int(sys.argv[1])))
"""


@pytest.mark.parametrize("kernel", ["host", "qbed"])
def test_tcp_crosses_as_gso_packets(kernel: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    name = f"qbed-t-gso-{kernel}"
    lab = write_lab(tmp_path, name, LAB.replace("KERNEL", kernel))
    request.addfinalizer(lambda: qbed(tmp_path, "down", "--all"))
    done = qbed(tmp_path, "up", str(lab), "--on", "containerlab", "--dilate", "1")
    assert done.returncode == 0, done.stderr
    started = qbed(tmp_path, "exec", name, "h2", "-d", "--", "python3", "-c", RECEIVE)
    received = Path(started.stdout.split()[-1])
    wait_until(lambda: "listening" in received.read_text(), "h2 does not listen")
    done = qbed(tmp_path, "exec", name, "h1", "--", "python3", "-c", SEND, str(BYTES))
    assert done.returncode == 0, done.stderr
    wait_until(lambda: len(received.read_text().split()) == 2, "h2 has not received everything")
    expected = hashlib.sha256(random.Random(3).randbytes(BYTES)).hexdigest()
    assert received.read_text().split()[1] == expected

    for switch in ("s1", "s2"):
        ends = json.loads(qbed(tmp_path, "exec", name, switch, "--", "ip", "-j", "-s", "link").stdout)
        busiest = max((end["stats64"]["rx"] for end in ends), key=lambda counted: counted["bytes"])
        assert busiest["packets"] >= FRAMES and 1400 < busiest["bytes"] / busiest["packets"] <= 1514
    if kernel == "host":  # TSO: TCP sends at least two segments together
        assert packets(name, "h1", "tx") < FRAMES * 0.75
    assert packets(name, "h2", "rx") < FRAMES
    assert lost(tmp_path) == "0"


def packets(lab: str, node: str, direction: str) -> int:
    """Packets that crossed the interface of a node's container; a GSO packet counts as one."""
    file = f"/sys/class/net/eth0/statistics/{direction}_packets"
    return int(docker("exec", f"clab-{lab}-{node}", "cat", file))
