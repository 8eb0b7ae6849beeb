# SPDX-License-Identifier: Apache-2.0
"""The matrix of a campaign: its cells, numbered, each computed from its number and never all held at once."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, product

from qbed.base.errors import LabError, QbedError, nearest
from qbed.campaign.axes import Alternative, AxisEntry, FieldAxis, Value, alternatives, axis_field, column_name
from qbed.campaign.file import Campaign
from qbed.campaign.overlaps import MISSING, Fields, fields, leaves, look, shown, untrue, varied, within, without
from qbed.campaign.until import Until
from qbed.config.overrides import parse_path
from qbed.config.source import FieldPath, show_path
from qbed.storage.axis_values import QuantityColumn, quantity_columns

MAX_CELLS = 1_000_000


class MatrixError(QbedError):
    """A profile or seed that the campaign does not have, or settings under which a label would not be true."""

    exit_status = 2


@dataclass(frozen=True)
class Axis:
    """One axis: what the results call each value, and which fields of the lab it sets."""

    name: str
    values: tuple[Value, ...]
    settings: tuple[Mapping[str, object], ...]
    field: FieldPath | None = None
    """The field of an axis of values."""
    meaning: frozenset[FieldPath] = frozenset()
    """Fields set by a value that the lab must have in each of its cells."""

    @property
    def kind(self) -> str:
        """The column's type: `int`, `float`, `bool` or `str`."""
        kinds = {type(value) for value in self.values}
        if kinds == {int, float}:
            return "float"
        return kinds.pop().__name__ if len(kinds) == 1 else "str"

    def shown(self, index: int) -> Value:
        """A value in the results, with the type of the column."""
        value = self.values[index]
        return str(value) if self.kind == "str" else float(value) if self.kind == "float" else value


@dataclass(frozen=True)
class Cell:
    """One experiment: its number, its seed, what the axes say, and the fields of the lab that this sets."""

    number: int
    seed: int
    values: Mapping[str, Value]
    settings: Mapping[str, object]
    promises: Mapping[FieldPath, tuple[str, object]] = field(default_factory=dict)
    """The axis and the value for each field that the labels describe."""

    def check(self, lab: object) -> None:
        """`LabError` if the lab's values, as they were validated, are not what the labels say."""
        for path, (axis, value) in self.promises.items():
            found = look(lab, path)
            if found != value:
                has = "nothing" if found is MISSING else f"`{found}`"
                label = f"the axis `{axis}` says `{self.values[axis]}`"
                raise LabError([f"{label}, but {shown(path)} is {has} and not `{value}`"])

    def without(self, text: str) -> Cell:
        """A copy of the cell without one of its settings."""
        return replace(
            self, settings={name: value for name, value in self.settings.items() if name != text}, promises={}
        )

    def settings_of(self, lab: object) -> dict[str, object]:
        """Return the cell's settings with the values that `lab` has after validation."""
        found = {text: look(lab, parse_path(text)) for text in self.settings}
        return {text: value for text, value in found.items() if value is not MISSING}

    def __str__(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self.values.items())


@dataclass(frozen=True)
class Matrix:
    """All combinations of the axes; the last axis, the seed, moves fastest."""

    axes: tuple[Axis, ...]
    common: Mapping[str, object] = field(default_factory=dict)
    """Fields that hold in every cell; an axis overrides them."""
    fixed: Mapping[str, object] = field(default_factory=dict)
    """Fields that hold whatever else is set: `--set`."""
    until: Until | None = None
    """How many of the seeds are run; all of them without it."""

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
        promises: dict[FieldPath, tuple[str, object]] = {}
        places = list(zip(self.axes, digits, strict=True))
        for axis, digit in places:
            values[axis.name] = axis.shown(digit)
        for axis, digit in sorted(places, key=lambda place: place[0].field is not None):
            settings |= axis.settings[digit]
            given = leaves(axis.settings[digit]) if axis.meaning else {}
            promises |= {path: (axis.name, given[path]) for path in axis.meaning if path in given}
        return Cell(number, int(values["seed"]), values, {**settings, **self.fixed}, promises)

    @property
    def combinations(self) -> int:
        """How many combinations of values there are without the seeds."""
        return len(self) // len(self.axes[-1].values)

    def combined(self) -> Iterator[tuple[int, ...]]:
        """All combinations of values without the seeds, each as one digit an axis.

        First those in which at most one axis has another than its first value, then two: every value occurs early, and
        beside every value of each other axis.
        """
        counts = [len(axis.values) for axis in self.axes[:-1]]
        first = [0] * len(counts)
        yield tuple(first)
        for place, count in enumerate(counts):
            yield from ((*first[:place], digit, *first[place + 1 :]) for digit in range(1, count))
        for i, j in combinations(range(len(counts)), 2):
            for a, b in product(range(1, counts[i]), range(1, counts[j])):
                yield (*first[:i], a, *first[i + 1 : j], b, *first[j + 1 :])
        for digits in product(*map(range, counts)):
            if sum(digit > 0 for digit in digits) > 2:
                yield digits

    def at(self, digits: Sequence[int]) -> Cell:
        """The cell of a combination with the first seed."""
        return self._cell(0, [*digits, 0])

    @property
    def columns(self) -> dict[str, str]:
        """The columns of the axes and their types, and those of their numbers."""
        return {axis.name: axis.kind for axis in self.axes} | {
            quantity.column: quantity.kind for quantity in self.numbers
        }

    @property
    def numbers(self) -> list[QuantityColumn]:
        return quantity_columns((axis.name, axis.values) for axis in self.axes)

    def describe(self) -> dict[str, object]:
        """The whole matrix as JSON: what must be equal for a run to be continued."""
        axes = [{"name": axis.name, "values": axis.values, "set": axis.settings} for axis in self.axes]
        until = {} if self.until is None else {"until": str(self.until)}
        return {"axes": axes, "set": {**self.common, **self.fixed}, **until}


def build_matrix(
    campaign: Campaign,
    profile: str | None = None,
    *,
    seeds: list[int] | None = None,
    settings: Mapping[str, object] | None = None,
) -> Matrix:
    """The matrix of a profile (None: the campaign as it stands).

    `settings` (from `--set`) hold in every cell, whatever else sets these fields or parts of them (`overlaps`). An
    axis that varies one of them has that one value; `MatrixError` if then a name of an axis would not be true.
    """
    if profile is not None and profile not in campaign.profiles:
        raise MatrixError(f"the campaign has no profile `{profile}`{nearest(profile, campaign.profiles)}")
    chosen = campaign.profile(profile)
    varied_axes, profile_axes = campaign.axes | chosen.compare, chosen.axes
    fixed = _fixed(settings or {})
    given: list[object] | None = None if seeds is None else [*seeds]
    if ("seed",) in fixed:
        if seeds is not None:
            raise MatrixError("expected --seeds or `--set seed=N`, not both")
        given = [fixed.pop(("seed",))]
    plain = {path for name, entry in varied_axes.items() if (path := _field(name, entry)) is not None}
    axes = [
        _axis(name, entry, profile_axes.get(name), fixed, plain)
        for name, entry in varied_axes.items()
        if name != "seed"
    ]
    campaign_seeds = campaign.axes.get("seed", [1])
    until = None if given else chosen.seeds or (None if "seed" in profile_axes else campaign.seeds)
    if until is not None:
        given = [*range(1, until.max_seeds + 1)]
    numbers: Sequence[object] = (
        given
        or profile_axes.get("seed")
        or (campaign_seeds if isinstance(campaign_seeds, list) else campaign_seeds.values)
    )
    if not all(isinstance(seed, int) and not isinstance(seed, bool) and 0 <= seed < 2**32 for seed in numbers):
        raise MatrixError(f"seeds are whole numbers from 0 to {2**32 - 1}, got {_first(numbers)}")
    unique = [seed for seed in dict.fromkeys(numbers) if isinstance(seed, int)]
    axes.append(Axis("seed", tuple(unique), tuple({} for _ in unique)))
    cells = math.prod(len(axis.values) for axis in axes)
    if cells > MAX_CELLS:
        counts = " x ".join(str(len(axis.values)) for axis in axes)
        raise MatrixError(f"the axes make {counts} = {cells} cells; expected at most {MAX_CELLS}")
    common = without(campaign.set, fields(chosen.set)) | chosen.set
    return Matrix(tuple(axes), without(common, fixed), {show_path(path): value for path, value in fixed.items()}, until)


def _first(values: Sequence[object]) -> str:
    """The beginning of a list."""
    return ", ".join(f"`{value}`" for value in values[:10]) + (
        f" and {len(values) - 10} more" if len(values) > 10 else ""
    )


def _fixed(settings: Mapping[str, object]) -> Fields:
    found: Fields = {}
    for text, value in settings.items():
        try:
            found[parse_path(text)] = value
        except ValueError as error:
            raise MatrixError(f"--set {text}={value}: {error}") from None
    return found


def _field(name: str, entry: AxisEntry) -> FieldPath | None:
    text = axis_field(name, entry)
    return None if text is None else parse_path(text)


def _axis(name: str, entry: AxisEntry, override: list[Value] | None, fixed: Fields, plain: set[FieldPath]) -> Axis:
    column, path = column_name(name), _field(name, entry)
    if path is None:
        return _alternatives(
            name, {alternative.name: alternative.set for alternative in alternatives(entry)}, override, fixed, plain
        )
    listed = entry.values if isinstance(entry, FieldAxis) else entry
    values = tuple(override or (value for value in listed if not isinstance(value, Alternative)))
    for above, value in sorted(fixed.items(), key=lambda item: len(item[0])):
        if within(path, above):
            given = look(value, path[len(above) :])
            if not isinstance(given, str | int | float):
                raise MatrixError(f"{_set_option(above, value)} leaves no value of {shown(path)} for the axis `{name}`")
            values = (given,)
        elif within(above, path):
            raise MatrixError(f"{_set_option(above, value)} is a part of {shown(path)}, which the axis `{name}` varies")
    other_settings = tuple(without({show_path(path): value}, fixed) for value in values)
    return Axis(column, values, other_settings, path, frozenset({path}))


def _alternatives(
    name: str,
    known: dict[Value, dict[str, object]],
    override: list[Value] | None,
    fixed: Fields,
    plain: set[FieldPath],
) -> Axis:
    labels = tuple(override or known)
    given = {label: leaves(known[label]) for label in known}
    meaning = varied(list(given.values())) - plain  # fields with a separate column are described there
    for path, value in fixed.items():
        for label in labels:
            leaf = untrue(given[label], meaning, path, value)
            if leaf is not None:
                raise MatrixError(
                    f"{_set_option(path, value)} would make the name `{label}` of the axis `{name}` untrue, whose"
                    f" alternatives differ in {shown(leaf)}; set what they have in common, or give the campaign such"
                    " an alternative"
                )
    other_settings = tuple(without(known[label], fixed) for label in labels)
    return Axis(column_name(name), labels, other_settings, None, frozenset(meaning))


def _set_option(path: FieldPath, value: object) -> str:
    return f"--set {show_path(path)}={value}"


def fingerprint(description: Mapping[str, object]) -> str:
    """A short hash of something described as JSON."""
    text = json.dumps(description, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
