# SPDX-License-Identifier: Apache-2.0
"""The parameters in effect of all cells of a campaign, as `parameters.json` stores and reports show them.

A parameter has one line if it is the same in all cells, otherwise one for each value, with the values of the axes on
which it depends.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError
from rich.table import Table
from rich.text import Text

from qbed.base.errors import QbedError
from qbed.base.json_files import read_json
from qbed.network.resolve import ResolvedLab
from qbed.plan.model import Plan
from qbed.report.parameters import Effective, Key, Rows, cell_parameters
from qbed.storage.run_folder import PARAMETERS

MAX_LINES = 24
"""Lines of one parameter."""
OTHERS = "other parameters"
Digits = tuple[int, ...]
"""A combination of the axes' values: the number of each."""


class Line(BaseModel):
    """A value of a parameter. `where`: the values of axes that have it; empty in all cells with the parameter."""

    model_config = ConfigDict(frozen=True)

    where: str
    value: str
    packets: float | None = None
    bytes: float | None = None
    time_ns: float | None = None


class Parameter(BaseModel):
    """A parameter with its values. `left_out`: lines beyond the limit."""

    name: str
    lines: list[Line]
    left_out: int = 0


class Group(BaseModel):
    """Parameters of one part of the lab."""

    name: str
    parameters: list[Parameter]


class ParameterTable(BaseModel):
    """The content of `parameters.json`."""

    version: Literal[1] = 1
    combinations: int = 1
    """Combinations of the axes' values that were examined, each with the first seed."""
    left_out: int = 0
    """Further combinations."""
    groups: list[Group] = []


@dataclass
class Collected:
    """The parameters of each combination of the axes' values. `axes`: name and values as they are shown."""

    axes: Sequence[tuple[str, Sequence[str]]]
    rows: dict[Digits, Rows] = field(default_factory=dict)

    def add(self, digits: Digits, lab: ResolvedLab, plan: Plan) -> None:
        """Add the parameters of one combination."""
        self.rows[digits] = cell_parameters(lab, plan)

    def table(self, combinations: int = 1) -> ParameterTable:
        """Combine the cells."""
        groups: dict[str, list[Parameter]] = {}
        others: dict[tuple[str, str], list[str]] = {}
        for key in self._keys():
            found = {digits: rows.get(key) for digits, rows in self.rows.items()}
            parameter = self._parameter(key, found)
            if key.minor and len(parameter.lines) == 1:
                others.setdefault((key.group, parameter.lines[0].where), []).append(
                    f"{key.name} {parameter.lines[0].value}"
                )
                groups.setdefault(key.group, [])
            else:
                groups.setdefault(key.group, []).append(parameter)
        for (group, where), texts in others.items():
            line = Line(where=where, value=", ".join(texts))
            known = next((parameter for parameter in groups[group] if parameter.name == OTHERS), None)
            if known is None:
                groups[group].append(Parameter(name=OTHERS, lines=[line]))
            else:
                known.lines.append(line)
        made = [Group(name=name, parameters=parameters) for name, parameters in groups.items()]
        return ParameterTable(combinations=len(self.rows), left_out=max(0, combinations - len(self.rows)), groups=made)

    def _keys(self) -> Iterable[Key]:
        """The parameters by group, in the order of the first cell; those of other cells after the one before them."""
        order: dict[str, list[Key]] = {}
        for rows in self.rows.values():
            place: dict[str, int] = {}
            for key in rows:
                keys = order.setdefault(key.group, [])
                if key not in keys:
                    keys.insert(place.get(key.group, 0), key)
                place[key.group] = keys.index(key) + 1
        return [key for keys in order.values() for key in keys]

    def _parameter(self, key: Key, found: Mapping[Digits, Effective | None]) -> Parameter:
        axes = [number for number in range(len(self.axes)) if _depends(found, number)]
        values: dict[Effective, dict[Digits, None]] = {}
        for digits, value in found.items():
            if value is not None:
                values.setdefault(value, {})[tuple(digits[number] for number in axes)] = None
        lines = [
            Line(where=self._where(axes, list(combinations)), **vars(value)) for value, combinations in values.items()
        ]
        return Parameter(name=key.name, lines=lines[:MAX_LINES], left_out=max(0, len(lines) - MAX_LINES))

    def _where(self, axes: Sequence[int], combinations: Sequence[Digits]) -> str:
        """The axes' values in words: `buffer 64 KB, 128 KB; delay 5 us`."""
        sets = [sorted({digits[place] for digits in combinations}) for place in range(len(axes))]
        if math.prod(map(len, sets)) == len(combinations):
            parts = [(number, digits) for number, digits in zip(axes, sets, strict=True)]
            restricting = [(number, digits) for number, digits in parts if len(digits) < len(self.axes[number][1])]
            return "; ".join(self._values(number, digits) for number, digits in restricting or parts)
        texts = [
            " ".join(self._values(number, [digit]) for number, digit in zip(axes, digits, strict=True))
            for digits in combinations[:6]
        ]
        return "; ".join([*texts, *([f"and {len(combinations) - 6} more"] if len(combinations) > 6 else [])])

    def _values(self, axis: int, digits: Iterable[int]) -> str:
        name, values = self.axes[axis]
        return f"{name} {', '.join(values[digit] for digit in digits)}"


def _depends(found: Mapping[Digits, Effective | None], axis: int) -> bool:
    """Whether the value differs between two combinations that differ in this axis alone."""
    values: dict[Digits, Effective | None] = {}
    return any(values.setdefault(digits[:axis] + digits[axis + 1 :], value) != value for digits, value in found.items())


def read_parameters(run: Path) -> ParameterTable | None:
    """The table of a run; None for a run of an earlier qbed."""
    try:
        return ParameterTable.model_validate(read_json(run / PARAMETERS))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, ValidationError) as error:
        text = " ".join(str(error).split())
        raise QbedError(f"{run / PARAMETERS} cannot be read: {text}; `qbed run` writes it again") from None


# --- numbers as people read them ---


def show_packets(value: float | None) -> str:
    """A number of packets: tenths below 100, whole ones above."""
    if value is None:
        return ""
    return f"{value:.2g}" if value < 1 else f"{round(value, 1):g}" if value < 100 else f"{value:.0f}"


def show_bytes(value: float | None) -> str:
    """Bytes in three digits."""
    return "" if value is None else _scaled(value, ("B", "KB", "MB", "GB"))


def show_time(value_ns: float | None) -> str:
    """Nanoseconds in three digits."""
    return "" if value_ns is None else _scaled(value_ns, ("ns", "us", "ms", "s"))


def _scaled(value: float, units: Sequence[str]) -> str:
    place = 0
    while float(f"{value:.3g}") >= 1000 and place < len(units) - 1:
        value, place = value / 1000, place + 1
    return f"{float(f'{value:.3g}'):g} {units[place]}"


COLUMNS: tuple[tuple[str, Callable[[Line], str]], ...] = (
    ("packets", lambda line: show_packets(line.packets)),
    ("bytes", lambda line: show_bytes(line.bytes)),
    ("time", lambda line: show_time(line.time_ns)),
)


def rich_table(table: ParameterTable) -> Table:
    """The table on a terminal."""
    shown = Table(title="What is run", title_justify="left", box=None, pad_edge=False)
    for name in ("parameter", "value"):
        shown.add_column(name)
    for name, _ in COLUMNS:
        shown.add_column(name, justify="right", no_wrap=True)
    for group in table.groups:
        shown.add_row(Text(group.name, "bold"))
        for parameter in group.parameters:
            for place, line in enumerate(parameter.lines):
                value = Text(line.value).append(f"  [{line.where}]" if line.where else "", "dim")
                name = "" if place else f"  {parameter.name}"
                shown.add_row(Text(name), value, *(show(line) for _, show in COLUMNS))
            if parameter.left_out:
                shown.add_row("", Text(f"and {parameter.left_out} more values", "dim"))
    return shown
