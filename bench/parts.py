# SPDX-License-Identifier: Apache-2.0
"""A lab in two parts, on two cores and on one, against the undivided lab: 200 and 1,000 nodes, and a star of 1,000."""

from __future__ import annotations

import json

from bench.harness import Cell, Cost, Figure, allowed, cores, measured, smallest
from bench.scale import STAR, labs
from qbed.substrates import PART_TIMES
from qbed.substrates.virtual.part_memory import SPINS

INCAST = "  - flows: {from: h1..h999, to: h1000, size: 1 MB}"


def turns(rounds: int, *runs: tuple[Cell, int]) -> list[Cost]:
    """The smallest cost of each cell on so many cores, run in turn."""
    costs: list[list[Cost]] = [[] for _ in runs]
    for _ in range(rounds):
        for (cell, count), found in zip(runs, costs, strict=True):
            with allowed(count):
                found.append(measured(cell.run))
    return [smallest(found) for found in costs]


def waited(cell: Cell) -> float:
    """The largest wait of a part for others, in seconds."""
    return float(max(row["waited_s"] for row in json.loads((cell.folder / PART_TIMES).read_text())))


def measure(rounds: int) -> list[Figure]:
    figures: list[Figure] = []
    if len(cores()) < 2:
        raise SystemExit("parts: needs 2 cores")
    goals = {200: (1.6, None), 1000: (2.0, 1.0)}
    for nodes, (on_two, on_one) in goals.items():
        text = labs()[nodes][0]
        one, two = Cell(text), Cell(text + "parts: 2\n")
        alone, both, single = turns(max(1, rounds // 2 if nodes == 1000 else rounds), (one, 1), (two, 2), (two, 1))
        figures += [
            Figure(f"{nodes} nodes, undivided, wall", alone.wall_s, "s"),
            Figure(f"{nodes} nodes, packet-hops", one.packet_hops() / 1e6, "M"),
            Figure(f"{nodes} nodes: undivided / 2 parts on 2 cores", alone.wall_s / both.wall_s, "", on_two, ">="),
            Figure(f"{nodes} nodes: 2 parts on 1 core / undivided, wall", single.wall_s / alone.wall_s, "", on_one),
            Figure(f"{nodes} nodes: CPU of 2 parts on 2 cores / undivided", both.cpu_s / alone.cpu_s, ""),
        ]
        with allowed(2):
            two.run()
        figures.append(Figure(f"{nodes} nodes: a part's longest wait, of {SPINS} spins first", waited(two), "s"))
        one.close()
        two.close()
    text = STAR.format(hosts=1000, workload=INCAST, duration="3 s")
    one, two = Cell(text), Cell(text + "parts: 2\n")
    alone, both = turns(rounds, (one, 1), (two, 2))
    figures.append(Figure("999 x 1 MB on a star: undivided, wall", alone.wall_s, "s"))
    figures.append(Figure("999 x 1 MB on a star: undivided / 2 parts on 2 cores", alone.wall_s / both.wall_s, ""))
    one.close()
    two.close()
    return figures
