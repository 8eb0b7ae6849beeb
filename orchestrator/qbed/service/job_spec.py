# SPDX-License-Identifier: Apache-2.0
"""The description of a job that its process reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

STOPPED = 130
"""The exit status of a run that was stopped."""
UNWRITTEN = 74
"""The exit status of a run without a result because the disk is full (EX_IOERR)."""


@dataclass(frozen=True)
class JobSpec:
    """A job for its process. `lab`: the file or folder; `foreign`: whether a client uploaded it."""

    place: str
    lab: str
    request: dict[str, Any]
    cores: int | None
    foreign: bool
    trusted: bool
