# SPDX-License-Identifier: Apache-2.0
"""Figures of a campaign's own SQL: lines, steps, bars, points, heat maps and distributions of its rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import accumulate, groupby
from typing import Any

import plotly.graph_objects as go

from qbed.campaign.axes import Value
from qbed.campaign.figure import Figure
from qbed.report.axes import AxisPositions, Place, in_order
from qbed.report.style import DASHES, SHADES, Colours, bars, faded, marker, new_figure


@dataclass(frozen=True)
class Row:
    """A row as a figure takes it; what its SQL does not give is None."""

    x: Value | None
    y: Any
    z: float | None
    low: float | None
    high: float | None
    weight: float | None
    series: Value | None

    @classmethod
    def of(cls, columns: Mapping[str, Any]) -> Row:
        found = {name: columns.get(name) for name in cls.__dataclass_fields__}
        return cls(**{name: float(value) if isinstance(value, Decimal) else value for name, value in found.items()})


def draw(spec: Figure, rows: list[Row], colours: Colours, axes: Sequence[list[Value]]) -> go.Figure:
    """`axes`: the values of the campaign's axes, each in its order."""
    figure = new_figure("", spec.x_title or "", spec.y_title or "")
    orders = (_order((row.series for row in rows), axes), _order((row.x for row in rows), axes))
    if spec.kind == "cdf":
        found = [(row.series, row.x, 1 if row.weight is None else row.weight) for row in rows if row.x is not None]
        if not spec.y_title:
            figure.update_yaxes(title_text="share")
        return shares(figure, found, colours, orders[0])
    places = AxisPositions((row.x for row in rows), orders[1])
    places.prepare(figure, side_by_side=spec.kind == "bar" and any(isinstance(row.x, str) for row in rows))
    if spec.kind == "heatmap":
        return _heatmap(
            figure, spec, rows, (places, AxisPositions((row.y for row in rows), _order((r.y for r in rows), axes)))
        )
    _lines(spec, figure, rows, places, colours, in_order((row.series for row in rows), orders[0]))
    if spec.kind != "scatter" and not spec.log_y:
        figure.update_yaxes(rangemode="tozero")
    return figure


def _order(values: Iterable[Value | None], axes: Sequence[list[Value]]) -> list[Value]:
    """The axis that these are values of, in its order; with what follows a comma."""
    found = {str(value).partition(", ")[0] for value in values if value is not None}
    return next((axis for axis in axes if found and found <= {str(value) for value in axis}), [])


def _lines(
    spec: Figure,
    figure: go.Figure,
    rows: list[Row],
    places: AxisPositions,
    colours: Colours,
    labels: list[Value | None],
) -> None:
    # A series `droptail, ns-3` has the colour of `droptail`, and a dash and a variant of the symbol for `ns-3`.
    named = [_split("" if label is None else str(label), colours) for label in labels]
    parts = list(dict.fromkeys(part for _, part in named))
    for label, (first, part) in zip(labels, named, strict=True):
        series_rows = [row for row in rows if row.series == label]
        if any(isinstance(row.x, str) for row in series_rows):  # SQL has sorted the texts, if anything
            series_rows.sort(key=lambda row: places.order(row.x) if row.x is not None else -1)
        number = parts.index(part)
        dash = DASHES[number % len(DASHES)] if len(parts) > 1 else colours.dash(first)
        look = Look("" if label is None else str(label), first, colours[first], colours.symbol(first, number), dash)
        _trace(spec, figure, series_rows, places, look, colours)


def _split(name: str, colours: Colours) -> tuple[str, str]:
    """The series of a name's colour, and the part of it that the name adds."""
    first, _, part = name.partition(", ")
    return (first, part) if first in colours else (name, "")


@dataclass(frozen=True)
class Look:
    """How a series is drawn. `first`: the series of its colour."""

    name: str
    first: str
    colour: str
    symbol: str
    dash: str


def _trace(
    spec: Figure, figure: go.Figure, rows: list[Row], places: AxisPositions, look: Look, colours: Colours
) -> None:
    """Add one series to the figure."""
    name, first, colour, symbol = look.name, look.first, look.colour, look.symbol
    values = [row.y for row in rows]
    lows, highs = [row.low for row in rows], [row.high for row in rows]
    common: dict[str, object] = {"name": name, "showlegend": bool(name), "legendgroup": name}
    if spec.kind == "bar":
        numbers = not any(isinstance(row.x, str) for row in rows)
        common["x"] = along = [places(row.x) if numbers else str(row.x) for row in rows]
        if spec.stacked and (below := [trace for trace in figure.data if trace.offsetgroup == first]):
            colour = faded(colour, 0.5 / len(below))
            common["base"] = [_top(below, x) for x in along]
        if spec.stacked:
            common["offsetgroup"] = first
        pattern = colours.pattern(first, {trace.marker.pattern.shape for trace in figure.data})
        spread = whiskers(values, lows, highs)
        figure.add_bar(y=values, error_y=spread, marker=bars(colour, pattern), **common)
        return
    common["x"] = along = [places(row.x) for row in rows]
    if spec.kind == "scatter" or not places.measured:
        spread = whiskers(values, lows, highs)
        points = {"size": 8, "color": colour, "symbol": symbol}
        figure.add_scatter(y=values, error_y=spread, mode="markers", marker=points, **common)
        return
    shape = "hv" if spec.kind == "steps" else "linear"
    band(figure, along, lows, highs, (colour, name, shape))
    line = {"color": colour, "width": 2.4, "dash": look.dash, "shape": shape}
    figure.add_scatter(y=values, mode="lines+markers", line=line, marker=marker(symbol), **common)


def _top(bars: Iterable[go.Bar], x: Place) -> float:
    """The top of stacked bars at a place."""
    found = (y for bar in bars for place, y in zip(bar.x, bar.y, strict=True) if place == x and y is not None)
    return float(sum(found))


def band(
    figure: go.Figure,
    places: Sequence[Place],
    lows: Sequence[float | None],
    highs: Sequence[float | None],
    look: tuple[str, str, str],
) -> None:
    """The area between `low` and `high`, where both are known."""
    colour, name, shape = look
    points = list(zip(places, lows, highs, strict=True))
    for known, run in groupby(points, key=lambda point: point[1] is not None and point[2] is not None):
        some = list(run)
        if known and len(some) > 1:
            along, low, high = zip(*some, strict=True)
            common = {"x": along, "legendgroup": name, "showlegend": False, "hoverinfo": "skip", "mode": "lines"}
            line = {"width": 0, "shape": shape, "color": colour}
            figure.add_scatter(y=low, line=line, **common)
            figure.add_scatter(y=high, line=line, fill="tonexty", fillcolor=faded(colour, 0.18), **common)


def whiskers(
    values: Sequence[float | None], lows: Sequence[float | None], highs: Sequence[float | None]
) -> dict[str, object] | None:
    """From the lowest to the highest; where these are one (a single seed), there is none."""
    spread = [
        None if value is None or low is None or high is None or high <= low else (high - value, value - low)
        for value, low, high in zip(values, lows, highs, strict=True)
    ]
    if not any(spread):
        return None
    # Plotly draws a whisker of no length for a null, and none for what is no number.
    up = ["none" if lengths is None else lengths[0] for lengths in spread]
    down = ["none" if lengths is None else lengths[1] for lengths in spread]
    return {"type": "data", "array": up, "arrayminus": down, "thickness": 1.2, "width": 4}


def shares(
    figure: go.Figure, rows: Sequence[tuple[Value | None, Value, float]], colours: Colours, known: Sequence[Value]
) -> go.Figure:
    """Cumulated weights over values, a step at each. `rows`: series, value, weight."""
    for label in in_order((row[0] for row in rows), known):
        series_rows = sorted((row[1:] for row in rows if row[0] == label), key=lambda row: row[0])
        total = sum(weight for _, weight in series_rows)
        if not total:
            continue
        sums = accumulate(weight for _, weight in series_rows)
        at = {value: part / total for (value, _), part in zip(series_rows, sums, strict=True)}
        figure.add_scatter(
            x=[min(at), *at],
            y=[0, *at.values()],
            mode="lines+markers",
            name="" if label is None else str(label),
            showlegend=label not in (None, ""),
            line={"color": colours[label], "width": 2.4, "shape": "hv", "dash": colours.dash(label)},
            marker=marker(colours.symbol(label)),
        )
    figure.update_yaxes(range=[0, 1.01], tickformat=".0%")
    return figure


def _heatmap(
    figure: go.Figure, spec: Figure, rows: list[Row], places: tuple[AxisPositions, AxisPositions]
) -> go.Figure:
    """One field a pair of x and y, darker the smaller it is; what has no row stays empty."""
    wide, high = places
    fields = {(row.x, row.y): row.z for row in rows}
    for axis, along in zip("xy", places, strict=True):
        along.prepare(figure, axis, side_by_side=any(isinstance(value, str) for value in along.values))
    figure.add_heatmap(
        x=_fields(wide),
        y=_fields(high),
        z=[[fields.get((x, y)) for x in wide.values] for y in high.values],
        colorscale=SHADES,
        colorbar={"title": {"text": spec.z_title or "", "side": "right"}, "outlinewidth": 0},
        hoverongaps=False,
    )
    return figure


def _fields(axis: AxisPositions) -> list[Place]:
    """Quantities stand side by side: fields between `32 KB` and `1 MB` would be as wide as these are apart."""
    return [str(value) if isinstance(value, str) else axis(value) for value in axis.values]
