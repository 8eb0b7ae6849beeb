# SPDX-License-Identifier: Apache-2.0
"""The last words of a guest or a node."""

from __future__ import annotations

from pathlib import Path


def console_tail(path: Path, most_bytes: int = 8192) -> list[str]:
    """The last lines of a console log, printable."""
    try:
        with path.open("rb") as stream:
            stream.seek(max(0, path.stat().st_size - most_bytes))
            text = stream.read().decode("utf-8", "replace")
    except OSError:
        return []
    clean = ("".join(char for char in line if char.isprintable()).strip() for line in text.splitlines())
    return [line for line in clean if line]
