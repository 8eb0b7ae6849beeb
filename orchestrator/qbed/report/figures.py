# SPDX-License-Identifier: Apache-2.0
"""The figures of a report, drawn from the run's tables."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

import duckdb
import plotly.graph_objects as go

from qbed.base.crash_report import describe_exception
from qbed.campaign.axes import Value
from qbed.campaign.figure import ROWS, Figure
from qbed.claims.sql import Connection, SqlRow, all_rows, one_line
from qbed.report import user_figures
from qbed.report.axes import AxisPositions, in_order
from qbed.report.layout import LayoutError, arrange
from qbed.report.style import Colours, bars, faded, marker, new_figure

SERIES_POINTS = 1200
CDF_POINTS = 400
_QUEUE_LENGTHS = """
    WITH bins AS (
      SELECT {key} AS series, cell, bin_bytes,
        unnest(histogram_ns) AS ns, generate_subscripts(histogram_ns, 1) - 1 AS bin
      FROM queues q JOIN (SELECT cell, bottleneck FROM cells) b USING (cell)
      WHERE port = coalesce(?, bottleneck) AND ({where}))
    SELECT any_value(series), bin * bin_bytes / 1e3, sum(ns), min(cell) FROM bins
    GROUP BY series, bin * bin_bytes HAVING sum(ns) > 0 ORDER BY 2
"""
_FROM_SERIES = """
    WITH s AS (
      SELECT *, ntile(?) OVER (ORDER BY time_ns) AS bucket FROM queue_series WHERE cell = ? AND port = ?)
    SELECT max(time_ns) / 1e6, sum(packet_ns) / nullif(sum(interval_ns), 0), min(min_packets), max(max_packets)
    FROM s GROUP BY bucket ORDER BY 1
"""
_FROM_EVENTS = """
    WITH s AS (
      SELECT time_ns, queue_packets AS packets, lead(time_ns) OVER (ORDER BY time_ns) - time_ns AS lasts,
        ntile(?) OVER (ORDER BY time_ns) AS bucket
      FROM queue_events WHERE cell = ? AND port = ?)
    SELECT max(time_ns) / 1e6, coalesce(sum(packets * lasts) / nullif(sum(lasts), 0), avg(packets)),
      min(packets), max(packets)
    FROM s GROUP BY bucket ORDER BY 1
"""


@dataclass
class Drawing:
    """A figure for the page, or the reason why it is missing."""

    name: str
    title: str
    figure: go.Figure | None = None
    missing: str | None = None


@dataclass
class Artist:
    """Draws figures from the views of a run. `axes`: the axes with several values."""

    connection: Connection
    axes: dict[str, list[Value]]
    colours: Colours = field(init=False)

    def __post_init__(self) -> None:
        first = next((values for name, values in self.axes.items() if name != "seed"), [])
        self.colours = Colours(first)

    def draw(self, spec: Figure) -> Drawing:
        """Draw a figure; if that fails, return the reason."""
        drawing = Drawing(spec.name or spec.kind, spec.title or TITLES.get(spec.kind, spec.kind))
        try:
            drawing.figure = self.user_figure(spec) if spec.sql is not None else _KINDS[spec.kind](self, spec)
        except duckdb.Error as error:
            drawing.missing = f"the SQL fails: {one_line(error)}"
        except Exception as error:  # rows of user-supplied SQL can be invalid in any way
            drawing.missing = f"it cannot be drawn: {describe_exception(error)}"
        else:
            if drawing.figure is None:
                drawing.missing = "this run has no data for it"
        if drawing.figure is not None:
            try:
                arrange(drawing.figure, spec)
            except LayoutError as error:
                drawing.figure, drawing.missing = None, str(error)
        return drawing

    # --- axes ---

    def series_of(self, spec: Figure) -> str | None:
        return spec.series or next((name for name in self.axes if name != "seed" and name != spec.x), None)

    def x_of(self, spec: Figure) -> str | None:
        if spec.x:
            return spec.x
        series = spec.series or next((name for name in self.axes if name != "seed"), None)
        others = ((name, values) for name, values in self.axes.items() if name not in ("seed", series))
        return next((name for name, values in others if AxisPositions(values).measured), None)

    def known(self, axis: str | None) -> list[Value]:
        """The values of an axis in the campaign's order."""
        return self.axes.get(axis or "", [])

    def rows(self, sql: str, parameters: list[object] | None = None) -> list[SqlRow]:
        return all_rows(self.connection, sql, parameters)[1]

    # --- kinds of figures ---

    def queue(self, spec: Figure) -> go.Figure | None:
        """Queue length over time in one cell per series: means of intervals as a line, extremes as a band."""
        series = self.series_of(spec)
        key = _key(series)
        cells = self.rows(
            f"SELECT any_value({key}), min(cell), arg_min(bottleneck, cell) FROM cells"
            f" WHERE {spec.where or 'true'} GROUP BY {key} ORDER BY min(cell)"
        )
        figure, busy = None, list[float]()
        for label, cell, bottleneck in cells:
            points = self._occupancy(cell, spec.queue or bottleneck)
            if not points:
                continue
            if figure is None:
                subtitle = self._constant(cells, spec)
                figure = new_figure(subtitle, "time (ms)", "queue (packets)")
            times, means, lows, highs = zip(*points, strict=True)
            colour, name = self.colours[label], str(label) or (spec.queue or bottleneck)
            figure.add_scatter(
                x=[*times, *times[::-1]],
                y=[*highs, *lows[::-1]],
                fill="toself",
                fillcolor=faded(colour, 0.16),
                line={"width": 0},
                hoverinfo="skip",
                legendgroup=name,
                showlegend=False,
            )
            figure.add_scatter(
                x=times,
                y=means,
                name=name,
                legendgroup=name,
                mode="lines+markers",
                line={"color": colour, "width": 1.8, "dash": self.colours.dash(label)},
                marker=marker(self.colours.symbol(label)),
            )
            busy.extend(time for time, high in zip(times, highs, strict=True) if high)
        if figure is not None:
            figure.update_yaxes(rangemode="tozero")
        if figure is not None and busy:
            margin = 0.03 * (max(busy) - min(busy))
            figure.update_xaxes(range=[min(busy) - margin, max(busy) + margin])
        return figure

    def _occupancy(self, cell: int, port: str) -> list[tuple[float, float, int, int]]:
        """Times (ms), mean, smallest and largest occupancy (packets): from the series, or from each packet's event."""
        points = self.rows(_FROM_SERIES, [SERIES_POINTS, cell, port])
        return points or self.rows(_FROM_EVENTS, [SERIES_POINTS, cell, port])

    def _constant(self, cells: list[SqlRow], spec: Figure) -> str:
        """The values of the other axes in the cells of a figure over time."""
        series = self.series_of(spec)
        others = [name for name in self.axes if name != series]
        if not others:
            return f"port {spec.queue or cells[0][2]}; band: extremes"
        columns = ", ".join(f'"{name}"' for name in others)
        values = self.rows(f"SELECT {columns} FROM cells WHERE cell = ?", [cells[0][1]])[0]
        where = ", ".join(f"{words(name)} {value}" for name, value in zip(others, values, strict=True))
        return f"port {spec.queue or cells[0][2]}; {where}; band: extremes"

    def fct(self, spec: Figure) -> go.Figure | None:
        return self._distribution(spec, "fct_ns / 1e6", "flow completion time (ms)")

    def slowdown(self, spec: Figure) -> go.Figure | None:
        return self._distribution(spec, "slowdown", "slowdown (FCT / ideal FCT)")

    def _distribution(self, spec: Figure, value: str, title: str) -> go.Figure | None:
        """A CDF for each series; with an `x` axis the 1st, 50th and 99th percentile along it."""
        if spec.x is not None:
            return self._percentiles(spec, value, title)
        series = self.series_of(spec)
        key = _key(series)
        shares = [i / CDF_POINTS for i in range(CDF_POINTS + 1)]
        rows = self.rows(
            f"SELECT any_value({key}), quantile_disc({value}, {shares}), count(*) FROM flows"
            f" WHERE fct_ns IS NOT NULL AND ({spec.where or 'true'}) GROUP BY {key} ORDER BY min(cell)"
        )
        if not rows:
            return None
        figure = new_figure(condition_text(spec.where), title, "share of flows")
        largest = max(row[1][-1] for row in rows)
        smallest = min(row[1][0] for row in rows)
        for label, quantiles, count in rows:
            figure.add_scatter(
                x=quantiles,
                y=shares,
                line_shape="hv",
                name=f"{label} ({count} flows)".strip(),
                mode="lines+markers",
                line={"color": self.colours[label], "width": 2.4, "dash": self.colours.dash(label)},
                marker=marker(self.colours.symbol(label)),
            )
        if smallest > 0 and largest / smallest > 30:
            figure.update_xaxes(type="log")
        figure.update_yaxes(range=[0, 1.01], tickformat=".0%")
        return figure

    def _percentiles(self, spec: Figure, value: str, title: str) -> go.Figure | None:
        series, x = self.series_of(spec), spec.x
        key = _key(series)
        rows = self.rows(
            f'SELECT any_value({key}), "{x}", quantile_cont({value}, [0.01, 0.5, 0.99]) FROM flows'
            f' WHERE fct_ns IS NOT NULL AND ({spec.where or "true"}) GROUP BY {key}, "{x}" ORDER BY min(cell)'
        )
        if not rows:
            return None
        figure = new_figure("; ".join(filter(None, (_PERCENTILES, condition_text(spec.where)))), words(x), title)
        places = AxisPositions((row[1] for row in rows), self.known(x))
        places.prepare(figure)
        for label in in_order((row[0] for row in rows), self.known(series)):
            series_rows = sorted((row[1:] for row in rows if row[0] == label), key=lambda row: places.order(row[0]))
            for place, dash in ((1, "solid"), (2, "dash"), (0, "dot")):
                figure.add_scatter(
                    x=[places(point[0]) for point in series_rows],
                    y=[point[1][place] for point in series_rows],
                    name=str(label),
                    legendgroup=str(label),
                    showlegend=place == 1,
                    mode="lines+markers" if places.measured else "markers",
                    line={"color": self.colours[label], "dash": dash, "width": 2.4 if place == 1 else 1.5},
                    marker={"size": 7 if place == 1 else 4, "symbol": self.colours.symbol(label)},
                )
        figure.update_yaxes(rangemode="tozero")
        return figure

    def goodput(self, spec: Figure) -> go.Figure | None:
        return self._per_cell(spec, "goodput_bps / 1e9", "goodput (Gbit/s)")

    def drops(self, spec: Figure) -> go.Figure | None:
        return self._per_cell(spec, "dropped_packets", "dropped packets per cell")

    def marks(self, spec: Figure) -> go.Figure | None:
        return self._per_cell(spec, "marked_packets", "marked packets per cell")

    def _per_cell(self, spec: Figure, value: str, title: str) -> go.Figure | None:
        """The mean over cells, with the smallest and the largest as whiskers: lines along `x`, bars without it."""
        series, x = self.series_of(spec), self.x_of(spec)
        key, along = _key(series), _key(x)
        rows = self.rows(
            f"SELECT any_value({key}), any_value({along}), avg({value}), min({value}), max({value}) FROM cells"
            f" WHERE {value} IS NOT NULL AND ({spec.where or 'true'}) GROUP BY {key}, {along} ORDER BY min(cell)"
        )
        if not rows:
            return None
        figure = new_figure(condition_text(spec.where), words(x or series), title)
        labels = in_order((row[0] for row in rows), self.known(series))
        places = AxisPositions((row[1] if x else row[0] for row in rows), self.known(x or series))
        places.prepare(figure, side_by_side=not x)
        for label in labels:
            series_rows = sorted(
                (row for row in rows if row[0] == label), key=lambda row: places.order(row[1]) if x else 0
            )
            _, where, means, lows, highs = zip(*series_rows, strict=True)
            colour, spread = self.colours[label], user_figures.whiskers(means, lows, highs)
            if x:
                figure.add_scatter(
                    x=[places(value) for value in where],
                    y=means,
                    error_y=spread,
                    name=str(label),
                    mode="lines+markers" if places.measured else "markers",
                    line={"color": colour, "width": 2.4, "dash": self.colours.dash(label)},
                    marker={"size": 8, "symbol": self.colours.symbol(label)},
                )
            else:
                surface = bars(colour, self.colours.pattern(label))
                figure.add_bar(x=[str(label)], y=means, error_y=spread, name=str(label), marker=surface)
                figure.update_layout(showlegend=False)
        figure.update_yaxes(rangemode="tozero")
        return figure

    def queue_cdf(self, spec: Figure) -> go.Figure | None:
        """Distribution of a queue's length over time, from the exact histograms of all cells of a series."""
        sql = _QUEUE_LENGTHS.format(key=_key(self.series_of(spec)), where=spec.where or "true")
        rows = self.rows(sql, [spec.queue])
        if not rows:
            return None
        subtitle = "; ".join(filter(None, (f"port {spec.queue or 'of the bottleneck'}", condition_text(spec.where))))
        found = [(label, size, ns) for label, size, ns, _ in sorted(rows, key=lambda row: row[3])]
        figure = new_figure(subtitle, spec.x_title or "queue (KB)", spec.y_title or "share of time")
        return user_figures.shares(figure, found, self.colours, self.known(self.series_of(spec)))

    def user_figure(self, spec: Figure) -> go.Figure | None:
        """A figure of the campaign's SQL."""
        names, found = all_rows(self.connection, spec.sql or "")
        if not set(ROWS[spec.kind]) <= set(names):
            raise duckdb.BinderException(f"it must give the columns {' and '.join(ROWS[spec.kind])}")
        rows = [user_figures.Row.of(dict(zip(names, row, strict=True))) for row in found]
        return user_figures.draw(spec, rows, self.colours, [*self.axes.values()]) if rows else None


def _key(axis: str | None) -> str:
    """SQL expression of an axis; a constant if there is no axis."""
    return f'"{axis}"' if axis else "''"


def words(name: str | None) -> str:
    """The name of an axis with spaces."""
    return (name or "").replace("_", " ")


def condition_text(where: str | None) -> str:
    """A condition on cells in words: `senders = 80 AND min_rto = '10 ms'` becomes `senders 80, min rto 10 ms`."""
    parts = re.split(r"\s+AND\s+", (where or "").strip())
    found = [_EQUALS.fullmatch(part) for part in parts]
    if where is None or not all(found):
        return where or ""
    return ", ".join(f"{words(match[1])} {match[2]}" for match in found if match)


_EQUALS = re.compile(r"(\w+) = '?([^']*)'?")
_PERCENTILES = "1st (dotted), 50th (solid), 99th (dashed) percentile"
TITLES = {
    "queue": "Queue over time",
    "fct": "Flow completion time",
    "slowdown": "Slowdown",
    "goodput": "Goodput",
    "drops": "Drops",
    "marks": "ECN marks",
    "cdf": "Distribution",
}
_KINDS: dict[str, Callable[[Artist, Figure], go.Figure | None]] = {
    **{kind: getattr(Artist, kind) for kind in TITLES if kind != "cdf"},
    "cdf": Artist.queue_cdf,
}
USUAL = [Figure(kind=kind) for kind in ("queue", "fct", "goodput", "drops", "marks")]
"""Figures of a campaign without `figures`."""
