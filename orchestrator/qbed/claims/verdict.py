# SPDX-License-Identifier: Apache-2.0
"""The verdict of a claim, as claims.json stores it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, JsonValue

from qbed.base.errors import QbedError
from qbed.base.json_files import read_json
from qbed.campaign.bounds import Outcome
from qbed.storage.checksums import check_merged
from qbed.storage.run_folder import CLAIMS

NOT_JUDGED: Literal["not judged"] = "not judged"


class Estimate(BaseModel):
    """One measure for one combination of a claim's columns, over seeds."""

    model_config = ConfigDict(frozen=True)

    name: str
    group: dict[str, JsonValue] = {}
    """Values of the claim's `each`."""
    bound: str | None = None
    lower_bound: float | None = None
    upper_bound: float | None = None
    """Ends of the bound; None: infinite."""
    average: str = "mean"
    values: dict[str, float] = {}
    """By seed, at most `MAX_VALUES`."""
    seeds: int
    point_estimate: float | None
    """Average over seeds; None if it does not exist."""
    low: float | None = None
    """Ends of the 95 % confidence interval; None: infinite."""
    high: float | None = None
    detectable: float | None = None
    """Distance from the bound (for a geometric mean: factor) that these seeds show with a probability of 80 %."""
    outcome: Outcome | None = None
    """None without a bound."""

    @property
    def label(self) -> str:
        """The measure's name with the values of its group."""
        group = ", ".join(f"{name} {value}" for name, value in self.group.items())
        return f"{self.name} ({group})" if group else self.name


class Verdict(BaseModel):
    """The outcome of a claim. `verdict`: `holds`, `refuted`, `undecided` (with a `reason`) or `not judged`."""

    model_config = ConfigDict(frozen=True)

    name: str
    paper: str
    source: str
    sql: str
    """The claim's SQL, or the one that gives its measures."""
    random: bool = True
    expect: Outcome
    why: str | None
    verdict: Literal["holds", "refuted", "undecided", "not judged"]
    reason: str | None = None
    seeds: int = 0
    """How many seeds the verdict rests on."""
    contradicted: bool = False
    """Whether the results exclude the expected verdict, so that the run's exit status is 1."""
    sample_holds: bool | None = None
    """Whether the SQL of a claim holds for all seeds of the run together."""
    measured: dict[str, JsonValue] = {}
    """Numbers by name: averages over seeds."""
    estimates: list[Estimate] = []
    caveats: list[str] = []
    """Facts about the cells that change the meaning of the numbers."""

    @property
    def as_expected(self) -> bool:
        """Whether the verdict is the expected one; False also if the seeds decide too little to say."""
        return self.verdict in (self.expect, NOT_JUDGED)

    @property
    def expectation(self) -> str:
        """The relation of the verdict to the expected one, in words; empty for a claim that holds as expected."""
        if self.verdict == NOT_JUDGED or (self.verdict == self.expect == "holds"):
            return ""
        if self.contradicted:
            return f"not as expected ({self.expect})"
        if self.as_expected:
            return "as expected"
        return f"expected: {self.expect}"


def caveats_of(verdicts: Iterable[Verdict]) -> dict[str, list[str]]:
    """The names of the claims by their caveats."""
    found: dict[str, list[str]] = {}
    for verdict in verdicts:
        for text in verdict.caveats:
            found.setdefault(text, []).append(verdict.name)
    return found


def read_verdicts(run: Path) -> list[Verdict]:
    """The verdicts that a run's claims.json holds; none without that file."""
    check_merged(run, [CLAIMS])
    if not (run / CLAIMS).exists():
        return []
    try:
        return [Verdict.model_validate(item) for item in read_json(run / CLAIMS)]
    except (OSError, ValueError, TypeError) as error:
        text = " ".join(str(error).split())
        raise QbedError(f"{run / CLAIMS} cannot be read: {text}; `qbed run` writes it again") from None
