# SPDX-License-Identifier: Apache-2.0
"""What programs of a cell printed, as rows: a row for each object of JSON, or for each line of `key=value`.

A record is a document or a line, by its number from 0. Its objects within lists are rows of their own, by the names on
the way to them (`path`) and their place in the list (`element`); objects within objects are part of theirs, by names
with dots.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qbed.files import MIB, open_regular
from qbed.telemetry.records import Row

MOST_BYTES = 64 * MIB
"""Of one program's output that becomes rows."""
MOST_ROWS = 1_000_000
SHOWN_BYTES = 64 << 10
"""Of one program's output that is in the table itself."""
_PAIR = re.compile(r"""(?<!\S)([A-Za-z_][\w./%-]*)=("[^"]*"|'[^']*'|\S*)""")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(inf|nan)", re.IGNORECASE)
_DEEP = 50


class OutputError(ValueError):
    """Output that is not what the lab file says."""


@dataclass
class _Rows:
    """The rows of one program, gathered."""

    record: int = 0
    rows: list[Row] = field(default_factory=list)

    def add(self, value: dict[str, Any], path: str, element: int | None, depth: int = 0) -> None:
        if len(self.rows) >= MOST_ROWS:
            raise OutputError(f"it has more than {MOST_ROWS} records")
        numbers: dict[str, float] = {}
        texts: dict[str, str] = {}
        self.rows.append({"record": self.record, "path": path, "element": element, "numbers": numbers, "texts": texts})
        self._fields(value, "", path, numbers, texts, depth)

    def _fields(
        self,
        value: dict[str, Any],
        before: str,
        path: str,
        numbers: dict[str, float],
        texts: dict[str, str],
        depth: int,
    ) -> None:
        if depth > _DEEP:
            raise OutputError(f"its objects are more than {_DEEP} deep in one another")
        for key, inner in value.items():
            name = f"{before}{_plain(key)}"
            if isinstance(inner, dict):
                self._fields(inner, f"{name}.", path, numbers, texts, depth + 1)
            elif isinstance(inner, list):
                self._list(inner, f"{path}.{name}" if path else name, name, texts, depth)
            elif isinstance(inner, bool | int | float):
                _set_number(name, inner, numbers, texts)
            elif inner is not None:
                texts[name] = _plain(inner)

    def _list(self, values: list[Any], path: str, name: str, texts: dict[str, str], depth: int) -> None:
        if all(isinstance(one, dict) for one in values):
            for element, one in enumerate(values):
                self.add(one, path, element, depth + 1)
        else:
            texts[name] = _plain(json.dumps(values))


def _set_number(name: str, value: float, numbers: dict[str, float], texts: dict[str, str]) -> None:
    try:
        numbers[name] = float(value)
    except OverflowError:
        texts[name] = str(value)


def _plain(text: str) -> str:
    """Half of a surrogate pair is in no Parquet file."""
    return text.encode("utf-8", "replace").decode()


def rows_of_json(text: str) -> list[Row]:
    """One document, or one on each line; OutputError. A list of objects is a document for each."""
    found = _Rows()
    for number, value in enumerate(_documents(text)):
        found.record = number
        found.add(value, "", None)
    return found.rows


def _documents(text: str) -> Iterator[dict[str, Any]]:
    whole: Any
    try:
        whole = json.loads(text)
        documents = whole if isinstance(whole, list) else [whole]
    except (ValueError, RecursionError) as error:
        documents = [_of_line(number, line, error) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    for document in documents:
        if not isinstance(document, dict):
            raise OutputError(f"expected JSON objects, got `{_plain(str(document)[:40])}`")
        yield document


def _of_line(number: int, line: str, of_all: Exception) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        why = of_all if number == 1 else f"line {number} is none: `{line.strip()[:40]}`"
        raise OutputError(f"it is no JSON: {why}") from None


def rows_of_pairs(text: str) -> list[Row]:
    """A row for each line that has `key=value`: numbers are numbers, without a unit; other lines are none."""
    found: list[Row] = []
    for line in text.splitlines():
        numbers: dict[str, float] = {}
        texts: dict[str, str] = {}
        for name, value in _PAIR.findall(line):
            if _NUMBER.fullmatch(value):
                numbers[name] = float(value)
            else:
                texts[name] = value.strip("\"'")
        if numbers or texts:
            if len(found) >= MOST_ROWS:
                raise OutputError(f"it has more than {MOST_ROWS} records")
            row = {"record": len(found), "path": "", "element": None, "numbers": numbers, "texts": texts}
            found.append(row)
    return found


def rows_printed(file: Path, output: str) -> list[Row]:
    """What a program's output says, by what the lab file says of it; OutputError."""
    if output == "text":
        return []
    with open_regular(file) as stream:
        content = stream.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise OutputError(f"it is longer than {MOST_BYTES >> 20} MiB")
    text = content.decode("utf-8", "replace")
    if not text.strip():
        return []
    return rows_of_json(text) if output == "json" else rows_of_pairs(text)


def shown(file: Path) -> tuple[str, int]:
    """The beginning of a program's output, and the bytes of all of it."""
    with open_regular(file) as stream:
        text = stream.read(SHOWN_BYTES).decode("utf-8", "replace")
        size = stream.seek(0, 2)
    return text, size
