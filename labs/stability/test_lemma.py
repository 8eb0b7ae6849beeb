# SPDX-License-Identifier: Apache-2.0
"""Lemma 1 of the RPM paper, tested numerically."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lemma import Loop

loops = st.builds(
    lambda capacity, rtt, share: Loop(capacity, rtt, share * rtt),
    st.floats(100, 1e6),
    st.floats(0.001, 0.2),
    st.floats(0.05, 0.95),
).filter(lambda loop: loop.capacity_pps * loop.rtt_s > 10)


def test_gamma_of_the_classic_source() -> None:
    """a = 1, b = 1/2: c / (2 + c^2 d^2), as the appendix has it."""
    assert Loop(1000, 0.1, 0.05).gamma == pytest.approx(1000 / (2 + 1000**2 * 0.1**2))


@given(loops)
def test_eta_is_small_and_positive_between_the_limit_and_zero(loop: Loop) -> None:
    """ "One may find that eta is typically small and positive." """
    limit = loop.limit()
    assert limit < 0
    assert 0 < loop.eta(limit / 2) < 0.1
    assert loop.eta(1.01 * limit) < 0


@given(st.floats(2, 20), st.floats(0.05, 0.95), st.floats(1.01, 2))
def test_below_the_papers_limit_eta_is_negative(product: float, share: float, beyond: float) -> None:
    """ "For any s < s*" with equation (6) there is no positive marking factor: the lemma as printed is refuted."""
    loop = Loop(product / 0.1, 0.1, share * 0.1)
    assert loop.paper_limit() < loop.limit()
    assert loop.eta(beyond * loop.paper_limit()) < 0


@given(st.floats(20, 1e4), st.floats(0.05, 0.95))
def test_eta_barely_depends_on_the_bottlenecks_position(product: float, share: float) -> None:
    """ "By varying d_s with a constant d and c in (2), we find that eta is approximately constant." """
    loop, middle = (Loop(product / 0.1, 0.1, part * 0.1) for part in (share, 0.5))
    s = middle.limit() / 2
    assert loop.eta(s) == pytest.approx(middle.eta(s), rel=0.1)


@pytest.mark.parametrize("short", [0.0, 0.1, 0.2])
def test_a_loop_needs_its_bottleneck_on_the_path(short: float) -> None:
    with pytest.raises(ValueError, match="short_rtt_s"):
        Loop(1000, 0.1, short)
