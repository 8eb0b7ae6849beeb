# SPDX-License-Identifier: Apache-2.0
"""Find the smallest dilation at which this machine keeps up with a lab, by the evidence of short cells."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from qbed.base import terminal
from qbed.base.cache import read_cache, write_cache
from qbed.base.json_files import Row
from qbed.cells.plausibility import slack_of
from qbed.cells.store_cell import store_cell
from qbed.cells.wall_clock import examine_wall
from qbed.plan.communicating_pairs import shortest_rtt_ns
from qbed.plan.model import Plan
from qbed.substrates import CellError, Limits, Substrate
from qbed.telemetry.wall import Wall, read_wall

LADDER = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
SHORT_NS = 4_000_000_000
"""Real time of a calibration cell; in a shorter one the first packets, with cold caches, dominate."""
ROUND_TRIPS = 5
RTT_NS = 1_000_000
"""Real time of the shortest round trip for each node on a core, of which most cells are faithful (labs/gap)."""
CACHE = "dilation.json"

Attempt = Callable[[int], str | None]
"""Runs a short cell at a dilation: None, or why it was not faithful."""


def calibrated(on: Substrate, plan: Plan, attempt: Attempt | None = None) -> int:
    """The smallest dilation of `LADDER` for this lab on this machine; remembered in the cache. CellError: none will do.

    In virtual time, and without a workload, none is needed.
    """
    if on.clock == "virtual" or not plan.workloads:
        return 1
    key = key_of(on, plan.dumps())
    known = read_cache(CACHE).get(key)
    if isinstance(known, int):
        return known
    found = search(plan, attempt or (lambda dilation: _attempt(on, plan, dilation)))
    write_cache(CACHE, key, found)
    return found


def search(plan: Plan, attempt: Attempt) -> int:
    """Walk the ladder from a guess: down while cells are faithful, up until one is."""
    needed = -(-faithful_rtt_ns(plan) // max(1, shortest_rtt_ns(plan)))
    step = next((i for i, dilation in enumerate(LADDER) if dilation >= needed), len(LADDER) - 1)
    why = _try(attempt, LADDER[step])
    while why is not None:
        if step == len(LADDER) - 1:
            raise CellError(f"this machine does not keep up with the lab even {LADDER[step]} times slower: {why}")
        step += 1
        why = _try(attempt, LADDER[step])
        if why is None:
            return LADDER[step]
    while step > 0 and _try(attempt, LADDER[step - 1]) is None:
        step -= 1
    return LADDER[step]


def faithful_rtt_ns(plan: Plan) -> int:
    """The real time of the shortest round trip with which most cells of so many nodes are faithful."""
    return RTT_NS * len(plan.nodes) // (os.cpu_count() or 1)


def _try(attempt: Attempt, dilation: int) -> str | None:
    why = attempt(dilation)
    terminal.print_status(f"calibration: dilation {dilation}: {'faithful' if why is None else why}")
    return why


def _attempt(on: Substrate, plan: Plan, dilation: int) -> str | None:
    starts = min(workload.start_ns for workload in plan.workloads)
    min_ns = starts + ROUND_TRIPS * shortest_rtt_ns(plan)
    short = plan.model_copy(update={"duration_ns": min(plan.duration_ns, max(SHORT_NS // dilation, min_ns))})
    row, wall = run_cell(on, short, dilation)
    wrong: list[str] = row["contradictions"]
    unfaithful = examine_wall(short, wall, slack_of(short, wall).packets)[0] if wall is not None else []
    if wrong and not unfaithful:
        raise CellError(f"at dilation {dilation} the machine keeps up, but the cell contradicts itself: {wrong[0]}")
    return unfaithful[0] if unfaithful else None


@contextmanager
def temporary_cell(on: Substrate, plan: Plan, dilation: int) -> Iterator[tuple[Row, Path, Path]]:
    """Run a cell; yields its row of `cells`, its folder and the folder of its tables, which are removed at the end."""
    with tempfile.TemporaryDirectory(prefix="qbed-calibrate-") as name:
        folder, tables = Path(name) / "cell", Path(name) / "tables"
        folder.mkdir()
        tables.mkdir()
        (folder / "plan.json").write_text(plan.dumps())
        on.cell(folder, plan, dilation).run(Limits(), lambda fraction: None)
        yield store_cell(folder, plan, tables), folder, tables


def run_cell(on: Substrate, plan: Plan, dilation: int) -> tuple[Row, Wall | None]:
    """Run a temporary cell; returns its row of `cells` and its wall-clock record."""
    with temporary_cell(on, plan, dilation) as (row, folder, _):
        return row, read_wall(folder / "out")


def key_of(on: Substrate, lab: str) -> str:
    """The cache key of a measurement of a lab on this machine."""
    text = json.dumps([on.name, lab, _processor(), os.cpu_count(), platform.release()])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    return next((line for line in lines if line.startswith("model name")), platform.machine())
