# SPDX-License-Identifier: Apache-2.0
"""Positions of values on a figure's axis: numbers and quantities by size, others in the campaign's order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import plotly.graph_objects as go

from qbed.campaign.axes import Value
from qbed.storage.axis_values import parse_quantities

Place = float | str | None
"""Coordinate of a value: a number, or a category."""
MAX_LABELS = 12
"""Limit on quantities that are labelled by their texts; with more, the axis has automatic ticks."""


class AxisPositions:
    """The values of one axis of a figure. `known`: the campaign's order of them, if they are an axis'."""

    def __init__(self, values: Iterable[Value | None], known: Sequence[Value] = ()) -> None:
        found = dict.fromkeys(value for value in values if value is not None)
        numbers: dict[Value, float] = {
            value: value for value in found if isinstance(value, int | float) and not isinstance(value, bool)
        }
        self._at: dict[Value, float] | None = None
        if len(numbers) == len(found):
            self._at = numbers
        elif measured := parse_quantities(found):
            self._at = dict(zip(found, measured[1], strict=True))
        texts = {str(value): place for place, value in enumerate(known)}
        appeared = {value: place for place, value in enumerate(found)}
        self.values = sorted(
            found,
            key=lambda value: self._at[value] if self._at else (texts.get(str(value), len(texts)), appeared[value]),
        )

    @property
    def measured(self) -> bool:
        """Whether the axis is metric, so that values may be connected by lines."""
        return self._at is not None

    def __call__(self, value: Value | None) -> Place:
        """The coordinate at which a value is drawn."""
        if self._at is None:
            return str(value)
        return None if value is None else self._at.get(value)

    def order(self, value: Value) -> int:
        return self.values.index(value)

    def prepare(self, figure: go.Figure, axis: str = "x", *, side_by_side: bool = False) -> None:
        """Set the order of categories or the tick labels of the figure's axis."""
        update = figure.update_xaxes if axis == "x" else figure.update_yaxes
        texts = [str(value) for value in self.values]
        if self._at is None or side_by_side:
            update(type="category", categoryorder="array", categoryarray=texts)
            update(tickmode=None, tickvals=None, ticktext=None)
        elif len(texts) <= MAX_LABELS and any(isinstance(value, str) for value in self.values):
            update(tickmode="array", tickvals=[self._at[value] for value in self.values], ticktext=texts)


def in_order(labels: Iterable[Value | None], known: Sequence[Value] = ()) -> list[Value | None]:
    """Sort distinct labels: quantities by size, values of an axis in its order, without text after a comma."""
    places = {str(value): place for place, value in enumerate(known)}
    found = list(dict.fromkeys(labels))
    if parse_quantities(found):
        return [*AxisPositions(found).values]
    return sorted(found, key=lambda label: places.get(str(label).partition(", ")[0], len(places)))
