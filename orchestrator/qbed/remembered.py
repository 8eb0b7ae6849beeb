# SPDX-License-Identifier: Apache-2.0
"""What was found out about this machine and need not be found out again: a JSON file each, in `$QBED_CACHE`."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from qbed.json_files import read_json, write_json


def cache_folder() -> Path:
    """`$QBED_CACHE`, or `qbed` in the user's cache folder."""
    named = os.environ.get("QBED_CACHE")
    return Path(named or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "qbed")


def recall(file: str) -> dict[str, Any]:
    """All that a file remembers; nothing if it is missing or damaged."""
    try:
        value = read_json(cache_folder() / file)
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def remember(file: str, key: str, value: Any) -> None:
    """Remember a value; a folder that cannot be written forgets it."""
    with suppress(OSError):
        cache_folder().mkdir(parents=True, exist_ok=True)
        write_json(cache_folder() / file, recall(file) | {key: value})
