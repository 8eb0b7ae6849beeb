# SPDX-License-Identifier: Apache-2.0
"""Layout of a figure by the fields of the campaign file: scales and ranges of its axes, its height, its legend."""

from __future__ import annotations

from math import log10

import plotly.graph_objects as go

from qbed.campaign.figure import Figure

_INSIDE = {"orientation": "v", "bgcolor": "rgba(255,255,255,0.8)"}
_LEGENDS: dict[str, dict[str, object]] = {
    "above": {},
    "right": {"orientation": "v", "x": 1.02, "xanchor": "left", "y": 1, "yanchor": "top"},
    "below": {"x": 0, "xanchor": "left", "y": 0, "yref": "container", "yanchor": "bottom"},
    "top-left": {**_INSIDE, "x": 0.01, "xanchor": "left", "y": 0.99, "yanchor": "top"},
    "top-right": {**_INSIDE, "x": 0.99, "xanchor": "right", "y": 0.99, "yanchor": "top"},
    "bottom-left": {**_INSIDE, "x": 0.01, "xanchor": "left", "y": 0.01, "yanchor": "bottom"},
    "bottom-right": {**_INSIDE, "x": 0.99, "xanchor": "right", "y": 0.01, "yanchor": "bottom"},
}


class LayoutError(Exception):
    """A figure cannot have the layout of its campaign file."""


def arrange(figure: go.Figure, spec: Figure) -> None:
    """Apply the scales, ranges, height and legend position of the campaign file. Raises `LayoutError`."""
    for letter, logarithmic, ends in (("x", spec.log_x, spec.x_range), ("y", spec.log_y, spec.y_range)):
        axis = figure.layout[f"{letter}axis"]
        if logarithmic:
            axis.type = "log"
        if ends is None:
            continue
        if axis.type == "category":
            raise LayoutError(f"`{letter}_range`: the {letter}-axis has names instead of numbers")
        if axis.type == "log" and any(end is not None and end <= 0 for end in ends):
            axis.type = "linear"
        axis.rangemode = None
        first, last = (log10(end) if end is not None and axis.type == "log" else end for end in ends)
        if first is not None and last is not None:
            axis.range = [first, last]
        else:
            axis.range, axis.autorange = None, True
            axis.autorangeoptions = {"minallowed": ends[0], "maxallowed": ends[1]}
    meta = dict(figure.layout.meta)
    if spec.height is not None:
        meta["height"] = spec.height
    if spec.legend is not None:
        meta["legend"] = spec.legend
    if spec.legend == "none":
        figure.update_layout(showlegend=False)
    elif spec.legend is not None:
        figure.update_layout(legend=_LEGENDS[spec.legend])
    figure.layout.meta = meta
