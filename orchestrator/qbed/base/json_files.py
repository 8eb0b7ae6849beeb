# SPDX-License-Identifier: Apache-2.0
"""Atomically written JSON files. Not part of the store, because its Parquet library takes 0.2 s to import.

The last field of a *sealed* file is the checksum of all bytes before it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from qbed.base.files import MIB, move, named, read_bytes

LARGEST = 64 * MIB
SEAL = "sha256"
"""The last field of a sealed file."""
FILES = "files"
"""The field of a record that maps each path within the record's folder to the file's SHA-256."""
Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
"""A value of a JSON file."""
Row = dict[str, Any]
"""A JSON object."""
Schema = dict[str, Any]
"""A JSON Schema."""


class SealError(ValueError):
    """The content of a sealed file does not match its checksum."""


def read_json(path: Path | str, max_bytes: int = LARGEST) -> Any:
    """Read a regular JSON file of at most `max_bytes`. OSError, or ValueError if it is not JSON."""
    content = read_bytes(path, max_bytes)
    try:
        return json.loads(content)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def write_json(path: Path, value: object) -> None:
    """Write a JSON file atomically: to a temporary file that is then renamed."""
    _write(path, json.dumps(value, indent=2, sort_keys=True).encode() + b"\n")


def write_sealed(path: Path, value: Mapping[str, object]) -> None:
    """Write an object atomically as a sealed JSON file."""
    _write(path, sealed(value))


def temporary_path(path: Path) -> Path:
    """Return the temporary path of a file that is being written."""
    return path.with_name(f".{path.name}.tmp")


def _write(path: Path, content: bytes) -> None:
    """Replace a symlink at `path` instead of following it: the folder may be untrusted."""
    temporary_path(path).unlink(missing_ok=True)
    descriptor = os.open(temporary_path(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    with named(path), os.fdopen(descriptor, "wb") as file:
        file.write(content)
    move(temporary_path(path), path)


def sealed(value: Mapping[str, object]) -> bytes:
    """Return the content of a sealed file."""
    assert value and SEAL not in value
    head = json.dumps(value, indent=2, sort_keys=True).encode().removesuffix(b"\n}")
    return head + _seal(head)


def unsealed(content: bytes) -> Row:
    """Return the object in a sealed file's content. `SealError` if any bit has changed."""
    length = len(_seal(b""))
    head, seal = content[:-length], content[-length:]
    if seal != _seal(head):
        raise SealError("is not what was written")
    try:
        value: Row = json.loads(head + b"\n}")
    except (ValueError, RecursionError):  # sealed by another program, but not JSON
        raise SealError("is not what was written") from None
    return value


def _seal(head: bytes) -> bytes:
    return f',\n  "{SEAL}": "{hashlib.sha256(head).hexdigest()}"\n}}\n'.encode()
