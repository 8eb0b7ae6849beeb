# SPDX-License-Identifier: Apache-2.0
"""Route hints: a packet takes the route of the previous one to its address while the routing table is unchanged."""

from __future__ import annotations

import json
from pathlib import Path

from qbed.substrates.toolchain import find_toolchain
from qbed.substrates.virtual.guest import boot
from qbed.testing import CellOutput, write_plan

from qbed_testing.running import RunningLab

DIAMOND = """
name: diamond
topology:
  explicit:
    nodes: {h1..h2: host, s1..s4: switch}
    links: [{ends: [h1, s1]}, {ends: [s1, s2..s3]}, {ends: [s2..s3, s4]}, {ends: [s4, h2]}]
links: {default: {rate: 1 Gbit/s, delay: 5 us}}
switches: {default: {scheme: droptail, buffer: 128 KB}}
hosts: {default: {tcp: cubic}}
workload: [{udp: {from: h1, to: h2, rate: 80 Mbit/s, packet: 1000 B}}]
observe: {queues: summary}
duration: 60 ms
"""
PARAMETERS = "/sys/module/qlink/parameters"


def run_diamond(folder: Path, hints: str) -> tuple[int, CellOutput]:
    """Ten packets a millisecond: 20 ms via s2, 20 ms via s3, 10 ms with another route to the source, and 10 ms with
    reverse path filtering, which drops them.
    """
    plan = write_plan(folder, DIAMOND)
    with boot(find_toolchain(), folder, plan, "lab") as guest:
        lab = RunningLab(guest)

        def run_on(node: str, *argv: str) -> str:
            status, output = lab.run(node, *argv)
            assert status == 0, (argv, output)
            return output

        lab.wait_until_ready()
        run_on("s1", "sh", "-c", f"echo {hints} > {PARAMETERS}/hints")
        (multipath,) = (
            route
            for route in json.loads(run_on("s1", "ip", "-j", "-4", "route"))
            if len(route.get("nexthops", [])) == 2
        )
        by = [("via", hop["gateway"], "dev", hop["dev"]) for hop in multipath["nexthops"]]
        shown = [
            json.loads(run_on(host, "ip", "-j", "-4", "address", "show", "scope", "global")) for host in ("h1", "h2")
        ]
        source, target = (devices[0]["addr_info"][0]["local"] for devices in shown)
        run_on("s1", "ip", "route", "replace", multipath["dst"], *by[0])
        guest.send({"command": "workloads", "id": 1000})
        run_on("h1", "sleep", "1.02")
        run_on("s1", "ip", "route", "add", f"{target}/32", *by[1])  # a more specific route
        run_on("h1", "sleep", "0.02")
        run_on("s1", "ip", "route", "add", f"{source}/32", *by[0])
        run_on("h1", "sleep", "0.01")
        run_on("s1", "sh", "-c", "echo 1 > /proc/sys/net/ipv4/conf/all/rp_filter")
        run_on("h1", "sleep", "0.01")
        hinted = int(run_on("h1", "cat", f"{PARAMETERS}/hinted"))
        lab.stop()
    return hinted, CellOutput(plan, folder)


def test_a_changed_route_takes_effect_immediately(tmp_path: Path) -> None:
    many, fast = run_diamond(tmp_path / "fast", "Y")
    none, plain = run_diamond(tmp_path / "plain", "N")
    assert many > 1000 and none == 0
    assert fast.digest() == plain.digest()
    sent = {port: int(fast.taps(port)["summary"]["sent_packets"]) for port in ("h1>s1", "s1>s2", "s1>s3", "s4>h2")}
    assert abs(sent["s1>s2"] - 200) < 20 and abs(sent["s1>s3"] - 300) < 20, sent
    assert sent["h1>s1"] > 580 and sent["s4>h2"] == sent["s1>s2"] + sent["s1>s3"], "filtered packets are not forwarded"
