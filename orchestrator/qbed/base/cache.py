# SPDX-License-Identifier: Apache-2.0
"""Cached facts about this machine: one JSON file each in `$QBED_CACHE`."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from qbed.base.json_files import Row, read_json, write_json


def cache_folder() -> Path:
    """Return `$QBED_CACHE`, or `qbed` in the user's cache folder."""
    named = os.environ.get("QBED_CACHE")
    return Path(named or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "qbed")


def read_cache(file: str) -> Row:
    """Return all values in a cache file; none if it is missing or damaged."""
    try:
        value = read_json(cache_folder() / file)
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def write_cache(file: str, key: str, value: object) -> None:
    """Store a value in a cache file; without effect if the folder is not writable."""
    with suppress(OSError):
        cache_folder().mkdir(parents=True, exist_ok=True)
        write_json(cache_folder() / file, read_cache(file) | {key: value})
