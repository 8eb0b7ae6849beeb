# SPDX-License-Identifier: Apache-2.0
"""Held ACKs are released when the queue is removed or replaced, or its device goes down."""

from __future__ import annotations

from typing import Any

import pytest

LAB = """
name: removal
topology: {star: {hosts: 2}}
links: {default: {rate: 1 Gbit/s, delay: 20 us}, h1-s1: {rate: 100 Mbit/s}}
switches: {default: {scheme: abq, buffer: 128 KB, threshold: 20 packets}}
hosts: {default: {tcp: dctcp, rto_min: 10 ms}}
workload: [{flow: {from: h2, to: h1, size: 1 KB}}]
duration: 10 s
"""
# Packets received by the switch and neither forwarded nor without a route: its held ACKs. No other packet stays in IP.
HELD = """awk '/^Ip: [0-9]/ {n = $4 - $6 - $7} /^IpExt: [0-9]/ {print n - $2}' /proc/net/snmp /proc/net/netstat"""
WAIT = f"for _ in $(seq 500); do [ $({HELD}) -lt 5 ] || break; sleep 0.0001; done; {HELD}"

ACTIONS = {
    "deleted": "tc qdisc del dev eth0 root",
    "replaced": "tc qdisc replace dev eth0 root pfifo limit 60",
    "device down": "ip link set eth0 down",
    "child replaced": "tc qdisc replace dev eth0 parent 1:1 handle 3: pfifo limit 60",
    "child deleted": "tc qdisc del dev eth0 parent 1:1",
}


@pytest.mark.parametrize("action", ACTIONS.values(), ids=ACTIONS.keys())
def test_held_acks_are_released_when_the_queue_is_removed(running_lab: Any, action: str) -> None:
    with running_lab(LAB) as lab:
        lab.background("h1", "sh", "-c", "iperf3 -s -1 >/dev/null 2>&1")
        lab.background("h2", "sh", "-c", "iperf3 -c 10.0.0.1 -t 1 -P 20 >/dev/null 2>&1")
        status, output = lab.run("s1", "sh", "-c", f"sleep 0.3; {WAIT}; {action} && {HELD}")
        assert status == 0, output
        before, after = (int(line) for line in output.split())
        assert before >= 5
        if "1:1" not in action:
            assert after == 0
        status, output = lab.run("s1", "sh", "-c", f"sleep 1.5; {HELD}")
        assert (status, output.split()) == (0, ["0"]), output
