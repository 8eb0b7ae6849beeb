# SPDX-License-Identifier: Apache-2.0
"""The ideal flow completion time against arithmetic by hand."""

from __future__ import annotations

import pytest

from qbed.results.ideal import train_ns

GIGABIT = 1_000_000_000


def slow(rates: list[int], sizes: list[int], delay: int, gap: float = 0.0) -> float:
    """The recursion D_k = max(A_k, D_(k-1)) + s_k, frame by frame."""
    arrivals = [index * gap for index in range(len(sizes))]
    for rate in rates:
        done = 0.0
        for index, size in enumerate(sizes):
            done = max(arrivals[index], done) + size * 8e9 / rate
            arrivals[index] = done + delay
        # a frame's arrival at the next hop
    return arrivals[-1]


def test_one_frame_is_stored_and_forwarded() -> None:
    hops = ((GIGABIT, 5_000, 0), (GIGABIT, 5_000, 0))
    assert train_ns(hops, 0, 1514, 1, 0) == pytest.approx(2 * (1514 * 8 + 5_000))


def test_a_train_takes_its_length_at_the_slowest_link() -> None:
    hops = ((10 * GIGABIT, 0, 0), (GIGABIT, 0, 0), (10 * GIGABIT, 0, 0))
    assert train_ns(hops, 0, 1514, 100, 0) == pytest.approx(1514 * (0.8 + 100 * 8 + 0.8))


def test_overhead_counts_on_the_wire() -> None:
    assert train_ns(((GIGABIT, 0, 24),), 0, 1514, 10, 0) == pytest.approx(1538 * 8 * 10)


@pytest.mark.parametrize("rates", [[GIGABIT], [GIGABIT, 10**8, 10**10], [10**10, 10**7, GIGABIT]])
@pytest.mark.parametrize(("lead", "count", "last"), [(0, 5, 0), (66, 5, 700), (66, 0, 100), (0, 1, 64)])
@pytest.mark.parametrize("gap", [0.0, 20_000.0])
def test_any_train_agrees_with_the_recursion(rates: list[int], lead: int, count: int, last: int, gap: float) -> None:
    sizes = [lead] * (lead > 0) + [1514] * count + [last] * (last > 0)
    hops = tuple((rate, 3_000, 0) for rate in rates)
    assert train_ns(hops, lead, 1514, count, last, gap) == pytest.approx(slow(rates, sizes, 3_000, gap))
