# SPDX-License-Identifier: Apache-2.0
"""The matrix of a campaign: its cells, numbered, each computed from its number and never all held at once."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from qbed.campaign import Alternative, Campaign, FieldAxis, Value, column_name
from qbed.errors import QbedError, nearest


class MatrixError(QbedError):
    """A profile or seed that the campaign does not have."""

    exit_status = 2


@dataclass(frozen=True)
class Axis:
    """One axis: what the results call each value, and which fields of the lab it sets."""

    name: str
    values: tuple[Value, ...]
    settings: tuple[Mapping[str, Any], ...]

    @property
    def kind(self) -> str:
        """The column's type: `int`, `float`, `bool` or `str`."""
        kinds = {type(value) for value in self.values}
        if kinds == {int, float}:
            return "float"
        return kinds.pop().__name__ if len(kinds) == 1 else "str"

    def shown(self, index: int) -> Value:
        """What the results call a value, in the type of the column."""
        value = self.values[index]
        return str(value) if self.kind == "str" else float(value) if self.kind == "float" else value


@dataclass(frozen=True)
class Cell:
    """One experiment: its number, its seed, what the axes say, and the fields of the lab that this sets."""

    number: int
    seed: int
    values: Mapping[str, Value]
    settings: Mapping[str, Any]

    @property
    def folder(self) -> str:
        return f"{self.number:06d}"

    def __str__(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self.values.items())


@dataclass(frozen=True)
class Matrix:
    """All combinations of the axes; the last axis, the seed, moves fastest."""

    axes: tuple[Axis, ...]
    common: Mapping[str, Any] = field(default_factory=dict)
    """Fields that hold in every cell; an axis overrides them."""

    def __len__(self) -> int:
        return math.prod(len(axis.values) for axis in self.axes)

    def __iter__(self) -> Iterator[Cell]:
        return map(self.cell, range(len(self)))

    def cell(self, number: int) -> Cell:
        """The cell with this number (mixed radix: one digit an axis)."""
        if not 0 <= number < len(self):
            raise IndexError(number)
        digits: list[int] = []
        rest = number
        for axis in reversed(self.axes):
            rest, digit = divmod(rest, len(axis.values))
            digits.append(digit)
        return self._cell(number, digits[::-1])

    def _cell(self, number: int, digits: Sequence[int]) -> Cell:
        settings = dict(self.common)
        values: dict[str, Value] = {}
        for axis, digit in zip(self.axes, digits, strict=True):
            settings |= axis.settings[digit]
            values[axis.name] = axis.shown(digit)
        return Cell(number, int(values["seed"]), values, settings)

    def samples(self) -> Iterator[Cell]:
        """A few cells in which every value of every axis occurs: enough to find a value that the lab refuses."""
        for place, axis in enumerate(self.axes):
            for digit in range(len(axis.values)):
                if (digit or place == 0) and axis.name != "seed":
                    digits = [digit if other == place else 0 for other in range(len(self.axes))]
                    yield self._cell(0, digits)
        if len(self.axes) == 1:
            yield self.cell(0)

    @property
    def columns(self) -> dict[str, str]:
        """The columns of the axes and their types."""
        return {axis.name: axis.kind for axis in self.axes}

    def describe(self) -> dict[str, Any]:
        """The whole matrix as JSON: what must be equal for a run to be continued."""
        axes = [{"name": axis.name, "values": axis.values, "set": axis.settings} for axis in self.axes]
        return {"axes": axes, "set": dict(self.common)}


def build_matrix(
    campaign: Campaign,
    profile: str | None = None,
    *,
    seeds: list[int] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Matrix:
    """The matrix of a profile (None: the campaign as it stands). `settings` (from `--set`) override everything."""
    if profile is not None and profile not in campaign.profiles:
        raise MatrixError(f"the campaign has no profile `{profile}`{nearest(profile, campaign.profiles)}")
    chosen = campaign.profiles.get(profile) if profile is not None else None
    other = chosen.axes if chosen is not None else {}
    fixed = dict(settings or {})
    axes = [_axis(name, entry, other.get(name), fixed) for name, entry in campaign.axes.items() if name != "seed"]
    own_seeds = campaign.axes.get("seed", [1])
    numbers = seeds or other.get("seed") or (own_seeds if isinstance(own_seeds, list) else own_seeds.values)
    if not all(isinstance(seed, int) and not isinstance(seed, bool) and 0 <= seed < 2**32 for seed in numbers):
        raise MatrixError(f"seeds are whole numbers from 0 to {2**32 - 1}, got {list(numbers)}")
    unique: list[Any] = list(dict.fromkeys(numbers))
    axes.append(Axis("seed", tuple(unique), tuple({} for _ in unique)))
    return Matrix(tuple(axes), campaign.set | (chosen.set if chosen is not None else {}) | fixed)


def _axis(name: str, entry: Any, other: list[Value] | None, fixed: Mapping[str, Any]) -> Axis:
    column = column_name(name)
    if isinstance(entry, list) and isinstance(entry[0], Alternative):
        known = {alternative.name: alternative.set for alternative in entry}
        labels = tuple(other or known)
        return Axis(column, labels, tuple(known[label] | fixed for label in labels))
    path = entry.field if isinstance(entry, FieldAxis) else name
    values = tuple(other or (entry.values if isinstance(entry, FieldAxis) else entry))
    if path in fixed:
        values = (fixed[path],)
    return Axis(column, values, tuple({path: value} for value in values))


def fingerprint(description: Mapping[str, Any]) -> str:
    """A short hash of something described as JSON."""
    text = json.dumps(description, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
