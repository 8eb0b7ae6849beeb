# SPDX-License-Identifier: Apache-2.0
"""A Clos of 9,800 nodes in 10 parts: whether it completes, its memory, and its rate against one of 980 nodes."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from pathlib import Path

from bench.harness import Cell, Cost, Figure, cores, measured, pinned

LAB = """
name: clos
topology: {{clos: {{hosts: 60, racks: {racks}, spines: {spines}}}}}
links:
  default: {{rate: 10 Gbit/s, delay: 5 us}}
  racks: {{rate: 40 Gbit/s}}
switches: {{default: {{scheme: droptail, buffer: 256 KB}}}}
hosts: {{default: {{tcp: cubic}}}}
workload:
  - arrivals: {{from: "h*", to: "h*", interval: {interval}, size: {{published: web-search}}}}
observe: {{queues: summary}}
duration: {duration}
parts: {parts}
"""
SAMPLE_S = 2.0


class ChildrensMemory:
    """Samples the memory of this process's children: the sum of their proportional set sizes (PSS)."""

    def __init__(self) -> None:
        self.peak_bytes = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> ChildrensMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(SAMPLE_S):
            pids = [pid for task in Path("/proc/self/task").glob("*/children") for pid in task.read_text().split()]
            self.peak_bytes = max(self.peak_bytes, sum(map(_pss_bytes, pids)))


def _pss_bytes(pid: str) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:  # it has ended
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


def _cost(text: str) -> tuple[Cost, int, int]:
    """The cost of a run, its packet-hops, and the largest memory of its guests in bytes."""
    cell = Cell(text)
    with ChildrensMemory() as memory:
        cost = measured(cell.run)
    hops = cell.packet_hops()
    cell.close()
    return cost, hops, memory.peak_bytes


def measure(rounds: int) -> list[Figure]:
    del rounds  # one run takes minutes
    rates, figures = [], []
    for racks, spines, interval, parts in ((16, 4, "4500 ns", 1), (160, 40, "450 ns", 10)):
        lab = {"racks": racks, "spines": spines, "interval": interval, "parts": parts}
        nodes = racks * 61 + spines
        with pinned(cores()[-1]) if parts == 1 else nullcontext():
            empty, few, _ = _cost(LAB.format(duration="1 us", **lab))  # first: its memory is kept for the other
            full, hops, peak = _cost(LAB.format(duration="10 ms", **lab))
        rates.append((hops - few) / (full.cpu_s - empty.cpu_s) / 1e6)
        figures += [
            Figure(f"{nodes} nodes, {parts} parts: wall, on {len(cores())} cores", full.wall_s, "s"),
            Figure(f"{nodes} nodes: packet-hops", hops / 1e6, "M"),
            Figure(f"{nodes} nodes: packet-hops a CPU second", rates[-1], "M/s"),
            Figure(f"{nodes} nodes: largest memory of all guests", peak / 2**30, "GiB", 8 if parts == 10 else None),
        ]
    return [*figures, Figure("rate at 9,800 nodes / rate at 980", rates[1] / rates[0], "", 0.7, ">=")]
