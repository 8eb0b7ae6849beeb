# SPDX-License-Identifier: Apache-2.0
"""Where the values of an axis stand: numbers and quantities by their size, anything else in the campaign's order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from qbed.results.axis_values import parse_quantities

MOST_LABELS = 12
"""Quantities whose own texts are the ticks; of more, the axis makes its own."""


class Places:
    """The values of one axis of a figure. `known`: the campaign's order of them, if they are an axis'."""

    def __init__(self, values: Iterable[Any], known: Sequence[Any] = ()) -> None:
        found = dict.fromkeys(value for value in values if value is not None)
        self._at: dict[Any, float] | None = None
        if all(isinstance(value, int | float) and not isinstance(value, bool) for value in found):
            self._at = {value: value for value in found}
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
        """Whether a distance along the axis means something, and so a line from one value to the next."""
        return self._at is not None

    def __call__(self, value: Any) -> Any:
        """What to draw a value at."""
        return self._at.get(value) if self._at is not None else str(value)

    def order(self, value: Any) -> int:
        return self.values.index(value)

    def prepare(self, figure: Any, axis: str = "x", *, side_by_side: bool = False) -> None:
        """Tell the figure's axis the order of its categories, or the texts of its quantities."""
        update = figure.update_xaxes if axis == "x" else figure.update_yaxes
        texts = [str(value) for value in self.values]
        if self._at is None or side_by_side:
            update(type="category", categoryorder="array", categoryarray=texts)
            update(tickmode=None, tickvals=None, ticktext=None)
        elif len(texts) <= MOST_LABELS and any(isinstance(value, str) for value in self.values):
            update(tickmode="array", tickvals=[self._at[value] for value in self.values], ticktext=texts)


def in_order(labels: Iterable[Any], known: Sequence[Any] = ()) -> list[Any]:
    """Labels of series, each once: quantities by size, those of an axis in its order, with what follows a comma."""
    places = {str(value): place for place, value in enumerate(known)}
    found = list(dict.fromkeys(labels))
    if parse_quantities(found):
        return Places(found).values
    return sorted(found, key=lambda label: places.get(str(label).partition(", ")[0], len(places)))
