# SPDX-License-Identifier: Apache-2.0
"""A P4 switch in the guest's kernel against Linux's router in its place: datagrams, a stream of TCP."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench.harness import Cost, Figure, side_by_side
from qbed.substrates.toolchain import find_toolchain

ROOT = Path(__file__).parents[1]
RUN = ROOT / "kernel" / "tests" / "guest" / "run"
PROGRAMS = ("droptail", "stamp")
PACKETS, FEW = 400_000, 1_000
PAYLOADS = {64: 64 - 42, 1500: 1514 - 42}
"""Numbers of frames of 64 B, and of packets of 1500 B."""
MEGABYTES = 400
HOPS = 2
MIN_SHARE, MAX_TIME = 0.8, 1.2


def scenario(made: Path | None, packets: int, payload: int, megabytes: int) -> Callable[[], object]:
    """kernel/tests/guest/p4_scenarios.py: `routed`; no program is Linux's router."""
    toolchain = find_toolchain()
    environment = os.environ | {
        "QBED_LINUX": str(toolchain.kernel),
        "QBED_MODULES": str(toolchain.folder / "modules"),
        "QBED_P4": str(made or ""),
    }
    arguments = f"routed,{int(made is not None)},{packets},{payload},{megabytes}"
    return lambda: subprocess.run([RUN, arguments], env=environment, check=True, capture_output=True)


def make(program: str, folder: Path) -> Path:
    """The program's image, and routes to both hosts."""
    made = folder / program
    made.mkdir()
    cargo = f"{ROOT}/tools/cargo run --quiet --locked --release --package qbed-p4kernel --example routed".split()
    subprocess.run([*cargo, ROOT / f"schemes/{program}/p4/{program}.json", made], check=True)
    return made


def datagrams(rounds: int, switches: dict[str, Path | None], size: int) -> list[Figure]:
    counts = [(made, packets) for made in switches.values() for packets in (PACKETS, FEW)]
    costs = iter(side_by_side(rounds, *(scenario(made, packets, PAYLOADS[size], 0) for made, packets in counts)))
    hops = {name: (PACKETS - FEW) * HOPS / spent(next(costs), next(costs)).cpu_s for name in switches}
    figures = [Figure(f"{size} B, {name}: packet-hops a CPU second", rate / 1e6, "M/s") for name, rate in hops.items()]
    return figures + [
        Figure(f"{size} B, {name} / router, CPU", hops[name] / hops["router"], "", MIN_SHARE, ">=") for name in PROGRAMS
    ]


def stream(rounds: int, switches: dict[str, Path | None]) -> list[Figure]:
    sizes = [(made, megabytes) for made in switches.values() for megabytes in (MEGABYTES, 0)]
    costs = iter(side_by_side(rounds, *(scenario(made, FEW, PAYLOADS[64], megabytes) for made, megabytes in sizes)))
    times = {name: spent(next(costs), next(costs)).wall_s for name in switches}
    figures = [Figure(f"{MEGABYTES} MB of TCP, {name}: wall", time, "s") for name, time in times.items()]
    return figures + [
        Figure(f"{MEGABYTES} MB of TCP, {name} / router, wall", times[name] / times["router"], "", MAX_TIME)
        for name in PROGRAMS
    ]


def spent(much: Cost, little: Cost) -> Cost:
    return Cost(much.wall_s - little.wall_s, much.cpu_s - little.cpu_s)


def measure(rounds: int) -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="qbed-bench-") as folder:
        switches: dict[str, Path | None] = {"router": None}
        switches |= {program: make(program, Path(folder)) for program in PROGRAMS}
        figures = [figure for size in PAYLOADS for figure in datagrams(rounds, switches, size)]
        return figures + stream(rounds, switches)
