# SPDX-License-Identifier: Apache-2.0
"""Points as text, a line each, column by column: Arrow makes a million lines in the time that Python takes for ten
thousand, and a reader of samples must not cost more than the lab.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from qbed.live.points import Points


@dataclass(frozen=True)
class Form:
    """A way to write points. `head`: all before the first field; `field`: a field's name with what follows it."""

    head: Callable[[str, Mapping[str, str]], str]
    field: Callable[[str], str]
    quote: Callable[[str], str]
    integer_suffix: str
    """The suffix of an integer."""
    time: str
    """The text before the time."""
    end: str

    def write(self, points: Points) -> bytes:
        """The lines of points; equal points are equal bytes."""
        if not len(points):
            return b""
        heads = pa.array([self.head(points.measurement, tags) for tags in points.tags])
        parts: list[Any] = [pc.take(heads, points.series)]
        waiting = ""  # constants between two columns
        for name, column in points.fields.items():
            text, suffix = self._values(column)
            before = waiting + ("," if len(parts) > 1 else "") + self.field(name)
            if text.null_count:
                present = pc.is_valid(text)
                fields = pc.binary_join_element_wise(before[len(waiting) :], text, suffix, "")
                parts += [waiting, pc.if_else(present, fields, "")]
                waiting = ""
            else:
                parts += [before, text]
                waiting = suffix
        parts += [waiting + self.time, pc.cast(points.time_ns, pa.string()), self.end]
        lines = pc.binary_join_element_wise(*parts, "")
        return _bytes(lines)

    def _values(self, column: Any) -> tuple[Any, str]:
        """A column as text, and what follows each value."""
        if pa.types.is_floating(column.type):
            finite = pc.if_else(pc.is_finite(column), column, pa.scalar(None, column.type))
            return pc.cast(finite, pa.string()), ""
        if pa.types.is_integer(column.type):
            return pc.cast(column, pa.string()), self.integer_suffix
        encoded = column.dictionary_encode()
        quoted = pa.array([self.quote(value) for value in encoded.dictionary.to_pylist()], pa.string())
        return pc.take(quoted, encoded.indices), ""


def _bytes(lines: Any) -> bytes:
    """All strings of an array, one after the other: that is how Arrow keeps them."""
    _, offsets, data = lines.buffers()
    ends = memoryview(offsets).cast("i")
    first, last = ends[lines.offset], ends[lines.offset + len(lines)]
    return bytes(memoryview(data)[first:last])


_UNFIT = re.compile(r"[\x00-\x1f\x7f\\]")
_LONGEST_TAG = 200


def _tag(text: str) -> str:
    """A tag as line protocol has it: a backslash or a control character has no form there."""
    fit = _UNFIT.sub("_", text[:_LONGEST_TAG]) or "-"
    return re.sub(r"([,= ])", r"\\\1", fit)


def _head(measurement: str, tags: Mapping[str, str]) -> str:
    return ",".join([measurement, *(f"{name}={_tag(value)}" for name, value in sorted(tags.items()))]) + " "


def _object(measurement: str, tags: Mapping[str, str]) -> str:
    return json.dumps({"measurement": measurement, **tags}).removesuffix("}") + ", "


LINE_PROTOCOL = Form(
    head=_head,
    field=lambda name: f"{name}=",
    quote=lambda text: '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"',
    integer_suffix="i",
    time=" ",
    end="\n",
)
"""InfluxDB's, with times in nanoseconds."""
NDJSON = Form(
    head=_object, field=lambda name: f'"{name}":', quote=json.dumps, integer_suffix="", time=',"time":', end="}\n"
)
"""An object a line: tags, fields, and `time`, in nanoseconds."""
