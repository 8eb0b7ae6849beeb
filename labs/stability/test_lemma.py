# SPDX-License-Identifier: Apache-2.0
"""Lemma 1 of the RPM paper, tested numerically."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lemma import Loop
from numpy.typing import NDArray
from scipy.optimize import brentq

LAB = {share: Loop(100e6 / 8 / 1538, 0.04, share * 0.04) for share in (0.1, 0.3, 0.5, 0.7, 0.9)}
"""The loops of this lab: 100 Mbit/s, packets of 1538 bytes on the wire, 40 ms; by the bottleneck's position."""

loops = st.builds(
    lambda capacity, rtt, share: Loop(capacity, rtt, share * rtt),
    st.floats(100, 1e6),
    st.floats(0.001, 0.2),
    st.floats(0.05, 0.95),
).filter(lambda loop: 10 < loop.capacity_pps * loop.rtt_s < 1e4)


def rightmost(loop: Loop, eta: float, points: int = 24) -> complex:
    """The rightmost root of equation (5), as an eigenvalue of equation (4)'s generator by Chebyshev collocation.

    The state is (r, r') on [-d, 0] (Breda, Maset, Vermiglio, SIAM J. Sci. Comput. 27(2), 2005).
    """
    x = np.cos(np.pi * np.arange(points + 1) / points)
    weights = np.where((np.arange(points + 1) % points) == 0, 0.5, 1.0) * (-1.0) ** np.arange(points + 1)
    gaps = x[:, None] - x[None, :] + np.eye(points + 1)
    derivative = weights[None, :] / weights[:, None] / gaps
    np.fill_diagonal(derivative, 0.0)
    np.fill_diagonal(derivative, -derivative.sum(axis=1))
    derivative *= 2 / loop.rtt_s

    def value_at(delay: float) -> NDArray[np.float64]:
        """Row that interpolates a function's value at -delay."""
        gap = 1 - 2 * delay / loop.rtt_s - x
        if np.any(gap == 0):
            return np.asarray(gap == 0, np.float64)
        row = weights / gap
        return np.asarray(row / row.sum())

    now, part, across = value_at(0.0), value_at(loop.short_rtt_s), value_at(loop.rtt_s)
    a, b, c, d = loop.increase, loop.decrease, loop.capacity_pps, loop.rtt_s
    generator = np.kron(derivative, np.eye(2))
    generator[0] = np.kron(now, [0.0, 1.0])
    generator[1] = np.kron(-eta * a / d**2 * across - b * c**2 * eta * part, [1.0, 0.0])
    generator[1] += np.kron(-loop.gamma * (2 * now - across + part), [0.0, 1.0])
    roots = np.linalg.eigvals(generator)
    return complex(roots[np.argmax(roots.real)])


def swing(loop: Loop, eta: float) -> float:
    """Growth of the queue's swing between the second and the last fifth of 60 s, by equation (1)."""
    queue = np.fromiter(loop.integrate(eta, 60.0), np.float64)
    fifth = len(queue) // 5
    return float(np.ptp(queue[-fifth:]) / np.ptp(queue[fifth : 2 * fifth]))


def test_gamma_of_the_classic_source() -> None:
    """a = 1, b = 1/2: c / (2 + c^2 d^2), as the appendix has it."""
    assert Loop(1000, 0.1, 0.05).gamma == pytest.approx(1000 / (2 + 1000**2 * 0.1**2))


@pytest.mark.parametrize("loop", LAB.values(), ids=[f"{share:.0%}" for share in LAB])
def test_the_largest_stable_eta_is_where_the_rightmost_root_crosses(loop: Loop) -> None:
    """Eigenvalues, which do not use equation (2), give an equal bound to seven digits."""
    eta, frequency = loop.largest_stable_eta()
    crossing = brentq(lambda value: rightmost(loop, value).real, eta / 2, 2 * eta, xtol=1e-18, rtol=1e-12)
    assert crossing == pytest.approx(eta, rel=1e-7)
    assert abs(rightmost(loop, eta).imag) == pytest.approx(frequency, rel=1e-6)


@given(loops)
def test_below_the_largest_stable_eta_all_roots_decay(loop: Loop) -> None:
    eta, _ = loop.largest_stable_eta()
    assert rightmost(loop, 0.95 * eta).real < 0 < rightmost(loop, 1.05 * eta).real


def test_the_largest_stable_eta_falls_with_the_distance() -> None:
    """ "The marking factor eta need not be changed based on bottleneck location" is refuted: by 9 from 10 to 90 %."""
    bounds = {share: loop.largest_stable_eta()[0] for share, loop in LAB.items()}
    assert bounds[0.1] == pytest.approx(1.1819e-6, rel=1e-4)
    assert bounds[0.9] == pytest.approx(1.2951e-7, rel=1e-4)
    for share, loop in LAB.items():
        estimate = 2 * loop.gamma / (loop.decrease * loop.capacity_pps**2 * loop.short_rtt_s)
        assert bounds[share] == pytest.approx(estimate, rel=0.05)


@pytest.mark.parametrize("share", [0.1, 0.9])
def test_equation_1_agrees_with_the_bound(share: float) -> None:
    loop = LAB[share]
    eta, _ = loop.largest_stable_eta()
    assert swing(loop, 0.8 * eta) < 0.9
    assert swing(loop, 1.25 * eta) > 1.1


def test_one_eta_is_stable_near_the_sender_and_unstable_at_a_distance() -> None:
    assert swing(LAB[0.1], 5e-7) < 0.5
    assert swing(LAB[0.5], 5e-7) > 2
    assert swing(LAB[0.9], 5e-7) > 2


@given(loops)
def test_eta_is_small_and_positive_between_the_real_root_and_zero(loop: Loop) -> None:
    """ "One may find that eta is typically small and positive." """
    limit = loop.least_real_root()
    assert limit < 0
    assert 0 < loop.eta(limit / 2).real < 0.1
    assert loop.eta(1.01 * limit).real < 0


@pytest.mark.parametrize("loop", LAB.values(), ids=[f"{share:.0%}" for share in LAB])
def test_equation_6_has_a_sign_error(loop: Loop) -> None:
    """With the derivation's signs it approximates the real root; as printed it is 100,000 times as large."""
    assert loop.equation_6() == pytest.approx(loop.least_real_root(), rel=1e-6)
    assert loop.equation_6(printed=True) < 1e5 * loop.least_real_root()


@pytest.mark.parametrize("short", [0.0, 0.1, 0.2])
def test_a_loop_needs_its_bottleneck_on_the_path(short: float) -> None:
    with pytest.raises(ValueError, match="short_rtt_s"):
        Loop(1000, 0.1, short)
