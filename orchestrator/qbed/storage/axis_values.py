# SPDX-License-Identifier: Apache-2.0
"""Numeric columns for axes of quantities: `buffer_bytes` beside `buffer` for `32 KB` and `1 MB`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from qbed.config.units import parse_duration, parse_fraction, parse_packets, parse_rate, parse_size
from qbed.telemetry.tables import RESERVED_COLUMNS

_PARSERS: dict[str, Callable[[object], float]] = {
    "ns": parse_duration,
    "bytes": parse_size,
    "bps": parse_rate,
    "packets": parse_packets,
    "share": parse_fraction,
}


@dataclass(frozen=True)
class QuantityColumn:
    """The numeric column of an axis, and the number for each of its values."""

    axis: str
    column: str
    by_text: Mapping[str, float]

    @property
    def kind(self) -> str:
        return "int" if all(isinstance(number, int) for number in self.by_text.values()) else "float"


def parse_quantities(values: Iterable[object]) -> tuple[str, list[float]] | None:
    """Parse quantities with a common unit: `128 KB`, `1 MB` to `bytes` and numbers; None if there is no such unit."""
    texts = list(values)
    if not texts or not all(isinstance(text, str) for text in texts):
        return None
    for unit, parse in _PARSERS.items():
        try:
            return unit, [parse(text) for text in texts]
        except ValueError:
            continue
    return None


def quantity_columns(axes: Iterable[tuple[str, Sequence[object]]]) -> list[QuantityColumn]:
    """Columns for the axes (name and values) with quantities of a common unit.

    A column is named by its axis and unit, with the prefix `axis_` if the results use that name already.
    """
    known = dict(axes)
    found: list[QuantityColumn] = []
    for name, values in known.items():
        measured = parse_quantities(values)
        if measured is not None:
            unit, numbers = measured
            column = f"{name}_{unit}"
            if column in RESERVED_COLUMNS or column in known:
                column = f"axis_{column}"
            if column not in known:
                found.append(QuantityColumn(name, column, dict(zip(map(str, values), numbers, strict=True))))
    return found
