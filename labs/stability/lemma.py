# SPDX-License-Identifier: Apache-2.0
"""Stability of reverse path congestion marking: Lemma 1 of the RPM paper (section IV and appendix).

An AIMD source (increase `a` a round trip, decrease by the factor `b`) shares nothing: one flow over a bottleneck of
capacity `c` packets/s; `d` is its round-trip time and `d_s` the short one, between sender and bottleneck, in seconds.
The switch marks with probability eta * (queue - target). Decaying solutions e^(st) of the linearised system need
real s < 0 with a positive eta.

The paper asks for s < s*, with s* of its equation (6). There eta of its equation (2) is negative: the numerator of (2)
changes its sign once below zero, far above that s*, and eta is positive between that root and zero.
`test_lemma.py` shows both; the lab asks the real system.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, sqrt


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

    def eta(self, s: float) -> float:
        """The marking slope at which e^(st) solves the linearised system: equation (2) for any a, b; in 1/packets."""
        a, b, c, d, d_s = self.increase, self.decrease, self.capacity_pps, self.rtt_s, self.short_rtt_s
        return s * self._numerator(s) / (a * exp(-s * d) / d**2 + b * c**2 * exp(-s * d_s))

    def _numerator(self, s: float) -> float:
        """The denominator of equation (2), divided by s: negative where eta is positive."""
        return (exp(-s * self.rtt_s) - exp(-s * self.short_rtt_s) - 2) * self.gamma - s

    def limit(self) -> float:
        """The s below zero above which eta is positive, to 1e-9 relative, by bisection."""
        low = -self.gamma
        while self._numerator(low) < 0:
            low *= 2
        high = 0.0
        while high - low > 1e-9 * -low:
            middle = (low + high) / 2
            low, high = (middle, high) if self._numerator(middle) > 0 else (low, middle)
        return low

    def paper_limit(self) -> float:
        """s* of equation (6)."""
        g, d, d_s = self.gamma, self.rtt_s, self.short_rtt_s
        inner = 5 * (d * g) ** 2 - 2 * d * d_s * g**2 + 2 * d * g - 3 * (g * d_s) ** 2 - 2 * g * d_s + 1
        return (-sqrt(inner) - d * g + g * d_s - 1) / (g * (d**2 - d_s**2))
