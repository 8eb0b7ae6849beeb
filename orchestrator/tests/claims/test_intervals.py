# SPDX-License-Identifier: Apache-2.0
"""Confidence intervals against SciPy's own, against known cases, and by simulation."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from qbed.campaign.bounds import parse_bound
from qbed.claims.intervals import (
    FALSE_ALARM,
    Average,
    detectable,
    interval,
    point_estimate,
    robust_outcome,
    share_interval,
)

SEEDS = [3.0, 5.0, 4.0, 8.0, 6.0]


@pytest.mark.parametrize("confidence", [0.95, 0.999, 1 - 1e-5])
def test_a_mean_has_students_interval(confidence: float) -> None:
    expected = stats.t.interval(confidence, 4, loc=np.mean(SEEDS), scale=stats.sem(SEEDS))
    assert interval(SEEDS, "mean", confidence) == pytest.approx(expected, rel=1e-9)


def test_a_geometric_mean_has_students_interval_of_the_logarithms() -> None:
    low, high = stats.t.interval(0.95, 4, loc=np.mean(np.log(SEEDS)), scale=stats.sem(np.log(SEEDS)))
    assert interval(SEEDS, "geometric") == pytest.approx((math.exp(low), math.exp(high)), rel=1e-9)
    assert point_estimate(SEEDS, "geometric") == pytest.approx(stats.gmean(SEEDS))
    assert interval([*SEEDS, 0.0], "geometric") == (-math.inf, math.inf)
    assert math.isnan(point_estimate([*SEEDS, 0.0], "geometric"))


@pytest.mark.parametrize(("count", "ends"), [(5, (-math.inf, math.inf)), (6, (1, 6)), (9, (2, 8)), (20, (6, 15))])
def test_a_median_has_order_statistics(count: int, ends: tuple[float, float]) -> None:
    """Ranks of the 95 % interval, from tables of the binomial distribution (Conover 1999, section 3.2)."""
    assert interval([float(value) for value in range(1, count + 1)], "median") == ends


@pytest.mark.parametrize(("count", "of"), [(0, 5), (5, 5), (6, 6), (3, 10), (99, 100)])
def test_a_share_has_the_interval_of_clopper_and_pearson(count: int, of: int) -> None:
    expected = stats.binomtest(count, of).proportion_ci(0.95, method="exact")
    assert share_interval(count, of) == pytest.approx((expected.low, expected.high), rel=1e-9)


def test_few_values_and_few_equal_values_say_nothing() -> None:
    nothing = (-math.inf, math.inf)
    for average in ("mean", "geometric", "median"):
        assert interval([2.0], average) == nothing
        assert interval([2.0] * 4, average) == nothing
    assert interval([2.0] * 5, "mean") == (2.0, 2.0)


@pytest.mark.parametrize("average", ["mean", "geometric", "median"])
def test_the_interval_covers_the_truth_as_often_as_it_says(average: Average) -> None:
    random = np.random.default_rng(29)
    draws = np.exp(random.normal(0, 1, (4000, 10))) if average != "mean" else random.normal(1, 1, (4000, 10))
    covered = sum(low <= 1 <= high for low, high in (interval(list(row), average) for row in draws))
    assert covered / len(draws) >= 0.94


def test_a_detectable_effect_is_seen_four_times_of_five() -> None:
    random = np.random.default_rng(30)
    distance = detectable(list(random.normal(0, 1, 100_000)), "mean")
    assert distance is not None and distance == pytest.approx((1.96 + 0.84) / math.sqrt(100_000), rel=0.02)
    effect = 2.8 / math.sqrt(50)  # 50 values of standard deviation 1
    seen = [interval(list(random.normal(effect, 1, 50)), "mean")[0] > 0 for _ in range(3000)]
    assert np.mean(seen) == pytest.approx(0.8, abs=0.03)
    assert detectable([1.0], "mean") is None and detectable(SEEDS, "median") is None


@pytest.mark.parametrize("population", ["normal", "exponential", "two states"])
def test_a_run_of_twenty_true_claims_fails_less_than_once_in_a_thousand(population: str) -> None:
    """The rule of the exit status, where the mean is as far from the bound as 95 % needs (bench/false_alarms.py)."""
    random, seeds, runs = np.random.default_rng(7), 16, 3000
    draws: dict[str, Callable[[], NDArray[np.float64]]] = {
        "normal": lambda: random.normal(1, 1, (20, seeds)),
        "exponential": lambda: random.exponential(1, (20, seeds)),
        "two states": lambda: (
            np.where(random.random((20, seeds)) < 0.5, 0.0, 2.0) + random.normal(0, 1e-3, (20, seeds))
        ),
    }
    bound = parse_bound(f"> {1 - 2.26 / math.sqrt(seeds):.6f}")
    level = 1 - FALSE_ALARM / 20
    alarms = 0
    for _ in range(runs):
        below = (row for row in draws[population]() if row.mean() < bound.low)
        alarms += any(robust_outcome(list(row), "mean", bound, level) == "refuted" for row in below)
    assert alarms / runs < FALSE_ALARM
    assert robust_outcome([0.0] * seeds, "mean", bound, level) == "refuted", "the rule can raise an alarm"
