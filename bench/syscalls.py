# SPDX-License-Identifier: Apache-2.0
"""System calls a second of a guest process, and the agent's 10,000 short flows, by kernel series.

Every toolchain of this version that is built here is measured, side by side. QBED_BEFORE names another one (a folder
with a manifest.json, such as an earlier version's in the cache), and the others are compared with it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bench.harness import (
    LIMITS,
    RESULTS,
    Cell,
    Figure,
    build,
    run_program,
    side_by_side,
)
from qbed.substrates.toolchain import Toolchain, built_toolchains, toolchain_in
from qbed.substrates.virtual.substrate import VirtualSubstrate

CALLS = 200_000
FLOWS = 10_000
LAB = """
name: syscalls
topology: {{star: {{hosts: 3}}}}
links: {{default: {{rate: 10 Gbit/s, delay: 5 us}}}}
switches: {{default: {{scheme: droptail, buffer: 256 KB}}}}
hosts: {{default: {{tcp: cubic}}}}
workload:
  - arrivals: {{from: [h1, h2], to: h3, interval: 20 us, spacing: fixed, size: 1 KB, limit: {flows}}}
observe: {{queues: summary}}
duration: 1 s
"""
GOALS = {"6.12": 1.3, "7.2": 3.0}


def run_flows(toolchain: Toolchain, cell: Cell) -> None:
    VirtualSubstrate(toolchain).cell(cell.folder, cell.plan).run(LIMITS, lambda fraction: None)
    for path in (cell.out).iterdir():
        path.unlink()


def toolchains() -> dict[str, Toolchain]:
    """By name: `before`, if there is one, then the series that are built."""
    named = os.environ.get("QBED_BEFORE")
    found = {"before": toolchain_in(Path(named))} if named else {}
    return found | built_toolchains()


def measure(rounds: int) -> list[Figure]:
    program = build(Path(__file__).parent / "blocking" / "getpid.c", RESULTS / "getpid", "-Wall")
    found = toolchains()
    busy, idle = Cell(LAB.format(flows=FLOWS)), Cell(LAB.format(flows=1))
    actions: list[Callable[[], object]] = []
    for toolchain in found.values():
        actions += [
            partial(run_program, toolchain, idle, str(program), str(CALLS)),
            partial(run_program, toolchain, idle, str(program), "1"),
            partial(run_flows, toolchain, busy),
            partial(run_flows, toolchain, idle),
        ]
    costs = side_by_side(rounds, *actions)
    figures, rates = [], {}
    for number, name in enumerate(found):
        calls, none, flows, single = (cost.cpu_s for cost in costs[4 * number : 4 * number + 4])
        rates[name] = CALLS / (calls - none), FLOWS / (flows - single)
        figures.append(Figure(f"{name}: system calls a CPU second", rates[name][0] / 1e3, "k/s"))
        figures.append(Figure(f"{name}: short flows a CPU second", rates[name][1] / 1e3, "k/s"))
    for name in found:
        if name != "before" and "before" in found:
            for what, place in (("system calls", 0), ("short flows", 1)):
                ratio = rates[name][place] / rates["before"][place]
                figures.append(Figure(f"{name} / before, {what}", ratio, "", GOALS.get(name), ">="))
    busy.close()
    idle.close()
    return figures
