# SPDX-License-Identifier: Apache-2.0
"""Address translation of 16,384 pages, small and large, against as many cache lines in a row.

A virtual machine translates twice: its large pages take no more than a row only if its host has large pages below them.
"""

from __future__ import annotations

from pathlib import Path

from bench.harness import RESULTS, Figure, build, outputs

SOURCE = Path(__file__).parent / "translation" / "pages.c"


def measure(rounds: int) -> list[Figure]:
    """The least of `rounds` runs counts for each: other guests of the machine only add time."""
    program = build(SOURCE, RESULTS / "translation-pages", "-Wall")
    least: dict[str, float] = {}
    for found in outputs(program, rounds):
        for name, took_ns in found.items():
            least[name] = min(least.get(name, took_ns), took_ns)
    figures = [Figure("a line of 1 MB in a row, an access", least["row"], "ns")]
    for name in ("small", "large"):
        figures.append(Figure(f"a line of each 4 KB in {name} pages, an access", least[name], "ns"))
        figures.append(Figure(f"{name} pages / in a row", least[name] / least["row"], ""))
    return figures
