# SPDX-License-Identifier: Apache-2.0
"""JSON files that are whole, whoever crashes. Apart from the store, whose Parquet takes 0.2 s to import.

A *sealed* one says by itself whether it is what was written: its last field is the checksum of all before it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from qbed.durable import move
from qbed.files import MIB, read_bytes

LARGEST = 64 * MIB
SEAL = "sha256"
"""The last field of a sealed file."""


class SealError(ValueError):
    """A sealed file is not what was written."""


def read_json(path: Path | str, most: int = LARGEST) -> Any:
    """What a regular JSON file of at most `most` bytes holds; OSError, or ValueError where it is no JSON."""
    content = read_bytes(path, most)
    try:
        return json.loads(content)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file beside its place and rename it: it is there completely or not at all."""
    _write(path, json.dumps(value, indent=2, sort_keys=True).encode() + b"\n")


def write_sealed(path: Path, value: Mapping[str, Any]) -> None:
    """The same of an object, sealed."""
    _write(path, sealed(value))


def beside(path: Path) -> Path:
    """Where a file is written before it gets its name."""
    return path.with_name(f".{path.name}.tmp")


def _write(path: Path, content: bytes) -> None:
    """In a stranger's folder a link may lie where the file is to be written: it goes, and what it names stays."""
    beside(path).unlink(missing_ok=True)
    descriptor = os.open(beside(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    move(beside(path), path)


def sealed(value: Mapping[str, Any]) -> bytes:
    """A sealed file's content."""
    assert value and SEAL not in value
    head = json.dumps(value, indent=2, sort_keys=True).encode().removesuffix(b"\n}")
    return head + _seal(head)


def unsealed(content: bytes) -> dict[str, Any]:
    """What `sealed` was given; `SealError` if a single bit of it is another."""
    length = len(_seal(b""))
    head, seal = content[:-length], content[-length:]
    if seal != _seal(head):
        raise SealError("is not what was written")
    try:
        value: dict[str, Any] = json.loads(head + b"\n}")
    except (ValueError, RecursionError):  # somebody sealed what is no JSON
        raise SealError("is not what was written") from None
    return value


def _seal(head: bytes) -> bytes:
    return f',\n  "{SEAL}": "{hashlib.sha256(head).hexdigest()}"\n}}\n'.encode()
