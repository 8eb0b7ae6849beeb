# SPDX-License-Identifier: Apache-2.0
"""How figures look: one colour for each value of the series axis in all figures of a report, light, fit for a slide."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import plotly.graph_objects as go

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#6F4E9C", "#8C6D31", "#4D4D4D", "#A6192E")
"""Okabe and Ito's colours, which colour-blind readers can tell apart, first."""
DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
INK, FAINT, GRID = "#1f2933", "#66727f", "#e6eaee"
WIDTH, HEIGHT = 960, 520
LINE = 72
"""Characters of a subtitle that fit beside each other in half a page."""
_FONT = "Inter, 'Segoe UI', 'Helvetica Neue', Arial, sans-serif"

TEMPLATE = go.layout.Template(
    layout={
        "font": {"family": _FONT, "size": 14, "color": INK},
        "title": {"x": 0.0, "xref": "paper", "xanchor": "left", "font": {"size": 18}, "pad": {"b": 8}},
        "paper_bgcolor": "white",
        "plot_bgcolor": "white",
        "colorway": list(PALETTE),
        "margin": {"l": 72, "r": 24, "t": 72, "b": 60},
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "font": {"size": 14}},
        "modebar": {"orientation": "v", "bgcolor": "rgba(0,0,0,0)"},
        "hoverlabel": {"font": {"family": _FONT}},
        "bargap": 0.32,
        "bargroupgap": 0.08,
        **{
            axis: {
                "gridcolor": GRID,
                "linecolor": "#9aa5b1",
                "showline": True,
                "ticks": "outside",
                "tickcolor": "#9aa5b1",
                "zeroline": False,
                "title": {"standoff": 12},
                "automargin": True,
            }
            for axis in ("xaxis", "yaxis")
        },
    }
)


class Colours:
    """Colours by value; values that are not known beforehand get the next free one."""

    def __init__(self, known: Iterable[object]) -> None:
        self._colours: dict[str, str] = {}
        for value in known:
            self[value]

    def __contains__(self, value: object) -> bool:
        return str(value) in self._colours

    def __getitem__(self, value: object) -> str:
        key = str(value)
        return self._colours.setdefault(key, PALETTE[len(self._colours) % len(PALETTE)])


def faded(colour: str, alpha: float) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{alpha})"


def new_figure(title: str, subtitle: str, x_title: str, y_title: str) -> Any:
    """An empty figure with titles."""
    lines = subtitle.split("; ") if len(subtitle) > LINE else [subtitle] if subtitle else []
    small = "".join(f"<br><span style='font-size:13px;color:{FAINT}'>{line}</span>" for line in lines)
    title_layout = {"text": f"<b>{title}</b>{small}", "yref": "container", "y": 0.97, "yanchor": "top"}
    figure = go.Figure(layout={"template": TEMPLATE, "title": title_layout, "width": None})
    figure.update_xaxes(title_text=x_title)
    figure.update_yaxes(title_text=y_title)
    figure.update_layout(margin_t=72 + 18 * len(lines))
    return figure
