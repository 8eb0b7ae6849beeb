# SPDX-License-Identifier: Apache-2.0
"""The host agent against a plain blocking sender and receiver (a thread each) on the same lab, less the empty lab."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

from bench.harness import RESULTS, Cell, Figure, build, run_program, side_by_side
from qbed.substrates.toolchain import find_toolchain

LAB = """
name: agent
topology: {{star: {{hosts: {hosts}}}}}
links: {{default: {{rate: 10 Gbit/s, delay: 5 us}}}}
switches: {{default: {{scheme: droptail, buffer: 4 MB}}}}
hosts: {{default: {{tcp: cubic}}}}
workload:
  - flows: {{pairs: [{pairs}], size: {size} B}}
observe: {{queues: summary}}
duration: {duration} us
"""
FLOWS = ((1, 100_000_000), (36, 3_000_000), (900, 110_000))
MAX_HOSTS = 60


def measure(rounds: int) -> list[Figure]:
    program = build(Path(__file__).parent / "blocking" / "blocking.c", RESULTS / "blocking", "-pthread", "-Wall")
    figures = []
    for flows, size in FLOWS:
        hosts = min(flows, MAX_HOSTS)
        pairs = ", ".join(f"[h{number % hosts + 1}, h{hosts + 1}]" for number in range(flows))
        text = LAB.format(hosts=hosts + 1, pairs=pairs, size=size, duration=flows * size * 8 // 9000 + 3_000_000)
        cell, empty, plain = Cell(text), Cell(re.sub(r"size: \d+ B", "size: 1 B, start: 1 us", text)), Cell(text)
        receiver = plain.plan.nodes[hosts].addresses[0]
        argv = (str(program), str(flows), str(hosts), str(size), receiver)
        blocking = partial(run_program, find_toolchain(), plain, *argv)
        agent, program_cost, idle = side_by_side(rounds, cell.run, blocking, empty.run)
        lines = (cell.out / "flows.ndjson").read_text().count('"status":"complete"')
        assert lines == flows, f"{lines} of {flows} flows complete"
        figures += [
            Figure(f"{flows} flows: agent, CPU", agent.cpu_s - idle.cpu_s, "s"),
            Figure(f"{flows} flows: plain program, CPU", program_cost.cpu_s - idle.cpu_s, "s"),
            Figure(
                f"{flows} flows: agent / plain, CPU",
                (agent.cpu_s - idle.cpu_s) / (program_cost.cpu_s - idle.cpu_s),
                "",
                1.05,
            ),
        ]
        for used in (cell, empty, plain):
            used.close()
    return figures
