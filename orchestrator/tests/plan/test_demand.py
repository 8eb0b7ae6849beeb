# SPDX-License-Identifier: Apache-2.0
"""The mean of truncated sizes, against numbers computed by hand and against the mean of draws."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbed.plan import workload as p
from qbed.plan.demand import mean_bytes

PARETO = p.ParetoSize(pareto=p.ParetoBytes(mean_bytes=10, shape=2.0))  # 5 bytes at least


@pytest.mark.parametrize(
    "size, most, expected",
    [
        (p.Fixed(fixed=7), 10, 7),
        (p.Fixed(fixed=7), 5, 5),
        (p.Uniform(uniform=(0, 10)), 20, 5),
        (p.Uniform(uniform=(0, 10)), 5, 3.75),
        (p.Uniform(uniform=(4, 4)), 3, 3),
        (p.Cdf(cdf=[(0, 0.0), (10, 1.0)]), 5, 3.75),
        (p.Cdf(cdf=[(2, 0.5), (10, 1.0)]), 100, 4),
        (PARETO, 20, 8.75),
        (PARETO, 4, 4),
    ],
)
def test_the_mean_of_sizes_of_which_larger_ones_are_cut(size: p.Size, most: int, expected: float) -> None:
    assert mean_bytes(size, most) == pytest.approx(expected)


@given(
    points=st.lists(st.integers(1, 1000), min_size=2, max_size=6, unique=True).map(sorted),
    weights=st.lists(st.floats(0.1, 1), min_size=6, max_size=6),
    most=st.integers(1, 1500),
)
def test_a_distribution_function_has_the_mean_of_its_draws(points: list[int], weights: list[float], most: int) -> None:
    parts = weights[: len(points)]
    sums = [sum(parts[: i + 1]) / sum(parts) for i in range(len(points))]
    cdf = list(zip(points, [*sums[:-1], 1.0], strict=True))
    draws = random.Random(1)

    def draw() -> float:
        value = draws.random()
        last = (float(points[0]), 0.0)
        for size, probability in cdf:
            if value <= probability:
                share = (value - last[1]) / (probability - last[1])
                return last[0] + share * (size - last[0])
            last = (size, probability)
        raise AssertionError(value)

    count = 4000
    mean = sum(min(draw(), most) for _ in range(count)) / count
    assert mean_bytes(p.Cdf(cdf=cdf), most) == pytest.approx(mean, abs=0.1 * points[-1])
