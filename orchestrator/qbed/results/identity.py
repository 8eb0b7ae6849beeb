# SPDX-License-Identifier: Apache-2.0
"""What a run folder's results are of: its campaign.json. Apart from its tables, whose Parquet takes 0.2 s to import."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qbed.errors import QbedError
from qbed.files import read_bytes
from qbed.json_files import LARGEST, SEAL, unsealed
from qbed.substrates import DEFAULT

IDENTITY = "campaign.json"
CELL_FORM = "arrow, with checksums"


class StoreError(QbedError):
    """The run folder cannot be used for this run."""

    exit_status = 2


@dataclass(frozen=True)
class RanOn:
    """The substrate of a run, and how much slower than the clock it was there."""

    name: str = DEFAULT
    dilation: int = 1


def read_identity(run: Path) -> dict[str, Any]:
    """The campaign.json of a run folder."""
    try:
        content = read_bytes(run / IDENTITY, LARGEST)
    except OSError as error:
        raise StoreError(f"{run} is no run folder: it has no readable {IDENTITY}") from error
    try:
        value = json.loads(content)
        if isinstance(value, dict) and SEAL not in value and value.get("cells") != CELL_FORM:
            return value  # of a run from before there were checksums
        return unsealed(content)
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{run / IDENTITY} is damaged: it is not what was written") from error


def ran_on(run: Path) -> RanOn:
    """Where a run was carried out; one on the default substrate does not say so."""
    said = read_identity(run).get("substrate") if (run / IDENTITY).exists() else None
    if said is None:
        return RanOn()
    try:
        return RanOn(str(said["name"]), int(said["dilation"]))
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(f"{run / IDENTITY} is damaged: its substrate has no name and dilation") from error
