# SPDX-License-Identifier: Apache-2.0
"""Numbers out of lines of JSON, many at a time.

What the agent writes has the same keys in the same order in each line, and no commas but between them. So the commas
say where the numbers are, and numpy reads those that are wanted: a viewer wants three fields of twelve, and of one of
them a row in three. Lines of any other form are left to a parser of JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json as arrow_json

_MOST_DIGITS = 18
Numbers = Callable[..., Any]
"""A function that returns a field's numbers for some lines, by index, or for all; NaN if a line has none."""


def numbers(lines: bytes, names: Sequence[str]) -> list[Numbers]:
    """The fields with these names, of lines that end in no newline. `ValueError`: they are no such lines."""
    found = _by_commas(lines, names)
    return _parsed(lines, names) if found is None else found


def _parsed(lines: bytes, names: Sequence[str]) -> list[Numbers]:
    fields = pa.schema([(name, pa.float64()) for name in names])
    how = arrow_json.ParseOptions(explicit_schema=fields, unexpected_field_behavior="ignore")
    read = arrow_json.ReadOptions(use_threads=False, block_size=len(lines) + 1)
    table = arrow_json.read_json(pa.BufferReader(lines), read, how)

    def of(values: Any) -> Numbers:
        return lambda rows=slice(None): values[rows]

    whole = [table[name].to_numpy() for name in names]
    return [of(values if np.isnan(values).any() else _whole(values)) for values in whole]


def _whole(values: Any) -> Any:
    """As integers, if they are some."""
    found = values.astype(np.int64)
    return found if (found == values).all() else values


def _by_commas(lines: bytes, names: Sequence[str]) -> list[Numbers] | None:
    """None if they are not of that form."""
    text = np.frombuffer(lines + b"\n" + bytes(_MOST_DIGITS), np.uint8)
    ends = np.flatnonzero(text == ord("\n"))
    commas = np.flatnonzero(text == ord(","))
    keys = _keys(lines[: ends[0]])
    if len(keys) < 2 or len(commas) != len(ends) * (len(keys) - 1) or not {*names} <= {*keys}:
        return None
    starts = np.concatenate([[-1], ends[:-1]])
    bounds = np.column_stack([starts, commas.reshape(len(ends), -1), ends])
    if not ((bounds[:, 1] > starts) & (bounds[:, -2] < ends) & (text[starts + 1] == ord("{"))).all():
        return None  # a line has more of them and another one less
    bounds[:, 0] += 1  # behind the brace
    bounds[:, -1] -= 1
    found = []
    for name in names:
        at = keys.index(name)
        label = len(name) + 4  # with a comma or brace, quotes and a colon
        begins, stops = bounds[:, at] + label, bounds[:, at + 1]
        if not ((text[begins - 1] == ord(":")) & (text[begins - label + 1] == ord('"')) & (begins < stops)).all():
            return None
        found.append(_digits(text, begins, stops))
    return found


def _keys(line: bytes) -> list[str]:
    """The keys of an object that is written without spaces; `ValueError`."""
    try:
        row = json.loads(line)
    except RecursionError as error:
        raise ValueError("JSON that is too deep") from error
    if not isinstance(row, dict):
        raise ValueError("a JSON object was expected")
    compact = json.dumps(row, separators=(",", ":"), ensure_ascii=False).encode()
    return list(row) if len(compact) == len(line) else []


def _digits(text: Any, begins: Any, stops: Any) -> Numbers:
    def of(rows: Any = slice(None)) -> Any:
        at, many = begins[rows], (stops - begins)[rows]
        wide = min(int(many.max(initial=0)), _MOST_DIGITS)
        digits = text[at[:, None] + np.arange(wide)].astype(np.int64) - ord("0")
        value, good = np.zeros(len(at), np.int64), many <= _MOST_DIGITS
        for place in range(wide):
            digit, here = digits[:, place], many > place
            good &= ~here | ((digit >= 0) & (digit <= 9))
            value = np.where(here, value * 10 + digit, value)
        if good.all():
            return value
        value = value.astype(float)
        for row in np.flatnonzero(~good).tolist():  # null, or no natural number
            word = text[at[row] : at[row] + many[row]].tobytes()
            value[row] = np.nan if word == b"null" else float(json.loads(word))
        return value

    return of
