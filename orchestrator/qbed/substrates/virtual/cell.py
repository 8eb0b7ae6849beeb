# SPDX-License-Identifier: Apache-2.0
"""A cell in virtual time with one guest."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from qbed.plan.model import Plan
from qbed.substrates import Limits, Progress
from qbed.substrates.toolchain import Toolchain
from qbed.substrates.virtual.guest import boot
from qbed.substrates.virtual.watch import Watch, Watched


@dataclass(frozen=True)
class VirtualCell:
    """A cell in a folder that holds its plan."""

    toolchain: Toolchain
    folder: Path
    plan: Plan

    def run(self, limits: Limits, progress: Progress) -> None:
        """Run `plan.json`. The guest has ended when this returns or raises."""
        with boot(self.toolchain, self.folder, self.plan, "cell") as guest:
            watched = [Watched(guest, self.folder)]
            Watch(self.toolchain, self.folder, watched, self.plan.duration_ns).run(limits, progress)
