# SPDX-License-Identifier: Apache-2.0
"""100 MB of TCP Cubic through 10 Gb/s: everything (boot, set-up, results) against ns-3 simulating the same."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

from bench.harness import RESULTS, Cell, Figure, build, side_by_side

LAB = """
name: versus-ns3
topology: {star: {hosts: 2}}
links: {default: {rate: 10 Gbit/s, delay: 5 us}}
switches: {default: {scheme: droptail, buffer: 128 KB}}
hosts: {default: {tcp: cubic}}
workload:
  - flow: {from: h1, to: h2, size: 100 MB}
observe: {queues: summary}
duration: 100 ms
"""
MODULES = ("applications", "core", "internet", "network", "point-to-point", "traffic-control")


def measure(rounds: int) -> list[Figure]:
    if not Path("/usr/include/ns3").is_dir():
        subprocess.run(["tools/apt", "libns3-dev"], check=True)
    source = Path(__file__).parent / "ns3" / "dumbbell.cc"
    flags = ["-std=c++17", *(f"-lns3-{module}" for module in MODULES)]
    ns3 = build(source, RESULTS / "ns3-dumbbell", *flags)
    cell = Cell(LAB)
    output = RESULTS / "ns3.out"

    def simulate() -> None:
        with output.open("w") as stream:
            subprocess.run([ns3], stdout=stream, check=True)

    ours, theirs = side_by_side(rounds, cell.run, simulate)
    flow = json.loads((cell.out / "flows.ndjson").read_text())
    assert flow["status"] == "complete" and flow["received_bytes"] == 100_000_000, flow
    simulated = json.loads(output.read_text())
    cell.close()
    shutil.rmtree(cell.folder, ignore_errors=True)
    return [
        Figure("qbed, wall", ours.wall_s, "s"),
        Figure("ns-3 3.37, wall", theirs.wall_s, "s"),
        Figure("qbed / ns-3, wall", ours.wall_s / theirs.wall_s, "", 0.3),
        Figure("qbed / ns-3, CPU", ours.cpu_s / theirs.cpu_s, ""),
        Figure("virtual time of the transfer, qbed", (flow["end_ns"] - flow["start_ns"]) / 1e6, "ms"),
        Figure("virtual time of the transfer, ns-3", simulated["end_ns"] / 1e6, "ms"),
    ]
