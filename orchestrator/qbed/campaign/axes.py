# SPDX-License-Identifier: Apache-2.0
"""The axes of a campaign, and which fields of the lab they and the rest of the file set; `overlaps` has the rules
by which these may overlap.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from qbed.campaign.overlaps import MISSING, Setting, clash, fields, leaves, shown, untrue, varied, within
from qbed.config.overrides import parse_path
from qbed.config.source import FieldPath, Source

Value = str | int | float | bool
Everywhere = Mapping[FieldPath, Mapping[str, object]]
"""Fields that are set in all cells (of a profile), by position in the file."""


class Part(BaseModel):
    """A part of a campaign file."""

    model_config = ConfigDict(defer_build=True, extra="forbid", frozen=True, populate_by_name=True)


class Alternative(Part):
    """One alternative of a named axis."""

    name: Value
    """Value of the axis in the results."""
    set: dict[str, object]
    """Fields of the lab that the alternative sets."""


class FieldAxis(Part):
    """An axis whose name differs from its field."""

    field: str
    """Field of the lab."""
    values: list[Value] = Field(min_length=1)
    """Values of the axis."""


def _shape(entry: object) -> object:
    """One message for an entry of no known shape, instead of one for each shape that it does not have."""
    values = entry.get("values") if isinstance(entry, dict) else entry
    if isinstance(values, list):
        if not values:
            raise ValueError("an axis needs at least one value")
        names = [str(item.get("name", "")) if isinstance(item, dict) else str(item) for item in values]
        if len(set(names)) < len(names):
            raise ValueError("an axis has each value once")
    if isinstance(entry, dict) and set(entry) == {"field", "values"}:
        return entry
    if isinstance(entry, list) and all(isinstance(item, str | int | float | bool) for item in entry):
        return entry
    if isinstance(entry, list) and all(isinstance(item, dict) and set(item) == {"name", "set"} for item in entry):
        return entry
    raise ValueError("expected a list of values, a list of `{name: ..., set: {...}}`, or `{field: ..., values: [...]}`")


AxisEntry = Annotated[FieldAxis | list[Alternative] | list[Value], BeforeValidator(_shape)]


def column_name(axis: str) -> str:
    """The column of an axis: the last name of its field path, with `_` for what is no letter or digit."""
    last = re.sub(r"\[[^\]]*\]", "", axis).rpartition(".")[2]
    return re.sub(r"[^A-Za-z0-9]+", "_", last).strip("_").lower()


def axis_field(name: str, entry: FieldAxis | list[Alternative] | list[Value]) -> str | None:
    """The field that an axis of values varies; None of alternatives."""
    if isinstance(entry, FieldAxis):
        return entry.field
    return None if isinstance(entry[0], Alternative) else name


def alternatives(entry: FieldAxis | list[Alternative] | list[Value]) -> list[Alternative]:
    """The alternatives of an axis; none if it has values."""
    return [item for item in entry if isinstance(item, Alternative)] if isinstance(entry, list) else []


def check_axes(
    axes: Mapping[str, AxisEntry],
    everywhere: Everywhere,
    source: Source,
    places: Mapping[str, FieldPath] | None = None,
) -> list[str]:
    """Messages for unknown fields, and for settings that override an axis. `places`: those of further axes."""
    varying = {name: entry for name, entry in axes.items() if name != "seed"}
    at = {name: ("axes", name) for name in varying} | dict(places or {})
    given = [
        *(((*place, text), text) for place, settings in everywhere.items() for text in settings),
        *((place, text) for name, entry in varying.items() for place, text, _ in _settings(at[name], name, entry)),
    ]
    wrong: list[str] = []
    spelled: dict[tuple[FieldPath, FieldPath], str] = {}
    for place, text in given:
        try:
            path = parse_path(text)
            if path == ("seed",):
                raise ValueError("`seed` is always an axis of its own: `axes: {seed: [1, 2, 3]}`")
            before = spelled.setdefault((place[:-1], path), text)
            if before != text:
                raise ValueError(f"is the field `{before}` once more")
        except ValueError as error:
            wrong.append(source.message(place, str(error), at_key=place[-1] == text))
    if wrong:
        return wrong
    lose = {name: _Losing(name, entry) for name, entry in varying.items()}
    for place, settings in everywhere.items():
        for text, value in settings.items():
            for name in varying:
                lost = lose[name].lost(parse_path(text), value)
                if lost is not None:
                    where = f"the axis `{name}` varies ({source.where(at[name])}): {shown(lost)}"
                    wrong.append(source.message((*place, text), f"would undo what {where}", at_key=True))
    return wrong + list(_clashes(varying, at, source))


def _settings(place: FieldPath, name: str, entry: AxisEntry) -> Iterator[tuple[FieldPath, str, object]]:
    """Generate what an axis sets: position in the file, field, and the value of an alternative."""
    field = axis_field(name, entry)
    if field is not None:
        yield (*place, "field") if isinstance(entry, FieldAxis) else place, field, MISSING
    for number, alternative in enumerate(alternatives(entry)):
        yield from (((*place, number, "set", text), text, value) for text, value in alternative.set.items())


def _clashes(axes: Mapping[str, AxisEntry], at: Mapping[str, FieldPath], source: Source) -> Iterator[str]:
    """Axes that undo each other."""
    known: list[Setting] = []
    for name, entry in axes.items():
        found = [
            Setting(name, place, parse_path(text), value) for place, text, value in _settings(at[name], name, entry)
        ]
        for alternative in found:
            other = next((other for other in known if clash(alternative, other)), None)
            if other is not None:
                where = f"the axis `{other.axis}` sets {shown(other.path)} ({source.where(other.place)})"
                text = f"the axis `{name}` sets {shown(alternative.path)}, {where}: one would undo the other"
                yield source.message(alternative.place, text, at_key=True)
                break
        known.extend(found)


class _Losing:
    """Messages for fields of an axis that a more specific setting overrides."""

    def __init__(self, name: str, entry: AxisEntry) -> None:
        self._field = axis_field(name, entry)
        self._fields = [fields(alternative.set) for alternative in alternatives(entry)]
        self._leaves = [leaves(alternative.set) for alternative in alternatives(entry)]
        self._meaning = varied(self._leaves) if self._leaves else set()

    def lost(self, path: FieldPath, value: object) -> FieldPath | None:
        if self._field is not None:
            field_path = parse_path(self._field)
            return field_path if within(path, field_path) and path != field_path else None
        above = [path[:length] for length in range(len(path))]
        for given, leaf in zip(self._fields, self._leaves, strict=True):
            if any(part in given for part in above):
                lost = untrue(leaf, self._meaning, path, value)
                if lost is not None:
                    return lost
        return None
