# SPDX-License-Identifier: Apache-2.0
"""Comparing profiles: judge each claim for each value of one axis, and compare the outcomes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

from qbed.base.json_files import Json, Row
from qbed.campaign.axes import Value
from qbed.campaign.bands import Band
from qbed.campaign.file import Campaign
from qbed.claims.judge import judge_all
from qbed.claims.verdict import NOT_JUDGED, Verdict
from qbed.storage.run_folder import RunFolder

EXACTLY = Band()
ROUNDING = 1e-12


def compared(identity: Row) -> tuple[str, list[Value]]:
    """The axis along which a run compares, and its values; no values if the profile does not compare."""
    axis = identity.get("compare", "")
    values: list[Value] = next((entry["values"] for entry in identity["matrix"]["axes"] if entry["name"] == axis), [])
    return axis, values if len(values) > 1 else []


def judge_run(run: Path, campaign: Campaign, profile: str | None, lacking: str | None = None) -> list[Verdict]:
    """The verdict of each claim over a merged run folder; in a comparing profile, whether the outcomes are equal."""
    axis, values = compared(RunFolder(run).identity())
    if not values:
        return judge_all(run, campaign, profile, lacking)
    found = [judge_all(run, campaign, profile, lacking, {axis: value}) for value in values]
    chosen = campaign.profile(profile)
    return [
        _combine(values, list(outcomes), chosen.within, chosen.differs.get(outcomes[0].name))
        for outcomes in zip(*found, strict=True)
    ]


def band_of(name: str, within: Mapping[str, Band]) -> Band:
    """The tolerance of CLAIM.NUMBER: that of the last matching pattern."""
    return next((band for pattern, band in reversed(list(within.items())) if fnmatchcase(name, pattern)), EXACTLY)


def _combine(values: list[Value], outcomes: list[Verdict], within: Mapping[str, Band], differs: str | None) -> Verdict:
    """Combine the outcomes of a claim: its numbers for each value, and the differences beyond the tolerance."""
    first = outcomes[0]
    unmeasured = next((outcome for outcome in outcomes if outcome.verdict == NOT_JUDGED or not outcome.seeds), None)
    if unmeasured is not None:
        return unmeasured
    measured = {name: [outcome.measured.get(name) for outcome in outcomes] for name in first.measured}
    samples: list[Json] = [outcome.sample_holds for outcome in outcomes]
    differences = list(_differences(first.name, {"sample_holds": samples, **measured}, within))
    if {"holds", "refuted"} <= {outcome.verdict for outcome in outcomes}:
        verdicts = ", ".join(f"{outcome.verdict} ({value})" for outcome, value in zip(outcomes, values, strict=True))
        differences.insert(0, f"the claim {verdicts}")
    return first.model_copy(
        update={
            "random": False,  # the same seeds for each value
            "verdict": "refuted" if differences else "holds",
            "reason": "; ".join(differences) or None,
            "expect": "holds" if differs is None else "refuted",
            "contradicted": bool(differences) != (differs is not None),
            "why": differs,
            "estimates": [],
            "caveats": list(dict.fromkeys(text for outcome in outcomes for text in outcome.caveats)),
            "measured": {"claim": [outcome.verdict for outcome in outcomes], **measured},
        }
    )


def _differences(claim: str, measured: Mapping[str, list[Json]], within: Mapping[str, Band]) -> Iterator[str]:
    for name, (first, *others) in measured.items():
        band = band_of(f"{claim}.{name}", within)
        for other in others:
            if not _is_close(first, other, band):
                tolerance = "" if isinstance(first, bool) else f" (within {band})"
                yield f"{name} {_shown(first)} and {_shown(other)}{tolerance}"


def _is_close(first: Json, second: Json, band: Band) -> bool:
    """Compare with a tolerance for rounding: the order of summation depends on the order of the cells in the tables."""
    if isinstance(first, bool) or not isinstance(first, int | float):
        return first == second
    if isinstance(second, bool) or not isinstance(second, int | float):
        return first == second
    return band.holds(first, second) or math.isclose(first, second, rel_tol=ROUNDING)


def _shown(value: Json) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
