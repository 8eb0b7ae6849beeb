# SPDX-License-Identifier: Apache-2.0
"""A packet of the paced transport (qrate) against one of TCP: 1500 bytes at 10 Gbit/s through one switch, no agent."""

from __future__ import annotations

import os
import subprocess
from functools import partial
from pathlib import Path

from bench.harness import Figure, side_by_side
from qbed.substrates.toolchain import find_toolchain

RUN = Path(__file__).parents[1] / "kernel" / "tests" / "guest" / "run"
PACKETS, FEW = 600_000, 6_000
MOST = 1.2


def scenario(name: str) -> None:
    toolchain = find_toolchain()
    names = {"QBED_LINUX": str(toolchain.kernel), "QBED_MODULES": str(toolchain.folder / "modules")}
    subprocess.run([RUN, name], env=os.environ | names, check=True, capture_output=True)


def measure(rounds: int) -> list[Figure]:
    figures = []
    for flows in (1, 192):
        runs = [f"{name},{packets},{flows}" for name in ("speed", "speed_tcp") for packets in (PACKETS, FEW)]
        rate, rate_few, tcp, tcp_few = side_by_side(rounds, *(partial(scenario, run) for run in runs))
        share = 1e6 / (PACKETS - FEW)
        ours, theirs = (rate.wall_s - rate_few.wall_s) * share, (tcp.wall_s - tcp_few.wall_s) * share
        figures += [
            Figure(f"{flows} flows: a packet, wall", ours, "us"),
            Figure(f"{flows} flows: a packet of TCP, wall", theirs, "us"),
            Figure(f"{flows} flows: rate / TCP, wall", ours / theirs, "", MOST),
            Figure(
                f"{flows} flows: rate / TCP, CPU", (rate.cpu_s - rate_few.cpu_s) / (tcp.cpu_s - tcp_few.cpu_s), "", MOST
            ),
        ]
    return figures
