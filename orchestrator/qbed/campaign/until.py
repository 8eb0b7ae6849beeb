# SPDX-License-Identifier: Apache-2.0
"""`seeds: until 5 % of goodput_bps, at most 40`: as many seeds as the precision of a mean requires.

The number is found separately for each combination of the other axes. Seeds 1 to `MIN_SEEDS` come first. Others follow
until half the width of the 95 % confidence interval (Student's t) is at most that share of the mean. Their number
depends on the earlier seeds only, so a continued run, or one with more cores, has the same cells. On the wall clock, a
seed is a repetition.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from qbed.base.errors import nearest
from qbed.campaign.bands import METRICS

MIN_SEEDS, DEFAULT_MAX_SEEDS, MAX_SEEDS = 5, 50, 10_000
STUDENT_95 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131),
    *(2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
"""The 97.5 % quantiles of Student's t distribution for 1 to 30 degrees of freedom."""
_UNTIL = re.compile(
    r"until\s+(?P<percent>\d+(?:\.\d+)?)\s*%\s+of\s+(?P<of>\w+)(?:\s*,\s*at\s+most\s+(?P<max_seeds>\d+))?"
)


@dataclass(frozen=True)
class Until:
    """How well a metric's mean is to be known, and how many seeds that may take."""

    share: float
    of: str
    max_seeds: int = DEFAULT_MAX_SEEDS

    def seeds(self, values: Sequence[float]) -> int:
        """How many seeds are wanted, after those that gave these values: as many as there are if that is enough.

        At most twice as many, as an estimate from a few is a rough one.
        """
        count = len(values)
        if count < MIN_SEEDS:
            return MIN_SEEDS
        if self.met(values):
            return count
        known = abs(statistics.fmean(values))
        spread = _quantile(count) * statistics.stdev(values)
        needed = math.ceil((spread / (self.share * known)) ** 2) if known > 0 and self.share > 0 else self.max_seeds
        return min(max(needed, count + 1), 2 * count, self.max_seeds)

    def met(self, values: Sequence[float]) -> bool:
        """Whether the mean is known well enough."""
        return len(values) >= MIN_SEEDS and half_width(values) <= self.share

    def __str__(self) -> str:
        return f"until {100 * self.share:.4g} % of {self.of}, at most {self.max_seeds}"


def half_width(values: Sequence[float]) -> float:
    """Half the width of the mean's 95 % confidence interval, as a share of the mean."""
    if len(values) < 2:
        return math.inf
    spread = statistics.stdev(values)
    if spread == 0:
        return 0.0
    mean = abs(statistics.fmean(values))
    return _quantile(len(values)) * spread / math.sqrt(len(values)) / mean if mean > 0 else math.inf


def _quantile(count: int) -> float:
    """Beyond 31 values a little too wide."""
    return STUDENT_95[min(count - 1, len(STUDENT_95)) - 1]


def parse_until(value: object) -> Until:
    """ValueError if that says no such thing."""
    found = _UNTIL.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None:
        raise ValueError(f"expected such as `until 5 % of goodput_bps, at most {DEFAULT_MAX_SEEDS}`, got `{value}`")
    if found["of"] not in METRICS:
        raise ValueError(f"no metric is called `{found['of']}`{nearest(found['of'], METRICS)}")
    share, max_seeds = float(found["percent"]) / 100, int(found["max_seeds"] or DEFAULT_MAX_SEEDS)
    if not 0 < share < 1 or not MIN_SEEDS <= max_seeds <= MAX_SEEDS:
        raise ValueError(f"expected more than 0 % and less than 100 %, and at most {MIN_SEEDS} to {MAX_SEEDS} seeds")
    return Until(share, found["of"], max_seeds)
