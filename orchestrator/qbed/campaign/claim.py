# SPDX-License-Identifier: Apache-2.0
"""Claims of a campaign file: sentences that the results confirm or refute."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PlainSerializer, PlainValidator, WithJsonSchema, field_validator, model_validator

from qbed.base.errors import nearest
from qbed.campaign.axes import Part
from qbed.campaign.bounds import EXAMPLES, Bound, parse_bound

VALUE = "value"
"""Name of a measure that has no name of its own."""
ClaimBound = Annotated[
    Bound,
    PlainValidator(parse_bound),
    PlainSerializer(str),
    WithJsonSchema({"type": "string", "examples": list(EXAMPLES)}),
]
Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]


class Claim(Part):
    """A sentence that the results confirm or refute.

    `measure` with `bound` is the usual form: one number for each seed, whose confidence interval over seeds is
    compared with the bound. `sql` is the form for what is no number: it is asked for each seed alone, and the claim
    is about the share of seeds in which it holds.
    """

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")
    """A short name: lower-case letters, digits, hyphens."""
    paper: str = ""
    """The sentence that is checked, as its source has it; empty for a claim that cites no source."""
    source: str = ""
    """Source of the sentence: the paper, its figure or table."""
    measure: dict[Name, str] = Field(default_factory=dict)
    """SQL expression, such as `avg(goodput_bps)`, that gives one number for each seed, or expressions by name."""
    from_: str = Field(default="cells", alias="from")
    """Rows that a measure aggregates: a view, with `WHERE` and `JOIN` as in SQL. It has the column `seed`."""
    each: list[Name] = Field(default_factory=list)
    """Columns: the claim is about each combination of their values."""
    bound: dict[Name, ClaimBound] = Field(default_factory=dict)
    """The values that the claim allows, or by name of a measure. A measure without one is only shown."""
    average: Literal["mean", "geometric", "median"] = "mean"
    """The average over seeds that the claim is about: `geometric` fits ratios, `median` fits skewed values."""
    sql: str | None = None
    """DuckDB SELECT over the views of a run: one row with a boolean `holds` and the numbers that it rests on."""
    random: bool = True
    """`no`: the seed changes nothing that the claim is about, so one seed decides it, and all seeds must agree."""
    expect: Literal["holds", "refuted", "undecided"] = "holds"
    """The expected verdict. `undecided`: the profiles' seeds cannot decide it."""
    why: str | None = None
    """The reason for an expected verdict other than `holds`."""
    profiles: list[str] | None = None
    """The profiles that judge this claim; all of them without it."""

    @field_validator("measure", "bound", mode="before")
    @classmethod
    def _by_name(cls, value: object) -> object:
        return value if isinstance(value, dict) else {VALUE: value}

    @model_validator(mode="after")
    def _is_complete(self) -> Claim:
        if bool(self.measure) == (self.sql is not None):
            raise ValueError("a claim needs either `measure` and `bound`, or `sql`")
        if self.measure and not self.bound:
            raise ValueError(f"a claim with `measure` needs `bound`, such as `{EXAMPLES[0]}`")
        measured = {"from": self.from_ != "cells", "each": self.each, "bound": self.bound}
        extra = [name for name, value in (measured | {"average": self.average != "mean"}).items() if value]
        if self.sql is not None and extra:
            raise ValueError(f"`{extra[0]}` belongs to a claim with `measure`")
        for name in self.bound:
            if name not in self.measure:
                raise ValueError(f"`bound` names no measure: `{name}`{nearest(name, self.measure)}")
        if self.expect != "holds" and not self.why:
            raise ValueError(f"a claim with `expect: {self.expect}` needs `why`")
        return self

    @property
    def query(self) -> str:
        """The SQL: that of the claim, or the one that gives its measures: a row for each seed and combination."""
        if self.sql is not None:
            return self.sql
        keys = ", ".join(["seed", *map(_quoted, self.each)])
        measures = ", ".join(f"({sql.strip()})::DOUBLE AS {_quoted(name)}" for name, sql in self.measure.items())
        return f"SELECT {keys}, {measures} FROM {self.from_.strip()} GROUP BY ALL ORDER BY {keys}"


def _quoted(name: str) -> str:
    return f'"{name}"'
