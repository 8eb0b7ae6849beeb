# SPDX-License-Identifier: Apache-2.0
"""A small picture of an estimate: values by seed, confidence interval, and the values that the bound allows."""

from __future__ import annotations

import math

from markupsafe import Markup, escape

from qbed.campaign.bounds import Bound, parse_bound
from qbed.claims.verdict import Estimate

WIDTH, HEIGHT = 280, 26
_MARGIN = 6.0


def strip(estimate: Estimate) -> Markup:
    """Inline SVG of an estimate; empty where there is nothing to draw."""
    values = [value for value in estimate.values.values() if math.isfinite(value)]
    if estimate.bound is None or not values:
        return Markup("")
    try:
        bound = parse_bound(estimate.bound)
    except ValueError:  # the run folder may be untrusted
        return Markup("")
    scale = _Scale(estimate, values, bound)
    low, high = scale.at(bound.low), scale.at(bound.high)
    parts = [f'<rect class="bound" x="{low:.1f}" y="1" width="{max(high - low, 1.5):.1f}" height="{HEIGHT - 2}"/>']
    if estimate.seeds > 1:
        ends = (
            -math.inf if estimate.low is None else estimate.low,
            math.inf if estimate.high is None else estimate.high,
        )
        parts.append(
            f'<line class="interval" x1="{scale.at(ends[0]):.1f}" x2="{scale.at(ends[1]):.1f}" y1="13" y2="13"/>'
        )
    parts += [f'<circle class="seed" cx="{scale.at(value):.1f}" cy="13" r="2.5"/>' for value in values]
    if estimate.point_estimate is not None:
        at = scale.at(estimate.point_estimate)
        parts.append(f'<line class="point" x1="{at:.1f}" x2="{at:.1f}" y1="6" y2="20"/>')
    title = escape(f"{estimate.seeds} seeds, {estimate.average} and 95 % interval; shaded: {estimate.bound}")
    opening = f'<svg class="strip" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"><title>{title}</title>'
    return Markup(f"{opening}{''.join(parts)}</svg>")


class _Scale:
    """Positions along the strip: linear over the values, the interval and the finite ends of the bound."""

    def __init__(self, estimate: Estimate, values: list[float], bound: Bound) -> None:
        known = [*values, *(limit for limit in (bound.low, bound.high) if math.isfinite(limit))]
        spread = max(known) - min(known) or abs(known[0]) or 1.0
        limits = (min(known) - spread, max(known) + spread)
        known += [
            limit for limit in (estimate.low, estimate.high) if limit is not None and limits[0] <= limit <= limits[1]
        ]
        padding = 0.08 * (max(known) - min(known) or spread)
        self._low, self._high = min(known) - padding, max(known) + padding

    def at(self, value: float) -> float:
        share = (min(max(value, self._low), self._high) - self._low) / (self._high - self._low)
        return _MARGIN + share * (WIDTH - 2 * _MARGIN)
