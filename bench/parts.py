# SPDX-License-Identifier: Apache-2.0
"""A lab in two parts, on two cores and on one, against the undivided lab: 200 and 1,000 nodes, and a star of 1,000.

The limit is a lab of two halves without a link between them, which has as many links, flows and packet-hops.
"""

from __future__ import annotations

import json
import shutil
import time
from contextlib import ExitStack

from bench.harness import Cell, Cost, Figure, allowed, cores, measured, smallest
from bench.scale import CLOSES, REST, STAR, labs, pairs
from qbed.plan.parts import cut_links, distances_ns, plans_of_parts
from qbed.substrates import PART_TIMES
from qbed.substrates.toolchain import find_toolchain
from qbed.substrates.virtual.divided import START_NS
from qbed.substrates.virtual.guest import PartOfLab, boot
from qbed.substrates.virtual.part_memory import SPINS, part_memory

INCAST = "  - flows: {from: h1..h999, to: h1000, size: 1 MB}"
HALVES = (
    """
name: halves
topology:
  explicit:
    nodes: {{h1..h{hosts}: host, leaf1..leaf{racks}: switch, spine1..spine{spines}: switch}}
    links: [{links}]"""
    + REST
)


def halves(nodes: int) -> str:
    """The Clos of `scale` as two of half the racks, each with all spines: flows cross no cut link."""
    hosts, racks, spines, size = CLOSES[nodes]
    half = racks // 2
    ends = [f"h{leaf * hosts + 1}..h{(leaf + 1) * hosts}, leaf{leaf + 1}" for leaf in range(racks)]
    for spine in range(2 * spines):
        first = spine // spines * half
        ends.append(f"leaf{first + 1}..leaf{first + half}, spine{spine + 1}")
    links = ", ".join(f"{{ends: [{pair}]}}" for pair in ends)
    load = pairs(hosts * racks, size, groups=2)
    sizes = {"hosts": hosts * racks, "racks": racks, "spines": 2 * spines}
    return HALVES.format(**sizes, links=links, workload=load, duration="200 ms") + "parts: 2\n"


def turns(rounds: int, *runs: tuple[Cell, int]) -> list[Cost]:
    """The smallest cost of each cell on so many cores, run in turn.

    A cell with more parts than the one before is run once more first: a worker keeps the memory of as many guests as
    its last cell had, and the cells of a campaign have the same number.
    """
    costs: list[list[Cost]] = [[] for _ in runs]
    kept = 0
    for _ in range(rounds):
        for (cell, count), found in zip(runs, costs, strict=True):
            with allowed(count):
                if cell.plan.part_count > kept:
                    cell.run()
                kept = cell.plan.part_count
                found.append(measured(cell.run))
    return [smallest(found) for found in costs]


def waited(cell: Cell) -> float:
    """The largest wait of a part for others, in seconds."""
    return float(max(row["waited_s"] for row in json.loads((cell.folder / PART_TIMES).read_text())))


def until_ready(cell: Cell) -> float:
    """Seconds from dividing the plan until both parts have built their nodes, on two cores."""
    shutil.rmtree(cell.folder / "parts", ignore_errors=True)
    begun = time.monotonic()
    parts = []
    for number, text in enumerate(plans_of_parts(cell.plan, (cell.folder / "plan.json").read_text())):
        parts.append(cell.folder / "parts" / str(number))
        parts[number].mkdir(parents=True)
        (parts[number] / "plan.json").write_text(text)
    with allowed(2), part_memory(distances_ns(cell.plan), START_NS, SPINS) as memory, ExitStack() as stack:
        guests = [
            stack.enter_context(
                boot(
                    find_toolchain(),
                    part,
                    cell.plan,
                    "cell",
                    part=PartOfLab(number, memory.descriptor, shares_core=False),
                )
            )
            for number, part in enumerate(parts)
        ]
        for guest in guests:
            while not any(message["event"] == "ready" for message in guest.wait(120) or []):
                pass
        return time.monotonic() - begun


def measure(rounds: int) -> list[Figure]:
    figures: list[Figure] = []
    if len(cores()) < 2:
        raise SystemExit("parts: needs 2 cores")
    goals = {200: (1.6, None), 1000: (2.0, 1.0)}
    for nodes, (on_two, on_one) in goals.items():
        text = labs()[nodes][0]
        one, two, apart = Cell(text), Cell(text + "parts: 2\n"), Cell(halves(nodes))
        assert not cut_links(apart.plan)
        alone, both, single, limit, single_limit = turns(rounds, (one, 1), (two, 2), (two, 1), (apart, 2), (apart, 1))
        figures += [
            Figure(f"{nodes} nodes, undivided, wall", alone.wall_s, "s"),
            Figure(f"{nodes} nodes, packet-hops", one.packet_hops() / 1e6, "M"),
            Figure(f"{nodes} nodes: undivided / 2 parts on 2 cores", alone.wall_s / both.wall_s, "", on_two, ">="),
            Figure(f"{nodes} nodes: undivided / 2 halves without links on 2 cores", alone.wall_s / limit.wall_s, ""),
            Figure(f"{nodes} nodes: 2 parts on 1 core / undivided, wall", single.wall_s / alone.wall_s, "", on_one),
            Figure(
                f"{nodes} nodes: 2 halves without links on 1 core / undivided", single_limit.wall_s / alone.wall_s, ""
            ),
            Figure(f"{nodes} nodes: CPU of 2 parts on 2 cores / undivided", both.cpu_s / alone.cpu_s, ""),
        ]
        with allowed(2):
            two.run()
        figures.append(Figure(f"{nodes} nodes: a part's longest wait, of {SPINS} spins first", waited(two), "s"))
        apart.close()
        one.close()
        two.close()
    idle = Cell(labs()[1000][1] + "parts: 2\n")
    ready_s = min(until_ready(idle) for _ in range(rounds + 1))
    figures.append(Figure("1,000 nodes in 2 parts: from a plan to ready, wall", ready_s, "s", 0.45))
    idle.close()
    text = STAR.format(hosts=1000, workload=INCAST, duration="3 s")
    one, two = Cell(text), Cell(text + "parts: 2\n")
    alone, both = turns(rounds, (one, 1), (two, 2))
    figures.append(Figure("999 x 1 MB on a star: undivided, wall", alone.wall_s, "s"))
    figures.append(Figure("999 x 1 MB on a star: undivided / 2 parts on 2 cores", alone.wall_s / both.wall_s, ""))
    one.close()
    two.close()
    return figures
