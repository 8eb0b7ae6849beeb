# SPDX-License-Identifier: Apache-2.0
"""A job as its process takes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

STOPPED = 130
"""The status of a run that was told to stop."""
UNSAID = 74
"""The status of a run that could not say what came of it: the disk is full. (EX_IOERR)"""


@dataclass(frozen=True)
class Order:
    """A job as its process takes it. `lab`: the file or folder; `foreign`: somebody has sent it."""

    place: str
    lab: str
    request: dict[str, Any]
    cores: int | None
    foreign: bool
    trusted: bool
