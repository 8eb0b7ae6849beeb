# SPDX-License-Identifier: Apache-2.0
"""The ideal flow completion time against arithmetic by hand."""

from __future__ import annotations

import pytest

from qbed.cells import ideal
from qbed.cells.ideal import ideal_rate_ns, train_ns
from qbed.plan.model import End, Path

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


def test_a_rate_flow_has_separate_headers() -> None:
    end = End(
        node=0,
        interface="eth0",
        mac="",
        addresses=[],
        rate_bps=GIGABIT,
        delay_ns=100,
        overhead_bytes=0,
        loss=0,
        queue=0,
    )
    packet, rest = (14 + 40 + 8 + 88 + payload for payload in (1364, 36))
    # Two full packets and a short one; the second link has nothing to send until it has the first one.
    wire_bits = 8 * (3 * packet + rest) + 2 * 100
    path = Path((end, end), (1500, 1500))
    assert ideal_rate_ns(path, 2 * 1364 + 36, family=6, payload_bytes=1364, congestion_bytes=88) == wire_bits


@pytest.mark.parametrize("rates", [[GIGABIT], [GIGABIT, 10**8, 10**10], [10**10, 10**7, GIGABIT]])
@pytest.mark.parametrize(("lead", "count", "last"), [(0, 5, 0), (66, 5, 700), (66, 0, 100), (0, 1, 64)])
@pytest.mark.parametrize("gap", [0.0, 20_000.0])
def test_any_train_agrees_with_the_recursion(rates: list[int], lead: int, count: int, last: int, gap: float) -> None:
    sizes = [lead] * (lead > 0) + [1514] * count + [last] * (last > 0)
    hops = tuple((rate, 3_000, 0) for rate in rates)
    assert train_ns(hops, lead, 1514, count, last, gap) == pytest.approx(slow(rates, sizes, 3_000, gap))


@pytest.mark.parametrize("rates", [[GIGABIT], [GIGABIT, 10**8, 10**10]])
@pytest.mark.parametrize(("lead", "last"), [(0, 0), (66, 700)])
@pytest.mark.parametrize("gap", [0.0, 200_000.0])
def test_a_long_train_grows_by_the_slowest_hop(
    monkeypatch: pytest.MonkeyPatch, rates: list[int], lead: int, last: int, gap: float
) -> None:
    monkeypatch.setattr(ideal, "FRAMES_MAX", 20)
    hops = tuple((rate, 3_000, 24) for rate in rates)
    sizes = [lead] * (lead > 0) + [1514] * 100 + [last] * (last > 0)
    long = train_ns.__wrapped__(hops, lead, 1514, 100, last, gap)
    assert long == pytest.approx(slow(rates, [size + 24 for size in sizes], 3_000, gap))
    assert train_ns.__wrapped__(hops, 0, 1514, 10**15, 0) == pytest.approx(1e15 * 1538 * 8e9 / min(rates), rel=1e-6)
