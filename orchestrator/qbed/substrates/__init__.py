# SPDX-License-Identifier: Apache-2.0
"""Substrates: the ways to bring a plan to life. Each runs one cell in one folder, which then holds `out/`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from qbed.errors import QbedError

if TYPE_CHECKING:
    from qbed.lab.model import Lab
    from qbed.plan.model import Plan

VIRTUAL = "virtual"
"""What `--on` calls the virtual substrate."""

Progress = Callable[[float], None]
"""Takes the done fraction (0 to 1) of the cell's duration."""


class CellError(QbedError):
    """A cell that did not run to its end; the message says why."""


class SubstrateError(QbedError):
    """The substrate itself does not work: no other cell would fare better."""


class DiskFullError(SubstrateError):
    """Nothing more can be written."""


@dataclass(frozen=True)
class Limits:
    """Wall-clock limits, in seconds: for a whole cell, and for the virtual clock to move by one progress message."""

    cell_s: float = 3600.0
    stall_s: float = 300.0


class Substrate(Protocol):
    """Runs cells one after the other."""

    def prepare(self, folder: Path, lab: Lab, plan: Plan) -> None:
        """Put into `folder` what the cell needs besides its plan; raises `QbedError` if it cannot run there."""

    def run_cell(self, folder: Path, plan: Plan, limits: Limits, progress: Progress) -> None:
        """Run `folder/plan.json` to the end of its duration; raises `CellError` or `DiskFullError`."""
