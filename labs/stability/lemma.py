# SPDX-License-Identifier: Apache-2.0
"""Stability of reverse path congestion marking: Lemma 1 of the RPM paper (section IV and appendix).

An AIMD source (increase `a` a round trip, decrease by the factor `b`) is alone on a bottleneck of capacity `c`
packets/s. `d` is its round-trip time and `d_s` the short one, between sender and bottleneck, in seconds. The switch
marks with probability eta * (queue - target).

The linearised system is stable if all roots of its characteristic equation (5) have negative real parts. For a small
eta they do, and the first pair that crosses the imaginary axis as eta grows is complex. The paper considers real roots.
"""

from __future__ import annotations

from cmath import exp
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from math import pi, sqrt

from scipy.optimize import brentq


@dataclass(frozen=True)
class Loop:
    """One flow's control loop. Needs 0 < short_rtt_s < rtt_s."""

    capacity_pps: float
    rtt_s: float
    short_rtt_s: float
    increase: float = 1.0
    decrease: float = 0.5

    def __post_init__(self) -> None:
        if not 0 < self.short_rtt_s < self.rtt_s or self.capacity_pps <= 0:
            raise ValueError("expected 0 < short_rtt_s < rtt_s and a positive capacity")

    @property
    def gamma(self) -> float:
        """a b c / (a + b c^2 d^2), in 1/s."""
        a, b, c, d = self.increase, self.decrease, self.capacity_pps, self.rtt_s
        return a * b * c / (a + b * c**2 * d**2)

    def eta(self, s: complex) -> complex:
        """Marking slope at which e^(st) solves the linearised system: equation (2) for any a, b; in 1/packets."""
        a, b, c, d, d_s = self.increase, self.decrease, self.capacity_pps, self.rtt_s, self.short_rtt_s
        return s * self._numerator(s) / (a * exp(-s * d) / d**2 + b * c**2 * exp(-s * d_s))

    def _numerator(self, s: complex) -> complex:
        """Numerator of equation (2), divided by s."""
        return (exp(-s * self.rtt_s) - exp(-s * self.short_rtt_s) - 2) * self.gamma - s

    def largest_stable_eta(self) -> tuple[float, float]:
        """The least eta with a root on the imaginary axis, in 1/packets, and that root's frequency in rad/s.

        A root i*w has a real eta, so the crossings are the zeros of eta's imaginary part. Since |numerator| is at least
        w - 4 gamma, no crossing above `last` has a smaller eta than the best that was found.
        """
        best, frequency = float("inf"), 0.0
        scale = self.increase / self.rtt_s**2 + self.decrease * self.capacity_pps**2
        step = min(pi / (64 * self.rtt_s), self.gamma / 4)
        low = step / 1024
        last = float("inf")
        while low < last:
            high = low + step
            if self.eta(1j * low).imag * self.eta(1j * high).imag <= 0:
                crossing = brentq(lambda w: self.eta(1j * w).imag, low, high, xtol=1e-14, rtol=1e-14)
                value = self.eta(1j * crossing).real
                if 0 < value < best:
                    best, frequency = value, crossing
                    last = 2 * self.gamma + sqrt(4 * self.gamma**2 + best * scale)
            low = high
        return best, frequency

    def least_real_root(self) -> float:
        """The s below zero above which eta is positive for real s."""
        low = -self.gamma
        while self._numerator(low).real < 0:
            low *= 2
        return float(brentq(lambda s: self._numerator(s).real, low, 0.0, xtol=1e-14, rtol=1e-14))

    def equation_6(self, *, printed: bool = False) -> float:
        """Second-order approximation of `least_real_root`: equation (6), with the signs that its derivation gives.

        `printed`: the signs of the paper, which has -(d gamma - gamma d_s + 1) in place of +.
        """
        g, d, d_s = self.gamma, self.rtt_s, self.short_rtt_s
        inner = 5 * (d * g) ** 2 - 2 * d * d_s * g**2 + 2 * d * g - 3 * (g * d_s) ** 2 - 2 * g * d_s + 1
        linear = d * g - g * d_s + 1
        return (-sqrt(inner) + (-linear if printed else linear)) / (g * (d**2 - d_s**2))

    def equilibrium_excess(self, eta: float) -> float:
        """Packets above the target at which the rate stays at the capacity."""
        return self.increase / (self.increase + self.decrease * (self.capacity_pps * self.rtt_s) ** 2) / eta

    def integrate(
        self, eta: float, duration_s: float, *, steps: int = 100, disturbance: float = 1e-3
    ) -> Iterator[float]:
        """Queue above the target, in packets, each d/steps seconds: equation (1) from a disturbed equilibrium.

        With w = r d, equation (1) is equation (3). The queue is shifted by the delay between sender and switch, so
        that d and d_s are the only delays. Heun's method; `disturbance`: relative change of the rate at the start.
        """
        a, b, c, d = self.increase, self.decrease, self.capacity_pps, self.rtt_s
        h, short = d / steps, max(1, round(steps * self.short_rtt_s / d))
        excess, rate = self.equilibrium_excess(eta), c * (1 + disturbance)
        rates, queues = deque([c] * (steps + 1), steps + 1), deque([excess] * (steps + 1), steps + 1)

        def slope(rate: float, at: int) -> float:
            """The rate's derivative; `at`: index of the round trip's delayed values."""
            near = steps - short + at
            unmarked = 1 - eta * max(queues[at], 0.0)
            return a * rates[at] * unmarked / (rate * d**2) - b * rate * rates[near] * eta * max(queues[near], 0.0)

        for _ in range(round(duration_s / h)):
            rates.append(rate)
            queues.append(excess)
            first = slope(rate, 0)
            second = slope(rate + h * first, 1)
            following = rate + h * (first + second) / 2
            excess += h * ((rate + following) / 2 - c)
            rate = following
            yield excess
