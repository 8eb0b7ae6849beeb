# SPDX-License-Identifier: Apache-2.0
"""A packet takes the route that the last one to its address took, as long as that is what the stack would find."""

from __future__ import annotations

import json
from pathlib import Path

from qbed.substrates.toolchain import find_toolchain
from qbed.substrates.virtual.guest import boot

from qbed_testing.cells import CellOutput, RunningLab, write_plan

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


def forwarded(folder: Path, hints: str) -> tuple[int, CellOutput]:
    """Ten packets a millisecond: 20 ms by s2, 20 ms by s3, 10 ms while their source's route leads elsewhere, 10 ms
    while such packets are refused.
    """
    plan = write_plan(folder, DIAMOND)
    with boot(find_toolchain(), folder, plan, "lab") as guest:
        lab = RunningLab(guest)

        def on(node: str, *argv: str) -> str:
            status, output = lab.run(node, *argv)
            assert status == 0, (argv, output)
            return output

        lab.wait_until_ready()
        on("s1", "sh", "-c", f"echo {hints} > {PARAMETERS}/hints")
        (both,) = (
            route for route in json.loads(on("s1", "ip", "-j", "-4", "route")) if len(route.get("nexthops", [])) == 2
        )
        by = [("via", hop["gateway"], "dev", hop["dev"]) for hop in both["nexthops"]]
        shown = [json.loads(on(host, "ip", "-j", "-4", "address", "show", "scope", "global")) for host in ("h1", "h2")]
        source, target = (devices[0]["addr_info"][0]["local"] for devices in shown)
        on("s1", "ip", "route", "replace", both["dst"], *by[0])
        guest.send({"command": "workloads", "id": 1000})
        on("h1", "sleep", "1.02")
        on("s1", "ip", "route", "add", f"{target}/32", *by[1])  # beside the other, which stays as it was
        on("h1", "sleep", "0.02")
        on("s1", "ip", "route", "add", f"{source}/32", *by[0])
        on("h1", "sleep", "0.01")
        on("s1", "sh", "-c", "echo 1 > /proc/sys/net/ipv4/conf/all/rp_filter")
        on("h1", "sleep", "0.01")
        hinted = int(on("h1", "cat", f"{PARAMETERS}/hinted"))
        lab.stop()
    return hinted, CellOutput(plan, folder)


def test_a_route_that_changes_is_taken_at_once(tmp_path: Path) -> None:
    many, fast = forwarded(tmp_path / "fast", "Y")
    none, plain = forwarded(tmp_path / "plain", "N")
    assert many > 1000 and none == 0
    assert fast.digest() == plain.digest()
    sent = {port: int(fast.taps(port)["summary"]["sent_packets"]) for port in ("h1>s1", "s1>s2", "s1>s3", "s4>h2")}
    assert abs(sent["s1>s2"] - 200) < 20 and abs(sent["s1>s3"] - 300) < 20, sent
    assert sent["h1>s1"] > 580 and sent["s4>h2"] == sent["s1>s2"] + sent["s1>s3"], "what is refused goes nowhere"
