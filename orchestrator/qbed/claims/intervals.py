# SPDX-License-Identifier: Apache-2.0
"""Confidence intervals over seeds, and the rule by which a verdict may change the exit status.

A shown verdict has a confidence of 95 %. A run judges many claims, so one of twenty would differ from the expected
verdict by chance. The exit status therefore depends on verdicts at a confidence of `1 - FALSE_ALARM / bounds`
(Bonferroni), for which two intervals agree: that of the average, and the distribution-free one of the median, which
takes 11 seeds for one bound and 16 for twenty. Student's t alone fails too often for a measure with two states, of
which a few seeds may show one. `bench/false_alarms.py` simulates how often.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Literal

import numpy as np

from qbed.campaign.bounds import Bound, Outcome

CONFIDENCE = 0.95
FALSE_ALARM = 0.001
"""Limit on the probability that a run fails although the expected verdict of every claim is true."""
MIN_EQUAL = 5
"""Least number of equal values that decide a random claim: their spread says nothing."""
POWER = 0.8
"""Probability with which an effect of the size `detectable` is seen."""
Average = Literal["mean", "geometric", "median"]
Interval = tuple[float, float]
MEDIAN: Average = "median"
UNKNOWN: Interval = (-math.inf, math.inf)


def interval(values: Sequence[float], average: Average, confidence: float = CONFIDENCE) -> Interval:
    """The two-sided confidence interval of the average of the population from which the values are drawn.

    `mean`: Student's t. `geometric`: Student's t of the logarithms; values that are not positive give no interval.
    `median`: order statistics, which need six values at 95 %. Too few values give an infinite interval.
    """
    if len(values) < 2 or (len(values) < MIN_EQUAL and min(values) == max(values)):
        return UNKNOWN
    if average == "median":
        return _order_statistics(sorted(values), confidence)
    if average == "geometric":
        if min(values) <= 0:
            return UNKNOWN
        low, high = interval([math.log(value) for value in values], "mean", confidence)
        return math.exp(low), math.exp(high) if high < 700 else math.inf
    middle, error = float(np.mean(values)), float(np.std(values, ddof=1)) / math.sqrt(len(values))
    if min(values) == max(values):
        return values[0], values[0]
    width = student(len(values) - 1, confidence) * error
    return middle - width, middle + width


def robust_outcome(values: Sequence[float], average: Average, bound: Bound, confidence: float) -> Outcome:
    """The outcome for which the interval of the average and that of the median agree, else `undecided`."""
    outcomes = {bound.judge(*interval(values, kind, confidence)) for kind in (average, MEDIAN)}
    return outcomes.pop() if len(outcomes) == 1 else "undecided"


def point_estimate(values: Sequence[float], average: Average) -> float:
    """The average of the values; NaN for a geometric mean of values that are not positive."""
    if average == "median":
        return float(np.median(values))
    if average == "geometric":
        return math.exp(float(np.mean(np.log(values)))) if min(values) > 0 else math.nan
    return float(np.mean(values))


def detectable(values: Sequence[float], average: Average) -> float | None:
    """The distance from a bound that as many values with this spread show at 95 % with the probability `POWER`.

    For a geometric mean: a factor. None for a median, and for fewer than two values.
    """
    if len(values) < 2 or average == "median" or (average == "geometric" and min(values) <= 0):
        return None
    scale = np.log(values) if average == "geometric" else np.asarray(values)
    error = float(np.std(scale, ddof=1)) / math.sqrt(len(values))
    distance = (student(len(values) - 1, CONFIDENCE) + student(len(values) - 1, 2 * POWER - 1)) * error
    return math.exp(min(distance, 700)) if average == "geometric" else distance


def share_interval(count: int, of: int, confidence: float = CONFIDENCE) -> Interval:
    """The interval of a probability, of which `count` of `of` draws were successes (Clopper and Pearson 1934)."""
    from scipy.special import betaincinv

    tail = (1 - confidence) / 2
    low = 0.0 if count == 0 else float(betaincinv(count, of - count + 1, tail))
    high = 1.0 if count == of else float(betaincinv(count + 1, of - count, 1 - tail))
    return low, high


@cache
def student(freedom: int, confidence: float) -> float:
    """Half the width of a two-sided interval of Student's t distribution, in standard errors."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, 1 - (1 - confidence) / 2))


def _order_statistics(ordered: Sequence[float], confidence: float) -> Interval:
    """The shortest symmetric pair of order statistics that covers the median with the confidence."""
    from scipy.special import bdtr

    tail = (1 - confidence) / 2
    rank = 0
    while rank < len(ordered) // 2 and float(bdtr(rank, len(ordered), 0.5)) <= tail:
        rank += 1
    return (ordered[rank - 1], ordered[-rank]) if rank else UNKNOWN
