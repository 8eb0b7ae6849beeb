# SPDX-License-Identifier: Apache-2.0
"""Rows from the output of a cell's programs: one for each JSON object or each line of `key=value`.

A record is a document or a line, numbered from 0. Objects within lists are separate rows, with the names that lead to
them (`path`) and their index in the list (`element`). Objects within objects are flattened to names with dots.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from qbed.base.files import MIB, open_regular
from qbed.base.json_files import Json, Row

MAX_BYTES = 64 * MIB
"""Limit on one program's output that is parsed."""
MAX_ROWS = 1_000_000
SHOWN_BYTES = 64 << 10
"""Limit on one program's output that the table `programs` contains."""
_PAIR = re.compile(r"""(?<!\S)([A-Za-z_][\w./%-]*)=("[^"]*"|'[^']*'|\S*)""")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(inf|nan)", re.IGNORECASE)
_DEEP = 50


class OutputError(ValueError):
    """Output that does not have the format of the lab file."""


@dataclass
class _Rows:
    """Collects the rows of one program."""

    record: int = 0
    rows: list[Row] = field(default_factory=list)

    def add(self, value: dict[str, Json], path: str, element: int | None, depth: int = 0) -> None:
        if len(self.rows) >= MAX_ROWS:
            raise OutputError(f"it has more than {MAX_ROWS} records")
        numbers: dict[str, float] = {}
        texts: dict[str, str] = {}
        self.rows.append({"record": self.record, "path": path, "element": element, "numbers": numbers, "texts": texts})
        self._fields(value, "", path, numbers, texts, depth)

    def _fields(
        self,
        value: dict[str, Json],
        before: str,
        path: str,
        numbers: dict[str, float],
        texts: dict[str, str],
        depth: int,
    ) -> None:
        if depth > _DEEP:
            raise OutputError(f"its objects are nested more than {_DEEP} deep")
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

    def _list(self, values: list[Json], path: str, name: str, texts: dict[str, str], depth: int) -> None:
        objects = [value for value in values if isinstance(value, dict)]
        if len(objects) == len(values):
            for element, item in enumerate(objects):
                self.add(item, path, element, depth + 1)
        else:
            texts[name] = _plain(json.dumps(values))


def _set_number(name: str, value: float, numbers: dict[str, float], texts: dict[str, str]) -> None:
    try:
        numbers[name] = float(value)
    except OverflowError:
        texts[name] = str(value)


def _plain(text: str) -> str:
    """Replace lone surrogates, which Parquet cannot store."""
    return text.encode("utf-8", "replace").decode()


def rows_of_json(text: str) -> list[Row]:
    """Parse one JSON document, or one on each line; OutputError. Each object of a list is a document."""
    found = _Rows()
    for number, value in enumerate(_documents(text)):
        found.record = number
        found.add(value, "", None)
    return found.rows


def _documents(text: str) -> Iterator[dict[str, Json]]:
    try:
        value: Json = json.loads(text)
        documents = value if isinstance(value, list) else [value]
    except (ValueError, RecursionError) as error:
        documents = [
            _parse_line(number, line, error) for number, line in enumerate(text.splitlines(), 1) if line.strip()
        ]
    for document in documents:
        if not isinstance(document, dict):
            raise OutputError(f"expected JSON objects, got `{_plain(str(document)[:40])}`")
        yield document


def _parse_line(number: int, line: str, document_error: Exception) -> Json:
    try:
        value: Json = json.loads(line)
        return value
    except (ValueError, RecursionError):
        why = document_error if number == 1 else f"line {number}: `{line.strip()[:40]}`"
        raise OutputError(f"it is no JSON: {why}") from None


def rows_of_pairs(text: str) -> list[Row]:
    """A row for each line with `key=value`. Only values without a unit are numbers; other lines are skipped."""
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
            if len(found) >= MAX_ROWS:
                raise OutputError(f"it has more than {MAX_ROWS} records")
            row = {"record": len(found), "path": "", "element": None, "numbers": numbers, "texts": texts}
            found.append(row)
    return found


def parse_output(file: Path, output: str) -> list[Row]:
    """Parse a program's output in the format of the lab file (`text`, `json` or pairs); OutputError."""
    if output == "text":
        return []
    with open_regular(file) as stream:
        content = stream.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise OutputError(f"it is longer than {MAX_BYTES >> 20} MiB")
    text = content.decode("utf-8", "replace")
    if not text.strip():
        return []
    return rows_of_json(text) if output == "json" else rows_of_pairs(text)


def read_head(file: Path) -> tuple[str, int]:
    """The beginning of a program's output, and its total size in bytes."""
    with open_regular(file) as stream:
        text = stream.read(SHOWN_BYTES).decode("utf-8", "replace")
        size = stream.seek(0, 2)
    return text, size
