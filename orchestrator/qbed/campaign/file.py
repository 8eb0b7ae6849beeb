# SPDX-License-Identifier: Apache-2.0
"""`campaign.yml`: the question, the matrix of experiments, the claims with the paper's sentences, and the figures.

A campaign has one lab and several axes. An axis is a field of the lab with a list of values, or a name with
alternatives that each set several fields. `seed` is always an axis. Profiles (`quick`, `paper`) give other values for
some axes and set fields.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Annotated

from pydantic import Field, PlainValidator, ValidationError, WithJsonSchema, field_validator

from qbed.base.errors import LabError, nearest
from qbed.base.json_files import Schema
from qbed.campaign.axes import Alternative, AxisEntry, FieldAxis, Part, Value, alternatives, check_axes, column_name
from qbed.campaign.bands import METRICS, Band, parse_band
from qbed.campaign.claim import Claim
from qbed.campaign.figure import Figure
from qbed.campaign.overlaps import count_fields, fields, without
from qbed.campaign.until import Until, parse_until
from qbed.config.messages import MAX_ERRORS, explain
from qbed.config.source import FieldPath, Source, read
from qbed.storage.identity import COLUMN
from qbed.telemetry.tables import RESERVED_COLUMNS

MAX_AXES, MAX_VALUES, MAX_FIELDS = 50, 1000, 5000


class CampaignError(LabError):
    """The campaign file is invalid. Every message has file, line, field and expected value."""


SeedsUntil = Annotated[
    Until,
    PlainValidator(parse_until),
    WithJsonSchema({"type": "string", "examples": ["until 5 % of goodput_bps, at most 40"]}),
]
Tolerated = Annotated[
    Band,
    PlainValidator(parse_band),
    WithJsonSchema({"type": ["number", "string"], "examples": ["10 %", 3, "10 % or 3"]}),
]


class Profile(Part):
    """A variant of the campaign: other values of axes, and fields of the lab."""

    like: str | None = None
    """Profile that provides the axes, fields and claims that are not given."""
    axes: dict[str, list[Value]] = Field(default_factory=dict)
    """Values by the name of the axis, or names of its alternatives."""
    set: dict[str, object] = Field(default_factory=dict)
    """Fields of the lab in every cell."""
    seeds: SeedsUntil | None = None
    """Precision of a metric's mean instead of a list of seeds, as `seeds` of the campaign."""
    compare: dict[str, AxisEntry] = Field(default_factory=dict, max_length=1)
    """Additional axis. Each claim is judged separately for each value, and holds if all verdicts equal the first."""
    within: dict[str, Tolerated] = Field(default_factory=dict)
    """With `compare`: tolerances for the numbers of claims, by patterns of CLAIM.NUMBER. The last match applies."""
    differs: dict[str, str] = Field(default_factory=dict)
    """With `compare`: reasons for known differences, by claim."""


class Campaign(Part):
    """A campaign file."""

    lab: str = "lab.yml"
    """Lab file beside the campaign file."""
    question: str = Field(min_length=1)
    """Question of the campaign, in a sentence."""
    axes: dict[str, AxisEntry] = Field(default_factory=dict)
    """Axes of the matrix. Every combination of values is a cell."""
    seeds: SeedsUntil | None = None
    """Precision of a metric's mean instead of a list of seeds: `until 5 % of goodput_bps, at most 40`."""
    set: dict[str, object] = Field(default_factory=dict)
    """Fields of the lab in every cell."""
    profiles: dict[str, Profile] = Field(default_factory=dict)
    """Variants of the campaign, such as smaller matrices."""
    views: dict[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")], str] = Field(default_factory=dict)
    """DuckDB SELECTs for claims and figures, by name. A view can use the tables of the run and earlier views."""
    claims: list[Claim] = Field(default_factory=list)
    """Claims about the results."""
    figures: list[Figure] = Field(default_factory=list)
    """Figures of the report. Without them, the report has the default figures."""
    gap: dict[str, Tolerated] = Field(default_factory=dict)
    """Tolerated difference of a metric between containers and virtual time: `10 %`, `3`, or `10 % or 3`."""

    @field_validator("claims")
    @classmethod
    def _unique(cls, claims: list[Claim]) -> list[Claim]:
        twice = [name for name, count in Counter(claim.name for claim in claims).items() if count > 1]
        if twice:
            raise ValueError(f"two claims are called `{min(twice)}`")
        return claims

    def profile(self, name: str | None) -> Profile:
        """A profile, merged with the profile that `like` names; None: an empty profile."""
        if name is None:
            return Profile()
        profile = self.profiles[name]
        if profile.like is None:
            return profile
        base = self.profiles[profile.like]
        given = without(base.set, fields(profile.set)) | profile.set
        seeds = profile.seeds or (None if "seed" in profile.axes else base.seeds)
        return profile.model_copy(update={"axes": base.axes | profile.axes, "set": given, "seeds": seeds})

    def judges(self, claim: Claim, profile: str | None) -> bool:
        """Whether a profile judges a claim."""
        names = {profile, self.profiles[profile].like} if profile is not None else set()
        return claim.profiles is None or not names.isdisjoint(claim.profiles)


def load_campaign(path: Path) -> tuple[Campaign, Source]:
    """Read and check a campaign file; `CampaignError` names every mistake and its place."""
    return campaign_of(read(path))


def campaign_of(source: Source) -> tuple[Campaign, Source]:
    """Load a campaign from parsed YAML."""
    if not isinstance(source.values, dict):
        raise CampaignError(
            [source.message((), "expected the fields of a campaign: `question`, `axes`, `claims`, ...")]
        )
    try:
        campaign = Campaign.model_validate(source.values)
    except ValidationError as error:
        raise CampaignError(explain(error, source, _schema())) from None
    wrong = list(_too_many(campaign, source)) or list(islice(_wrong(campaign, source), MAX_ERRORS))
    if wrong:
        raise CampaignError(wrong)
    return campaign, source


@cache
def _schema() -> Schema:
    return Campaign.model_json_schema()


def _too_many(campaign: Campaign, source: Source) -> Iterator[str]:
    """Reject files with too many values of axes: each value is compiled into a plan."""
    axes = {name: entry for name, entry in campaign.axes.items() if name != "seed"}
    values = sum(len(entry.values if isinstance(entry, FieldAxis) else entry) for entry in axes.values())
    given = [campaign.set, *(profile.set for profile in campaign.profiles.values())]
    given += [alternative.set for entry in axes.values() for alternative in alternatives(entry)]
    counted = {"axes": (len(axes), MAX_AXES), "values of axes": (values, MAX_VALUES)}
    counted["fields that are set"] = (sum(map(count_fields, given)), MAX_FIELDS)
    for what, (found, limit) in counted.items():
        if found > limit:
            yield source.message(("axes",), f"{found} {what}; expected at most {limit} in a campaign", at_key=True)


def _wrong(campaign: Campaign, source: Source) -> Iterator[str]:
    parts: list[tuple[FieldPath, Campaign | Profile]] = [((), campaign)]
    parts += [(("profiles", name), profile) for name, profile in campaign.profiles.items()]
    for place, part in parts:
        if part.seeds is not None and "seed" in part.axes:
            yield source.message((*place, "seeds"), "the axis `seed` has a list: expected one of the two", at_key=True)
    yield from _wrong_columns(campaign.axes, ("axes",), source)
    everywhere: dict[FieldPath, dict[str, object]] = {("set",): campaign.set} | {
        ("profiles", name, "set"): profile.set for name, profile in campaign.profiles.items()
    }
    yield from check_axes(campaign.axes, everywhere, source)
    yield from _wrong_profiles(campaign, source)
    yield from _wrong_comparisons(campaign, everywhere, source)
    for name in campaign.gap:
        if name not in METRICS:
            yield source.message(("gap", name), f"no metric is called `{name}`{nearest(name, METRICS)}", at_key=True)
    for index, claim in enumerate(campaign.claims):
        for name in claim.profiles or ():
            if name not in campaign.profiles:
                text = f"no profile `{name}`{nearest(name, campaign.profiles)}"
                yield source.message(("claims", index, "profiles"), text)


def _wrong_columns(axes: Iterable[str], place: FieldPath, source: Source) -> Iterator[str]:
    for name in axes:
        column = column_name(name)
        if not COLUMN.fullmatch(column) or column in RESERVED_COLUMNS:
            why = "the results have a column `{}`" if column in RESERVED_COLUMNS else "`{}` is no name for a column"
            text = f"{why.format(column)}; call the axis otherwise: `NAME: {{field: ..., values: ...}}`"
            yield source.message((*place, name), text, at_key=True)
    columns = Counter(map(column_name, axes))
    for column in sorted(column for column, count in columns.items() if count > 1):
        yield source.message(place, f"two axes have the column `{column}`")


def _wrong_comparisons(
    campaign: Campaign, everywhere: dict[FieldPath, dict[str, object]], source: Source
) -> Iterator[str]:
    claims = [claim.name for claim in campaign.claims]
    for name, profile in campaign.profiles.items():
        place = ("profiles", name)
        if profile.like is not None and (profile.like not in campaign.profiles or campaign.profiles[profile.like].like):
            known = [name for name, profile in campaign.profiles.items() if profile.like is None]
            yield source.message((*place, "like"), f"expected a profile by itself{nearest(profile.like, known)}")
        for claim in profile.differs:
            if claim not in claims:
                text = f"no claim is called `{claim}`{nearest(claim, claims)}"
                yield source.message((*place, "differs", claim), text, at_key=True)
        for unused in ("within", "differs") if not profile.compare else ():
            if getattr(profile, unused):
                yield source.message((*place, unused), "is of a profile with `compare`", at_key=True)
        for axis, entry in profile.compare.items():
            values = entry.values if isinstance(entry, FieldAxis) else entry
            if axis == "seed" or axis in campaign.axes or len(values) < 2:
                text = "expected an axis that the campaign does not have, with two values or more"
                yield source.message((*place, "compare", axis), text, at_key=True)
                continue
            together = {**campaign.axes, axis: entry}
            yield from _wrong_columns(together, (*place, "compare"), source)
            yield from check_axes(together, everywhere, source, {axis: (*place, "compare", axis)})


def _wrong_profiles(campaign: Campaign, source: Source) -> Iterator[str]:
    for name, profile in campaign.profiles.items():
        for axis, values in profile.axes.items():
            place = ("profiles", name, "axes", axis)
            given = campaign.axes.get(axis)
            if given is None and axis != "seed":
                hint = nearest(axis, [*campaign.axes, "seed"])
                yield source.message(place, f"the campaign has no axis `{axis}`{hint}", at_key=True)
            elif not values:
                yield source.message(place, "an axis needs at least one value")
            elif isinstance(given, list) and isinstance(given[0], Alternative):
                known = {alternative.name for alternative in given if isinstance(alternative, Alternative)}
                for i, value in enumerate(values):
                    if value not in known:
                        hint = nearest(str(value), map(str, known))
                        yield source.message((*place, i), f"`{json.dumps(value)}` is no alternative{hint}")
