# SPDX-License-Identifier: Apache-2.0
"""How often a campaign's exit status is 1 although the expected verdict of every claim is true, by simulation.

A run judges CLAIMS claims over its seeds. Each measure's population has its mean at a distance from the bound that a
campaign with as many seeds decides at 95 % (2.26 standard errors or more). Two rules are compared: Student's interval
alone, and qbed's (`qbed.claims.intervals.robust_outcome`), at the same confidence.

    .venv/bin/python -m bench.false_alarms
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr

from bench.harness import write_result
from qbed.claims.intervals import FALSE_ALARM, student

Samples = NDArray[np.float64]
CLAIMS, DISTANCE, BLOCK, BLOCKS = 20, 2.26, 100_000, 10
RANDOM = np.random.default_rng(29)
POPULATIONS: dict[str, Callable[[tuple[int, int]], Samples]] = {
    "normal": lambda shape: RANDOM.normal(1, 1, shape),
    "exponential": lambda shape: RANDOM.exponential(1, shape),
    "lognormal": lambda shape: RANDOM.lognormal(-0.5, 1, shape),
    "two states": lambda shape: np.where(RANDOM.random(shape) < 0.5, 0.0, 2.0) + RANDOM.normal(0, 1e-3, shape),
    "a rare state": lambda shape: np.where(RANDOM.random(shape) < 0.2, 5.0, 0.0) + RANDOM.normal(0, 1e-3, shape),
}
"""Each has the mean 1."""
DEVIATION = {
    "normal": 1.0,
    "exponential": 1.0,
    "lognormal": math.sqrt(math.e - 1),
    "two states": 1.0,
    "a rare state": 2,
}
SEEDS = (11, 16, 20, 30)
"""For twenty claims, 16 seeds are the fewest that can raise an alarm."""


def alarms(population: str, seeds: int) -> tuple[float, float]:
    """The share of runs with an alarm: by Student's interval alone, and by both intervals."""
    level = FALSE_ALARM / CLAIMS
    width = student(seeds - 1, 1 - level)
    below = next((count for count in range(seeds + 1) if bdtr(seeds - count, seeds, 0.5) <= level / 2), seeds + 1)
    bound = 1 - DISTANCE * DEVIATION[population] / math.sqrt(seeds)
    alone = both = 0
    for _ in range(BLOCKS):
        drawn = POPULATIONS[population]((BLOCK, seeds))
        high = drawn.mean(1) + width * drawn.std(1, ddof=1) / math.sqrt(seeds)
        alone += int((high < bound).sum())
        both += int(((high < bound) & ((drawn < bound).sum(1) >= below)).sum())
    claims = BLOCK * BLOCKS
    return 1 - (1 - alone / claims) ** CLAIMS, 1 - (1 - both / claims) ** CLAIMS


def main() -> None:
    rows = []
    print(f"runs of {CLAIMS} claims with an alarm, of 1 (limit {FALSE_ALARM:g})")
    print(f"{'population':14} {'seeds':>5} {'Student alone':>14} {'both intervals':>14}")
    for population in POPULATIONS:
        for seeds in SEEDS:
            alone, both = alarms(population, seeds)
            rows.append({"population": population, "seeds": seeds, "student_alone": alone, "both_intervals": both})
            print(f"{population:14} {seeds:5} {alone:14.6f} {both:14.6f}", flush=True)
    write_result("false_alarms", claims=CLAIMS, limit=FALSE_ALARM, distance=DISTANCE, rows=rows)


if __name__ == "__main__":
    main()
