# SPDX-License-Identifier: Apache-2.0
"""JSON files that are whole, whoever crashes. Apart from the store, whose Parquet takes 0.2 s to import."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file beside its place and rename it: it is there completely or not at all."""
    beside = path.with_name(f".{path.name}.tmp")
    beside.write_text(json.dumps(value, indent=2, sort_keys=True) + "\n")
    beside.replace(path)
