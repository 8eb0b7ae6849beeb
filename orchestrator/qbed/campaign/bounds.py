# SPDX-License-Identifier: Apache-2.0
"""Bounds that a claim sets to a measure, such as `> 1.5` or `1.29 +- 15 %`."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal

Outcome = Literal["holds", "refuted", "undecided"]

EXAMPLES = ("> 1.5", ">= 0.9", "< 2", "<= 10 %", "0.9 to 1.1", "1.29 +- 15 %", "= 0")
_NUMBER = r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?"
_SIDE = re.compile(rf"(?P<sign>>=|<=|>|<|=)\s*(?P<number>{_NUMBER})\s*(?P<percent>%)?")
_RANGE = re.compile(rf"(?P<low>{_NUMBER})\s*(?P<p>%)?\s+to\s+(?P<high>{_NUMBER})\s*(?P<percent>%)?")
_AROUND = re.compile(rf"(?P<middle>{_NUMBER})\s*\+-\s*(?P<width>{_NUMBER})\s*(?P<percent>%)?")


@dataclass(frozen=True)
class Bound:
    """The values that a claim allows: an interval, with or without its ends. `text`: as the campaign has it."""

    low: float
    high: float
    text: str
    closed: bool = True
    """Whether a finite end belongs to the interval."""

    def contains(self, value: float) -> bool:
        if self.closed:
            return self.low <= value <= self.high
        return self.low < value < self.high

    def judge(self, low: float, high: float) -> Outcome:
        """`holds` if the confidence interval from `low` to `high` is inside, `refuted` if it is outside."""
        if self.contains(low) and self.contains(high):
            return "holds"
        below = high < self.low or (not self.closed and high == self.low)
        above = low > self.high or (not self.closed and low == self.high)
        return "refuted" if below or above else "undecided"

    def __str__(self) -> str:
        return self.text


MAJORITY = Bound(0.5, math.inf, "> 50 %", closed=False)
"""More than half of the seeds: the bound of a claim with SQL."""


def parse_bound(value: object) -> Bound:
    """Parse a bound. ValueError with the expected form for anything else."""
    if isinstance(value, Bound):
        return value
    text = " ".join(value.split()) if isinstance(value, str) else ""
    if found := _SIDE.fullmatch(text):
        number = _scaled(found["number"], found["percent"])
        if found["sign"] == "=":
            return Bound(number, number, text)
        above = found["sign"].startswith(">")
        low, high = (number, math.inf) if above else (-math.inf, number)
        return Bound(low, high, text, closed=found["sign"].endswith("="))
    if found := _RANGE.fullmatch(text):
        low, high = (_scaled(found[end], found["percent"]) for end in ("low", "high"))
    elif found := _AROUND.fullmatch(text):
        middle, width = float(found["middle"]), float(found["width"])
        width *= abs(middle) / 100 if found["percent"] else 1
        low, high = middle - width, middle + width
    else:
        shown = ", ".join(f'"{example}"' for example in EXAMPLES)
        raise ValueError(f"expected a bound such as {shown}, got `{value}`")
    if low > high:
        raise ValueError(f"expected the lower end first, got `{value}`")
    return Bound(low, high, text)


def _scaled(number: str, percent: str | None) -> float:
    return float(number) / (100 if percent else 1)
