# SPDX-License-Identifier: Apache-2.0
"""Judge a campaign's claims by confidence intervals over seeds.

A claim is a statement about a population of runs, from which the seeds are a sample. It holds if the interval is inside
its bound, it is refuted if the interval is outside, and is undecided otherwise. One seed decides nothing random.
`qbed.claims.intervals` has the intervals, and the rule by which a verdict may change the exit status.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from qbed.base.json_files import Row
from qbed.campaign.axes import Value
from qbed.campaign.bounds import MAJORITY, Outcome
from qbed.campaign.claim import Claim
from qbed.campaign.file import Campaign
from qbed.claims.caveats import find_caveats
from qbed.claims.intervals import (
    CONFIDENCE,
    FALSE_ALARM,
    MIN_EQUAL,
    UNKNOWN,
    Interval,
    detectable,
    interval,
    point_estimate,
    robust_outcome,
    share_interval,
)  # fmt: skip
from qbed.claims.samples import Answer, Group, SampleError, answer, measures, whole_seeds
from qbed.claims.sql import Connection
from qbed.claims.verdict import NOT_JUDGED, Estimate, Verdict
from qbed.claims.views import connect
from qbed.storage.run_folder import RunFolder

T = TypeVar("T")
MAX_VALUES = 200
"""Values by seed that a verdict stores for each measure."""
MAX_SQL_SEEDS = 100
"""Limit on the seeds of a claim with `sql`: each seed is a query."""
SHARE = "share_of_seeds"
"""Name of the estimate of a claim with SQL: the share of seeds in which it holds."""


@dataclass
class _Sample:
    """Values that the SQL of a claim gave. `problem`: the reason if it gave none."""

    claim: Claim
    groups: list[Group] = field(default_factory=list)
    together: Answer | None = None
    answers: dict[int, Answer] = field(default_factory=dict)
    problem: str | None = None

    @property
    def bounds(self) -> int:
        return max(1, len(self.groups) * len(self.claim.bound))


def judge_all(
    run: Path, campaign: Campaign, profile: str | None, lacking: str | None = None,
    only: Mapping[str, Value] | None = None,
) -> list[Verdict]:  # fmt: skip
    """The verdict of each claim over a merged run folder. With failed or invalid cells none is decided.

    `lacking`: why these cells are too few to decide anything. `only`: values of axes, as if the run had no other cells.
    """
    claims = [claim for claim in campaign.claims if campaign.judges(claim, profile)]
    with closing(connect(run, only)) as connection:
        undecidable = _missing_cells(connection) or lacking
        seeds = whole_seeds(connection)
        samples = {claim.name: _sample(connection, claim, seeds) for claim in claims}
        axes = [axis["name"] for axis in RunFolder(run).identity()["matrix"]["axes"]]
        caveats = find_caveats(connection, axes, campaign.views)
    _query_each_seed(run, only or {}, seeds, [sample for sample in samples.values() if sample.together is not None])
    adjusted_confidence = 1 - FALSE_ALARM / max(1, sum(sample.bounds for sample in samples.values()))
    return [
        _verdict(samples[claim.name], seeds, adjusted_confidence, undecidable).model_copy(
            update={"caveats": caveats.of_claim(claim)}
        )
        if claim.name in samples
        else _not_judged(claim)
        for claim in campaign.claims
    ]


def _missing_cells(connection: Connection) -> str | None:
    rows = connection.execute(
        "SELECT status, count(*) FROM all_cells WHERE status <> 'complete' GROUP BY 1 ORDER BY 1"
    ).fetchall()
    return f"cells are missing: {' and '.join(f'{count} {status}' for status, count in rows)}" if rows else None


def _sample(connection: Connection, claim: Claim, seeds: Iterable[int]) -> _Sample:
    sample = _Sample(claim)
    try:
        if claim.sql is None:
            sample.groups = measures(connection, claim, seeds)
        else:
            sample.together = answer(connection, claim)
    except SampleError as error:
        sample.problem = str(error)
    return sample


def _query_each_seed(run: Path, only: Mapping[str, Value], seeds: list[int], samples: list[_Sample]) -> None:
    """Ask the SQL of claims for each seed alone."""
    if len(seeds) == 1:
        for sample in samples:
            sample.answers = {seeds[0]: sample.together} if sample.together is not None else {}
        return
    for seed in seeds[:MAX_SQL_SEEDS] if samples else ():
        with closing(connect(run, {**only, "seed": seed})) as connection:
            for sample in samples:
                try:
                    sample.answers[seed] = answer(connection, sample.claim)
                except SampleError as error:
                    sample.problem = sample.problem or f"seed {seed}: {error}"


def _not_judged(claim: Claim) -> Verdict:
    return _build(claim, verdict=NOT_JUDGED, reason=f"only in {', '.join(claim.profiles or ())}")


def _verdict(sample: _Sample, seeds: list[int], adjusted_confidence: float, undecidable: str | None) -> Verdict:
    claim = sample.claim
    if sample.problem is None and not claim.random:
        sample.problem = _differing(sample)
    measured = {} if sample.together is None else dict(sample.together.measured)
    holds = None if sample.together is None else sample.together.holds
    if sample.problem is not None:
        contradicted = undecidable is None
        return _build(
            claim,
            verdict="undecided",
            reason=undecidable or sample.problem,
            contradicted=contradicted,
            measured=measured,
        )
    estimates, decided = _estimate(sample, seeds, adjusted_confidence)
    measured |= {estimate.label: estimate.point_estimate for estimate in estimates if estimate.name != SHARE}
    counted = min((estimate.seeds for estimate in estimates), default=0)
    common: Row = {"estimates": estimates, "measured": measured, "seeds": counted, "sample_holds": holds}
    if undecidable is not None:
        return _build(claim, verdict="undecided", reason=undecidable, **common)
    verdict = _combined(estimate.outcome for estimate in estimates if estimate.outcome is not None)
    opposite = {"holds": "refuted", "refuted": "holds", "undecided": None}[claim.expect]
    contradicted = decided == opposite
    reason = None if verdict == "holds" else _reason(claim, estimates, seeds)
    return _build(claim, verdict=verdict, reason=reason, contradicted=contradicted, **common)


def _build(claim: Claim, **outcome: object) -> Verdict:
    fields = {name: getattr(claim, name) for name in ("name", "paper", "source", "random", "expect", "why")}
    return Verdict.model_validate(fields | {"sql": claim.query} | outcome)


def _differing(sample: _Sample) -> str | None:
    """Why a claim that is not random depends on the seed, or has no value."""
    for group in sample.groups:
        for name, values in group.values.items():
            if len(set(values.values())) > 1:
                (first, value), (second, different) = _first_different(values)
                return (
                    f"`random: off`, but `{name}` is {value:.6g} for seed {first} and {different:.6g} for seed {second}"
                )
            if not values and name in sample.claim.bound:
                return f"`{name}` has no value"
    if len({repr(answer) for answer in sample.answers.values()}) > 1:
        (first, _), (second, _) = _first_different(sample.answers)
        return f"`random: off`, but the SQL gives other values for seed {second} than for seed {first}"
    if sample.claim.sql is not None and any(answer.holds is None for answer in sample.answers.values()):
        return "`holds` is NULL"
    return None if sample.groups or sample.answers else "no cell has a value"


def _first_different(values: Mapping[int, T]) -> tuple[tuple[int, T], tuple[int, T]]:
    first, *others = values.items()
    return first, next(item for item in others if item[1] != first[1])


def _estimate(sample: _Sample, seeds: list[int], adjusted_confidence: float) -> tuple[list[Estimate], Outcome]:
    """The estimates of a claim, and its verdict at the confidence that may change the exit status."""
    claim = sample.claim
    if claim.sql is not None:
        values = {seed: float(answer.holds) for seed, answer in sample.answers.items() if answer.holds is not None}
        shown, adjusted = (_share(claim, values, level) for level in (CONFIDENCE, adjusted_confidence))
        estimate = Estimate(
            name=SHARE, bound=str(MAJORITY), lower_bound=MAJORITY.low, average="share", values=_stored(values),
            seeds=len(values), point_estimate=sum(values.values()) / len(values) if values else None, low=shown[0],
            high=shown[1], outcome=MAJORITY.judge(*shown),
        )  # fmt: skip
        return [estimate], MAJORITY.judge(*adjusted)
    estimates, decided = [], list[Outcome]()
    for group in sample.groups:
        for name, by_seed in group.values.items():
            estimates.append(_measure(claim, group, name, by_seed, seeds))
            if name in claim.bound:
                decided.append(_robust_outcome(claim, name, by_seed, seeds, adjusted_confidence))
    return estimates, _combined(decided)


def _share(claim: Claim, values: Mapping[int, float], confidence: float) -> Interval:
    if not claim.random and values:
        share = sum(values.values()) / len(values)
        return share, share
    return share_interval(int(sum(values.values())), len(values), confidence) if len(values) > 1 else (0.0, 1.0)


def _measure(claim: Claim, group: Group, name: str, by_seed: Mapping[int, float], seeds: list[int]) -> Estimate:
    values, bound = list(by_seed.values()), claim.bound.get(name)
    low, high = _interval(claim, by_seed, seeds, CONFIDENCE)
    middle = point_estimate(values, claim.average) if values else None
    return Estimate(
        name=name,
        group=group.columns,
        bound=None if bound is None else str(bound),
        lower_bound=None if bound is None else _finite(bound.low),
        upper_bound=None if bound is None else _finite(bound.high),
        average=claim.average,
        values=_stored(by_seed),
        seeds=len(values),
        point_estimate=middle if middle == middle else None,
        low=_finite(low),
        high=_finite(high),
        detectable=detectable(values, claim.average) if claim.random and bound is not None else None,
        outcome=None if bound is None else bound.judge(low, high),
    )


def _interval(claim: Claim, by_seed: Mapping[int, float], seeds: list[int], confidence: float) -> Interval:
    """The interval of a measure; a seed without a value makes it infinite, since the others may be a biased sample."""
    if not claim.random and by_seed:
        value = next(iter(by_seed.values()))
        return value, value
    return interval(list(by_seed.values()), claim.average, confidence) if len(by_seed) == len(seeds) else UNKNOWN


def _robust_outcome(
    claim: Claim, name: str, by_seed: Mapping[int, float], seeds: list[int], adjusted_confidence: float
) -> Outcome:
    if not claim.random:
        return claim.bound[name].judge(*_interval(claim, by_seed, seeds, adjusted_confidence))
    if len(by_seed) < len(seeds):
        return "undecided"
    return robust_outcome(list(by_seed.values()), claim.average, claim.bound[name], adjusted_confidence)


def _combined(outcomes: Iterable[Outcome]) -> Outcome:
    """A claim with several bounds holds if all hold, and is refuted if one is refuted."""
    found = set(outcomes)
    if "refuted" in found:
        return "refuted"
    return "holds" if found == {"holds"} else "undecided"


def _reason(claim: Claim, estimates: list[Estimate], seeds: list[int]) -> str:
    """Why a claim does not hold: the first estimate that decides so."""
    bounded = [estimate for estimate in estimates if estimate.outcome is not None]
    if not bounded:
        return "no cell has a value"
    first = next((estimate for estimate in bounded if estimate.outcome == "refuted"), None)
    first = first or next(estimate for estimate in bounded if estimate.outcome == "undecided")
    if claim.random and len(seeds) == 1:
        average = "no value" if first.point_estimate is None else f"{first.point_estimate:.4g}"
        return f"one seed decides nothing random: {first.label} {average}, expected {first.bound}"
    if first.seeds < len(seeds) and first.name != SHARE:
        lost = next(seed for seed in seeds if str(seed) not in first.values)
        return f"{first.label} has no value for seed {lost}"
    if first.name == SHARE:
        return f"it holds for {sum(first.values.values()):g} of {first.seeds} seeds"
    if first.low is None or first.high is None:
        equal = len(set(first.values.values())) == 1
        return (
            f"{first.seeds} equal values: expected {MIN_EQUAL} seeds" if equal else f"{first.seeds} seeds are too few"
        )
    return f"{first.label} is {first.low:.4g} to {first.high:.4g} at 95 %, expected {first.bound}"


def _finite(value: float) -> float | None:
    return value if abs(value) != float("inf") else None


def _stored(values: Mapping[int, float]) -> dict[str, float]:
    return {str(seed): value for seed, value in list(values.items())[:MAX_VALUES]}
