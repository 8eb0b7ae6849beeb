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
from itertools import islice
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, PlainValidator, ValidationError, WithJsonSchema, field_validator, model_validator

from qbed.base.errors import LabError, nearest
from qbed.campaign.axes import Alternative, AxisEntry, FieldAxis, Part, Value, alternatives, check_axes, column_name
from qbed.campaign.bands import METRICS, Band, parse_band
from qbed.campaign.claim import Claim
from qbed.campaign.overlaps import count_fields, fields, without
from qbed.campaign.until import Until, parse_until
from qbed.config.messages import MAX_ERRORS, explain
from qbed.config.source import FieldPath, Source, read
from qbed.storage.identity import COLUMN
from qbed.telemetry.tables import RESERVED_COLUMNS

MAX_AXES, MAX_VALUES, MAX_FIELDS = 50, 1000, 5000


class CampaignError(LabError):
    """A campaign file that does not hold together; every message names file, line, field and what was expected."""


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


ROWS = {
    "line": ("x", "y"),
    "steps": ("x", "y"),
    "bar": ("x", "y"),
    "scatter": ("x", "y"),
    "heatmap": ("x", "y", "z"),
    "cdf": ("x",),
}
"""By the kinds of figures that have SQL: the columns that it has to give."""


class Figure(Part):
    """A figure of the report.

    `line`, `steps`, `bar` and `scatter` take SQL with the columns `x` and `y`; for several lines `series`, and for
    what is not known exactly `low` and `high`: a band of `line` and `steps`, whiskers of `bar` and `scatter`. `heatmap`
    takes `x`, `y` and the colour `z`. `cdf` shows how much of the time a queue was how long, or of SQL the share of the
    values `x`, each with its `weight`, if there is one. Along an axis numbers and quantities (`128 KB`) stand by size,
    anything else in the order of the campaign's axis.
    """

    kind: Literal[
        "queue", "fct", "goodput", "drops", "marks", "slowdown", "line", "steps", "bar", "scatter", "heatmap", "cdf"
    ]
    """The kind of the figure."""
    name: str | None = Field(default=None, pattern=r"^[a-z0-9][a-z0-9-]*$")
    """Its file's name; the kind without it."""
    title: str | None = None
    """Its title."""
    series: str | None = None
    """The axis that gives the lines and their colours; the first axis without it."""
    x: str | None = None
    """The axis along the x-axis."""
    where: str | None = None
    """SQL condition on the cells that it shows, such as `senders = 80`."""
    queue: str | None = None
    """The queue that it shows; the bottleneck without it."""
    sql: str | None = None
    """DuckDB over the views of `qbed.claims.views`: the rows of `line`, `steps`, `bar`, `scatter`, `heatmap`, `cdf`."""
    x_title: str | None = None
    """Quantity on the x-axis, with its unit."""
    y_title: str | None = None
    """Quantity on the y-axis, with its unit."""
    z_title: str | None = None
    """Quantity shown by the colours of a `heatmap`, with its unit."""
    stacked: bool = False
    """Stack the bars of the series `NAME` and `NAME, PART` on each other, in the order of the rows."""
    log_x: bool = False
    """A logarithmic x-axis."""
    log_y: bool = False
    """A logarithmic y-axis."""

    @model_validator(mode="after")
    def _rows(self) -> Figure:
        kinds = ", ".join(f"`{kind}`" for kind in ROWS)
        if self.sql is not None and self.kind not in ROWS:
            raise ValueError(f"`sql` belongs to the kinds {kinds}")
        if self.sql is None and self.kind in ROWS and self.kind != "cdf":
            raise ValueError(f"a figure of the kind `{self.kind}` needs `sql`")
        if self.stacked and self.kind != "bar":
            raise ValueError("`stacked` belongs to the kind `bar`")
        return self


class Profile(Part):
    """Other values for some axes, and fields of the lab."""

    like: str | None = None
    """A profile with the default values of axes, fields and claims."""
    axes: dict[str, list[Value]] = Field(default_factory=dict)
    """By the axis' name: its values, or the names of its alternatives."""
    set: dict[str, object] = Field(default_factory=dict)
    """Fields of the lab."""
    seeds: SeedsUntil | None = None
    """Instead of a list of seeds, as the campaign's."""
    compare: dict[str, AxisEntry] = Field(default_factory=dict, max_length=1)
    """One more axis: each claim is judged for each of its values alone, and holds if it comes out as for the first."""
    within: dict[str, Tolerated] = Field(default_factory=dict)
    """How far a claim's numbers may then be from the first value's, by patterns of CLAIM.NUMBER: the last that fits."""
    differs: dict[str, str] = Field(default_factory=dict)
    """By claim: why it is known not to come out as for the first value."""


class Campaign(Part):
    """A campaign file."""

    lab: str = "lab.yml"
    """The lab file, beside the campaign file."""
    question: str = Field(min_length=1)
    """The question of the campaign, in a sentence."""
    axes: dict[str, AxisEntry] = Field(default_factory=dict)
    """The matrix: every combination is a cell."""
    seeds: SeedsUntil | None = None
    """How well to know a metric's mean, instead of a list of seeds: `until 5 % of goodput_bps, at most 40`."""
    set: dict[str, object] = Field(default_factory=dict)
    """Fields of the lab that hold in every cell."""
    profiles: dict[str, Profile] = Field(default_factory=dict)
    """Smaller and larger versions of the matrix."""
    views: dict[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")], str] = Field(default_factory=dict)
    """By their names: DuckDB SELECTs over the views of `qbed.claims.views` and those above, for claims and figures."""
    claims: list[Claim] = Field(default_factory=list)
    """The expected outcome."""
    figures: list[Figure] = Field(default_factory=list)
    """Figures of the report; the default figures without it."""
    gap: dict[str, Tolerated] = Field(default_factory=dict)
    """By metric: how far its value in containers may be from that in virtual time: `10 %`, `3`, or `10 % or 3`."""

    @field_validator("claims")
    @classmethod
    def _unique(cls, claims: list[Claim]) -> list[Claim]:
        twice = [name for name, count in Counter(claim.name for claim in claims).items() if count > 1]
        if twice:
            raise ValueError(f"two claims are called `{min(twice)}`")
        return claims

    def profile(self, name: str | None) -> Profile:
        """A profile with what it has of the one that it is like; None: an empty one."""
        if name is None:
            return Profile()
        profile = self.profiles[name]
        if profile.like is None:
            return profile
        other = self.profiles[profile.like]
        given = without(other.set, fields(profile.set)) | profile.set
        seeds = profile.seeds or (None if "seed" in profile.axes else other.seeds)
        return profile.model_copy(update={"axes": other.axes | profile.axes, "set": given, "seeds": seeds})

    def asks(self, claim: Claim, profile: str | None) -> bool:
        """Whether a claim is one that a profile's cells can tell."""
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
        raise CampaignError(explain(error, source, Campaign.model_json_schema())) from None
    wrong = list(_too_many(campaign, source)) or list(islice(_wrong(campaign, source), MAX_ERRORS))
    if wrong:
        raise CampaignError(wrong)
    return campaign, source


def _too_many(campaign: Campaign, source: Source) -> Iterator[str]:
    """Refuse files that would take hours to check: each value of an axis is a plan."""
    axes = {name: entry for name, entry in campaign.axes.items() if name != "seed"}
    values = sum(len(entry.values if isinstance(entry, FieldAxis) else entry) for entry in axes.values())
    given = [campaign.set, *(profile.set for profile in campaign.profiles.values())]
    given += [one.set for entry in axes.values() for one in alternatives(entry)]
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
            known = [other for other, one in campaign.profiles.items() if one.like is None]
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
