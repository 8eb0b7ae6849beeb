# SPDX-License-Identifier: Apache-2.0
"""`seeds: until 5 % of goodput_bps, at most 40`: as many seeds as a mean needs to be known that well.

For each combination of the other axes alone: seeds 1 to `LEAST` first, then more, until half the width of the metric's
95 % confidence interval (Student's t) is no more than that share of its mean. How many more follows from the seeds so
far alone, so that a run that goes on, or has other cores, has the same cells. On the wall clock a seed more is a
repetition more.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from qbed.base.errors import nearest
from qbed.campaign.bands import METRICS

LEAST, USUAL_MOST, MOST = 5, 50, 10_000
STUDENT_95 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131),
    *(2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
"""The 97.5 % quantiles of Student's t distribution for 1 to 30 degrees of freedom."""
_UNTIL = re.compile(r"until\s+(?P<percent>\d+(?:\.\d+)?)\s*%\s+of\s+(?P<of>\w+)(?:\s*,\s*at\s+most\s+(?P<most>\d+))?")


@dataclass(frozen=True)
class Until:
    """How well a metric's mean is to be known, and how many seeds that may take."""

    share: float
    of: str
    most: int = USUAL_MOST

    def seeds(self, values: Sequence[float]) -> int:
        """How many seeds are wanted, after those that gave these values: as many as there are if that is enough.

        At most twice as many, as an estimate from a few is a rough one.
        """
        count = len(values)
        if count < LEAST:
            return LEAST
        if self.met(values):
            return count
        known = abs(statistics.fmean(values))
        spread = _quantile(count) * statistics.stdev(values)
        needed = math.ceil((spread / (self.share * known)) ** 2) if known > 0 and self.share > 0 else self.most
        return min(max(needed, count + 1), 2 * count, self.most)

    def met(self, values: Sequence[float]) -> bool:
        """Whether the mean is known well enough."""
        return len(values) >= LEAST and half_width(values) <= self.share

    def __str__(self) -> str:
        return f"until {100 * self.share:.4g} % of {self.of}, at most {self.most}"


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
        raise ValueError(f"expected such as `until 5 % of goodput_bps, at most {USUAL_MOST}`, got `{value}`")
    if found["of"] not in METRICS:
        raise ValueError(f"no metric is called `{found['of']}`{nearest(found['of'], METRICS)}")
    share, most = float(found["percent"]) / 100, int(found["most"] or USUAL_MOST)
    if not 0 < share < 1 or not LEAST <= most <= MOST:
        raise ValueError(f"expected more than 0 % and less than 100 %, and at most {LEAST} to {MOST} seeds")
    return Until(share, found["of"], most)
