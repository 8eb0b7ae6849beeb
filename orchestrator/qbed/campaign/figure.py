# SPDX-License-Identifier: Apache-2.0
"""A figure of a campaign file: its kind, its rows, and how it looks."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from qbed.campaign.axes import Part

Legend = Literal["above", "right", "below", "top-left", "top-right", "bottom-left", "bottom-right", "none"]
End = Annotated[float | None, Field(allow_inf_nan=False)]
"""An end of an axis; None: the automatic end."""


ROWS = {
    "line": ("x", "y"),
    "steps": ("x", "y"),
    "bar": ("x", "y"),
    "scatter": ("x", "y"),
    "heatmap": ("x", "y", "z"),
    "cdf": ("x",),
}
"""Required columns of the SQL, by kind of figure."""


class Figure(Part):
    """A figure of the report.

    `line`, `steps`, `bar` and `scatter` need SQL with the columns `x` and `y`. Optional columns are `series`, for
    several lines, and `low` and `high`, for uncertainty: a band of `line` and `steps`, whiskers of `bar` and `scatter`.
    `heatmap` needs `x`, `y` and the colour `z`. `cdf` shows the distribution of a queue's length over time, or with SQL
    the distribution of the values `x`, weighted by an optional column `weight`. Numbers and quantities (`128 KB`) are
    sorted by size along an axis, other values by the campaign's axis.
    """

    kind: Literal[
        "queue", "fct", "goodput", "drops", "marks", "slowdown", "line", "steps", "bar", "scatter", "heatmap", "cdf"
    ]
    """Kind of the figure."""
    name: str | None = Field(default=None, pattern=r"^[a-z0-9][a-z0-9-]*$")
    """Name of its file. The default is the kind."""
    title: str | None = None
    """Title of the figure."""
    series: str | None = None
    """Axis of the lines and their colours. The default is the first axis."""
    x: str | None = None
    """Axis of the campaign on the x-axis."""
    where: str | None = None
    """SQL condition on the cells of the figure, such as `senders = 80`."""
    queue: str | None = None
    """Queue of the figure. The default is the bottleneck."""
    sql: str | None = None
    """DuckDB SELECT over the views of a run: the rows of `line`, `steps`, `bar`, `scatter`, `heatmap` or `cdf`."""
    x_title: str | None = None
    """Quantity on the x-axis, with its unit."""
    y_title: str | None = None
    """Quantity on the y-axis, with its unit."""
    z_title: str | None = None
    """Quantity shown by the colours of a `heatmap`, with its unit."""
    stacked: bool = False
    """Whether the bars of the series `NAME` and `NAME, PART` are stacked, in the order of the rows."""
    log_x: bool = False
    """Whether the x-axis is logarithmic."""
    log_y: bool = False
    """Whether the y-axis is logarithmic."""
    height: float | None = Field(default=None, ge=0.1, le=4, allow_inf_nan=False)
    """Height as a multiple of the width. The default is 0.54 in images for the screen, and 0.62 in those for paper."""
    x_range: tuple[End, End] | None = None
    """First and last number on the x-axis, in its unit. `null` is the automatic end: `[0, null]`."""
    y_range: tuple[End, End] | None = None
    """First and last number on the y-axis, in its unit. `null` is the automatic end: `[0, null]`."""
    legend: Legend | None = None
    """Position of the legend: outside of the axes, or in one of their corners. The default is `above`."""

    @model_validator(mode="after")
    def _rows(self) -> Figure:
        kinds = ", ".join(f"`{kind}`" for kind in ROWS)
        if self.sql is not None and self.kind not in ROWS:
            raise ValueError(f"`sql` belongs to the kinds {kinds}")
        if self.sql is None and self.kind in ROWS and self.kind != "cdf":
            raise ValueError(f"a figure of the kind `{self.kind}` needs `sql`")
        if self.stacked and self.kind != "bar":
            raise ValueError("`stacked` belongs to the kind `bar`")
        for name, ends, logarithmic in (("x", self.x_range, self.log_x), ("y", self.y_range, self.log_y)):
            first, last = ends or (None, None)
            if first is not None and last is not None and first >= last:
                got = f"[{first:g}, {last:g}]"
                raise ValueError(f"`{name}_range` is empty: expected the smaller number first, got {got}")
            if logarithmic and any(end is not None and end <= 0 for end in (first, last)):
                raise ValueError(f"`{name}_range` of a logarithmic axis: expected numbers above 0")
        return self
