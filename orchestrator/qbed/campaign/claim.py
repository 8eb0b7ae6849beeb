# SPDX-License-Identifier: Apache-2.0
"""Claims of a campaign file: sentences that the results confirm or refute."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PlainSerializer, PlainValidator, WithJsonSchema, field_validator, model_validator

from qbed.base.errors import nearest
from qbed.campaign.axes import Part
from qbed.campaign.bounds import EXAMPLES, Bound, parse_bound

VALUE = "value"
"""Name of a measure without a name."""
ClaimBound = Annotated[
    Bound,
    PlainValidator(parse_bound),
    PlainSerializer(str),
    WithJsonSchema({"type": "string", "examples": list(EXAMPLES)}),
]
Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]


class Claim(Part):
    """A sentence that the results confirm or refute.

    `measure` with `bound` is the usual form: one number for each seed. Its confidence interval over seeds is compared
    with the bound. `sql` is a boolean for each seed: the claim is about the share of seeds in which it holds.
    """

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")
    """Name of the claim: lower-case letters, digits, hyphens."""
    paper: str = ""
    """Quotation of the sentence that is checked. Empty without a source."""
    source: str = ""
    """Source of the sentence: the paper, its figure or table."""
    measure: dict[Name, str] = Field(default_factory=dict)
    """SQL expression, such as `avg(goodput_bps)`, that gives one number for each seed, or expressions by name."""
    from_: str = Field(default="cells", alias="from")
    """Rows that a measure aggregates: a view, with `WHERE` and `JOIN` as in SQL. It has the column `seed`."""
    each: list[Name] = Field(default_factory=list)
    """Columns. The claim is judged for each combination of their values."""
    bound: dict[Name, ClaimBound] = Field(default_factory=dict)
    """Bound of the measure, or bounds by name of a measure. A measure without a bound is only shown."""
    average: Literal["mean", "geometric", "median"] = "mean"
    """Average over seeds. `geometric` is for ratios, `median` for skewed distributions."""
    sql: str | None = None
    """DuckDB SELECT over the views of a run: one row with a boolean `holds` and further numbers to show."""
    random: bool = True
    """`off`: the results do not depend on the seed. One seed decides; all seeds must have equal values."""
    expect: Literal["holds", "refuted", "undecided"] = "holds"
    """Expected verdict. `undecided`: the number of seeds is too small for a verdict."""
    why: str | None = None
    """Reason for an expected verdict other than `holds`."""
    profiles: list[str] | None = None
    """Profiles that judge this claim. The default is all profiles."""

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
        """The claim's SQL, or a SELECT of its measures with a row for each seed and combination."""
        if self.sql is not None:
            return self.sql
        keys = ", ".join(["seed", *map(_quoted, self.each)])
        measures = ", ".join(f"({sql.strip()})::DOUBLE AS {_quoted(name)}" for name, sql in self.measure.items())
        return f"SELECT {keys}, {measures} FROM {self.from_.strip()} GROUP BY ALL ORDER BY {keys}"


def _quoted(name: str) -> str:
    return f'"{name}"'
