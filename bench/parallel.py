# SPDX-License-Identifier: Apache-2.0
"""Cells on all cores against one cell on one core."""

from __future__ import annotations

import threading
import time

from bench.harness import Cell, Figure, cores, pinned
from bench.versus_ns3 import SCENARIOS

CELLS = 4


def batch(core_list: list[int], cells: dict[int, list[Cell]]) -> float:
    """Seconds until each core has run its cells, one after the other."""

    def work(core: int) -> None:
        with pinned(core):  # of this thread, and of the guests it starts
            for cell in cells[core]:
                cell.run()

    threads = [threading.Thread(target=work, args=(core,)) for core in core_list]
    begun = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.monotonic() - begun


def measure(rounds: int) -> list[Figure]:
    every = cores()
    text = SCENARIOS[0].lab().replace("100 MB", "300 MB").replace("100 ms", "300 ms")
    cells = {core: [Cell(text) for _ in range(CELLS)] for core in every}
    single, many = [], []
    for _ in range(rounds):
        single.append(batch(every[-1:], cells))
        many.append(batch(every, cells))
    for group in cells.values():
        for cell in group:
            cell.close()
    speedup = len(every) * min(single) / min(many)
    return [
        Figure(f"{CELLS} cells on 1 core", min(single), "s"),
        Figure(f"{CELLS * len(every)} cells on {len(every)} cores", min(many), "s"),
        Figure(f"throughput of {len(every)} cores over 1", speedup, "", 0.9 * len(every), ">="),
    ]
