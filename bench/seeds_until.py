# SPDX-License-Identifier: Apache-2.0
"""How often a 95 % interval misses if the results decide the number of seeds, by simulation.

Three rules: a fixed number of seeds; `seeds: until 5 % of METRIC` (`qbed.campaign.until`); and seeds until the interval
excludes the claim's bound, for a claim whose true value is the bound.

    .venv/bin/python -m bench.seeds_until
"""

from __future__ import annotations

from functools import cache

import numpy as np

from bench.harness import write_result
from qbed.campaign.until import MIN_SEEDS, Until
from qbed.claims.intervals import student

RUNS, MOST, BOUND = 20_000, 40, 1.0
SPREADS = (0.03, 0.05, 0.1, 0.15)
"""Standard deviations of a measure over seeds, as a share of its mean."""


@cache
def width(seeds: int) -> float:
    """Half the width of the 95 % interval in standard errors."""
    return student(seeds - 1, 0.95)


def missed(values: list[float]) -> bool:
    """Whether the 95 % interval of the mean excludes the true mean, which is the bound."""
    sample = np.asarray(values)
    half = width(len(values)) * sample.std(ddof=1) / np.sqrt(len(values))
    return bool(abs(sample.mean() - BOUND) > half)


def by_precision(values: list[float]) -> list[float]:
    rule, count = Until(0.05, "goodput_bps", MOST), MIN_SEEDS
    while count < MOST and (wanted := rule.seeds(values[:count])) > count:
        count = wanted
    return values[:count]


def by_verdict(values: list[float]) -> list[float]:
    return next((values[:count] for count in range(MIN_SEEDS, MOST) if missed(values[:count])), values)


def main() -> None:
    random, rows = np.random.default_rng(29), []
    print(f"intervals that miss, of 1 (nominal 0.05); {RUNS} runs of at most {MOST} seeds")
    print(f"{'spread':>6} {'fixed':>8} {'until 5 %':>10} {'until decided':>14}")
    for spread in SPREADS:
        runs = random.normal(BOUND, spread, (RUNS, MOST)).tolist()
        fixed, precise, decided = (
            sum(missed(rule(values)) for values in runs) / RUNS
            for rule in (lambda values: values[:12], by_precision, by_verdict)
        )
        rows.append({"spread": spread, "fixed": fixed, "until_precise": precise, "until_decided": decided})
        print(f"{spread:6} {fixed:8.4f} {precise:10.4f} {decided:14.4f}", flush=True)
    write_result("seeds_until", runs=RUNS, at_most=MOST, rows=rows)


if __name__ == "__main__":
    main()
