# SPDX-License-Identifier: Apache-2.0
"""Profiles that compare: each claim once for each value of one axis, and whether the outcomes are alike."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path
from typing import Any

from qbed.campaign.axes import Value
from qbed.campaign.bands import Band
from qbed.campaign.file import Campaign
from qbed.claims.judge import Verdict, connect, judge_all
from qbed.results.folder import RunFolder

EXACTLY = Band()
ROUNDING = 1e-12


def compared(identity: Mapping[str, Any]) -> tuple[str, list[Value]]:
    """The axis that a run compares along, and its values; none if there is nothing to compare."""
    axis = identity.get("compare", "")
    values: list[Value] = next((one["values"] for one in identity["matrix"]["axes"] if one["name"] == axis), [])
    return axis, values if len(values) > 1 else []


def judge_run(run: Path, campaign: Campaign, profile: str | None, lacking: str | None = None) -> list[Verdict]:
    """The verdict of each claim over a merged run folder; in a profile that compares, whether they are alike."""
    axis, values = compared(RunFolder(run).identity())
    found: list[list[Verdict]] = []
    each: list[Value | None] = [*values] or [None]
    for value in each:
        with connect(run, None if value is None else (axis, value)) as connection:
            found.append(judge_all(connection, campaign, profile, lacking))
    if not values:
        return found[0]
    chosen = campaign.profile(profile)
    return [
        _alike(values, list(outcomes), chosen.within, chosen.differs.get(outcomes[0].name))
        for outcomes in zip(*found, strict=True)
    ]


def band_of(name: str, within: Mapping[str, Band]) -> Band:
    """What `within` says of CLAIM.NUMBER: the last pattern that fits."""
    return next((band for pattern, band in reversed(list(within.items())) if fnmatchcase(name, pattern)), EXACTLY)


def _alike(values: list[Value], outcomes: list[Verdict], within: Mapping[str, Band], differs: str | None) -> Verdict:
    """One verdict: what came of the claim for each value, its numbers in their order, and what is too far apart."""
    first = outcomes[0]
    open_ = next((one for one in outcomes if one.verdict in ("not asked", "undecided")), None)
    if open_ is not None:
        return open_
    measured = {name: [one.measured.get(name) for one in outcomes] for name in first.measured}
    apart = list(_apart(first.name, measured, within))
    if any(one.verdict != other.verdict for one, other in pairwise(outcomes)):
        told = ", ".join(f"{one.verdict} ({value})" for one, value in zip(outcomes, values, strict=True))
        apart.insert(0, f"the claim {told}")
    return first.model_copy(
        update={
            "verdict": "refuted" if apart else "holds",
            "reason": "; ".join(apart) or None,
            "expect": "holds" if differs is None else "refuted",
            "why": differs,
            "measured": {"claim": [one.verdict for one in outcomes], **measured},
        }
    )


def _apart(claim: str, measured: Mapping[str, list[Any]], within: Mapping[str, Band]) -> Iterator[str]:
    for name, (first, *others) in measured.items():
        band = band_of(f"{claim}.{name}", within)
        for other in others:
            if not _near(first, other, band):
                yield f"{name} {_shown(first)} and {_shown(other)} (within {band})"


def _near(first: Any, other: Any, band: Band) -> bool:
    """Equal but for rounding: in which order a mean is summed up depends on where in the tables the cells stand."""
    if not all(isinstance(one, int | float) and not isinstance(one, bool) for one in (first, other)):
        return bool(first == other)
    return band.holds(first, other) or math.isclose(first, other, rel_tol=ROUNDING)


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
