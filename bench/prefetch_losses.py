# SPDX-License-Identifier: Apache-2.0
"""The share of prefetched cache lines that the processor drops, by cache level and number of lines at once."""

from __future__ import annotations

from pathlib import Path

from bench.harness import RESULTS, Figure, build, outputs

SOURCE = Path(__file__).parent / "prefetch" / "losses.c"


def measure(rounds: int) -> list[Figure]:
    """The least of `rounds` runs counts: other guests of the machine only add losses."""
    program = build(SOURCE, RESULTS / "prefetch-losses", "-Wall")
    least: dict[tuple[int, str], float] = {}
    for found in outputs(program, rounds):
        for level in ("first", "second"):
            key = int(found["lines"]), level
            least[key] = min(least.get(key, 1.0), found[level])
    return [
        Figure(f"{lines} lines at once into the {level}-level cache: lost", share, "")
        for (lines, level), share in least.items()
    ]
