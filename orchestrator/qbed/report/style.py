# SPDX-License-Identifier: Apache-2.0
"""How figures look: one colour for each value of the series axis in all figures of a report, on a page, a slide and on
paper, in colour and in grey.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from textwrap import wrap

import plotly.graph_objects as go
from plotly.basedatatypes import BaseTraceType

PALETTE = ("#004E8A", "#EE873F", "#008662", "#790022", "#EBCB4F", "#B23222", "#D65FBC", "#13C5F4", "#00245D")
"""Nine colours whose lightnesses are all apart by a twelfth of the way from black to white, so that a grey print keeps
them apart, in an order in which neighbours are far apart.
"""
SHADES = "Cividis"
"""The colour scale of heat maps, with monotonic lightness."""
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "x", "cross", "star", "hexagon")
VARIANTS = ("", "-open", "-dot", "-open-dot")
"""Variants of each symbol, for the parts of a series and for more series than symbols."""
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
PATTERNS = ("", "/", "x", "-", "\\", ".", "|", "+")
"""Patterns of bars."""
MAX_SYMBOLS = 8
"""Symbols along a line that has more points."""
INK, FAINT, GRID = "#1f2933", "#66727f", "#e6eaee"
_FONT = "Inter, 'Segoe UI', 'Helvetica Neue', Arial, sans-serif"
_PX_PER_MM = 96 / 25.4
_PX_PER_PT = 96 / 72
_LETTER = 0.56
"""The mean width of a letter, in font sizes: enough to break titles by."""


@dataclass(frozen=True)
class Style:
    """A size and what goes with it. Lengths are CSS's pixels, 96 an inch."""

    width: float
    height: float
    font: float
    titled: bool
    """Whether the figure has its title; on paper its caption says it."""
    sharpness: float
    """Dots a pixel, in PNG."""

    @property
    def scale(self) -> float:
        """How thick lines and how large symbols are."""
        return self.font / SCREEN.font

    def title(self, title: str, subtitle: str) -> list[tuple[str, float, bool]]:
        """The lines over a figure: text, size, whether it is the title."""
        if not self.titled:
            return []
        large, small = 1.28 * self.font, 0.93 * self.font
        fits = [int((self.width - 7 * self.font) / (size * _LETTER)) for size in (large, small)]
        return [(line, large, True) for line in wrap(title, fits[0])] + [
            (line, small, False) for line in wrap(subtitle, fits[1])
        ]


SCREEN = Style(960, 520, 14, titled=True, sharpness=2)


def paper(width_mm: float = 88.0, font_pt: float = 8.0) -> Style:
    """Half the width of a two-column page by default; the height is 0.62 of the width."""
    width = width_mm * _PX_PER_MM
    return Style(width, 0.62 * width, font_pt * _PX_PER_PT, titled=False, sharpness=600 / 96)


TEMPLATE = go.layout.Template(
    layout={
        "font": {"family": _FONT, "size": SCREEN.font, "color": INK},
        "paper_bgcolor": "white",
        "plot_bgcolor": "white",
        "colorway": list(PALETTE),
        "margin": {"l": 72, "r": 24, "t": 24, "b": 60},
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
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
                "title": {"standoff": 12, "font": {"size": SCREEN.font}},
                "automargin": True,
            }
            for axis in ("xaxis", "yaxis")
        },
    }
)


class Colours:
    """Colours, symbols, dashes and patterns by value; values that are not known beforehand get the next free one.

    No two of the first 100 values have both the same symbol and the same dash, so a print without colours is readable.
    """

    def __init__(self, known: Iterable[object]) -> None:
        self._places: dict[str, int] = {}
        for value in known:
            self[value]

    def __contains__(self, value: object) -> bool:
        return str(value) in self._places

    def __getitem__(self, value: object) -> str:
        return PALETTE[self._place(value) % len(PALETTE)]

    def symbol(self, value: object, variant: int = 0) -> str:
        round_, place = divmod(self._place(value), len(SYMBOLS))
        return SYMBOLS[place] + VARIANTS[(variant + round_) % len(VARIANTS)]

    def dash(self, value: object) -> str:
        round_, place = divmod(self._place(value), len(SYMBOLS))
        return DASHES[(place + round_) % len(DASHES)]

    def pattern(self, value: object, used: Collection[str] = ()) -> str:
        """The pattern of a value's bars, or the next one that is not in `used`."""
        at = self._place(value) % len(PATTERNS)
        patterns = PATTERNS[at:] + PATTERNS[:at]
        return next((pattern for pattern in patterns if pattern not in used), patterns[0])

    def _place(self, value: object) -> int:
        return self._places.setdefault(str(value), len(self._places))


def faded(colour: str, alpha: float) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{alpha})"


def marker(symbol: str, size: float = 8) -> dict[str, object]:
    """The symbols along a line, few enough to keep it visible."""
    return {"size": size, "symbol": symbol, "maxdisplayed": MAX_SYMBOLS}


def bars(colour: str, pattern: str) -> dict[str, object]:
    """The surface of bars: a colour under a pattern, in an outline."""
    shape = {"shape": pattern, "fillmode": "overlay", "size": 7, "solidity": 0.25, "fgopacity": 0.85}
    return {"color": colour, "pattern": shape, "line": {"color": INK, "width": 0.8}}


def new_figure(subtitle: str, x_title: str, y_title: str) -> go.Figure:
    """An empty figure. Its title is not in it: pages break lines as they are wide, images as they are (`styled`)."""
    figure = go.Figure(layout={"template": TEMPLATE, "meta": {"subtitle": subtitle}})
    figure.update_xaxes(title_text=x_title)
    figure.update_yaxes(title_text=y_title)
    return figure


def styled(figure: go.Figure, title: str, style: Style) -> go.Figure:
    """A copy for an image in a style, with its title where the style has one."""
    made, scale = go.Figure(figure), style.scale
    lines = style.title(title, made.layout.meta["subtitle"])
    height = style.width * made.layout.meta["height"] if "height" in made.layout.meta else style.height
    legend_height = 0 if made.layout.meta.get("legend", "above") != "above" else 30 if lines else 18
    texts = [
        f"<b>{text}</b>" if first else f"<span style='font-size:{size}px;color:{FAINT}'>{text}</span>"
        for text, size, first in lines
    ]
    above = sum(1.3 * size for _, size, _ in lines)
    made.update_layout(
        width=style.width,
        height=height,
        font_size=style.font,
        legend={"font_size": style.font, "itemwidth": max(30, 30 * scale), "tracegroupgap": 0},
        margin={
            "l": 8 * scale,
            "r": (24 if style.titled else 6) * scale,
            "t": above + (8 + legend_height) * scale,
            "b": 8 * scale,
        },
    )
    if lines:
        # Plotly hangs one line by the top of its letters, and several by the foot of the first.
        top = 6 + (0.8 * lines[0][1] if len(lines) > 1 else 0)
        made.update_layout(
            title={
                "text": "<br>".join(texts), "font": {"size": lines[0][1]}, "x": 0.01, "xref": "container",
                "xanchor": "left", "y": 1 - top / height, "yref": "container", "yanchor": "top",
            }
        )  # fmt: skip
    for axis in (made.update_xaxes, made.update_yaxes):
        axis(
            title={"standoff": 8 * scale, "font": {"size": style.font}},
            ticklen=5 * scale,
            tickwidth=scale,
            linewidth=scale,
            gridwidth=scale,
        )
    for number, trace in enumerate(made.data):
        trace.uid = str(number)  # or it is a random one, in SVG
        _scale(trace, scale)
    return made


def _scale(trace: BaseTraceType, scale: float) -> None:
    """Lines, symbols and whiskers in proportion to the letters."""
    for path, names in (
        ("line", ("width",)),
        ("marker", ("size",)),
        ("marker.line", ("width",)),
        ("marker.pattern", ("size",)),
        ("error_y", ("thickness", "width")),
    ):
        for name in names if path in trace else ():
            part = trace[path]
            if name in part and isinstance(part[name], int | float):
                part[name] *= scale
