# SPDX-License-Identifier: Apache-2.0
"""Beside an axis of quantities, a column of their numbers: `buffer_bytes` beside `buffer`, for `32 KB` and `1 MB`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from qbed.language.units import parse_duration, parse_fraction, parse_packets, parse_rate, parse_size
from qbed.results.tables import RESERVED_COLUMNS

_PARSERS: dict[str, Callable[[object], float]] = {
    "ns": parse_duration,
    "bytes": parse_size,
    "bps": parse_rate,
    "packets": parse_packets,
    "share": parse_fraction,
}


@dataclass(frozen=True)
class Numbers:
    """The column of numbers that an axis has, and the number of each of its texts."""

    axis: str
    column: str
    by_text: Mapping[str, float]

    @property
    def kind(self) -> str:
        return "int" if all(isinstance(number, int) for number in self.by_text.values()) else "float"


def in_one_unit(values: Iterable[object]) -> tuple[str, list[float]] | None:
    """`128 KB`, `1 MB` to `bytes` and their numbers; None unless all are texts of quantities of one kind."""
    texts = list(values)
    if not texts or not all(isinstance(text, str) for text in texts):
        return None
    for unit, parse in _PARSERS.items():
        try:
            return unit, [parse(text) for text in texts]
        except ValueError:
            continue
    return None


def numbers_of(axes: Iterable[tuple[str, Sequence[Any]]]) -> list[Numbers]:
    """Of axes, by name and values, those whose values are all quantities with units of one kind.

    A column is called after its axis and its unit; where results have such a name already, `axis_` is before it.
    """
    known = dict(axes)
    found: list[Numbers] = []
    for name, values in known.items():
        measured = in_one_unit(values)
        if measured is not None:
            unit, numbers = measured
            column = f"{name}_{unit}"
            if column in RESERVED_COLUMNS or column in known:
                column = f"axis_{column}"
            if column not in known:
                found.append(Numbers(name, column, dict(zip(map(str, values), numbers, strict=True))))
    return found
