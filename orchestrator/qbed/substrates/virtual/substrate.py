# SPDX-License-Identifier: Apache-2.0
"""Labs in virtual time: exact, repeatable to the byte, as an ordinary process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from qbed.plan.model import Plan
from qbed.substrates import Clock, Deployment, Finding, Limits, MissingPart, Samples, UpReport
from qbed.substrates.toolchain import Toolchain, find_toolchain
from qbed.substrates.virtual import NAME, checks, provision, session
from qbed.substrates.virtual.cell import VirtualCell
from qbed.substrates.virtual.inputs import VirtualInputs


@dataclass(frozen=True)
class VirtualSubstrate:
    """A `qbed.substrates.Substrate`. `toolchain` replaces this checkout's."""

    toolchain: Toolchain | None = None
    name: str = NAME
    clock: Clock = "virtual"
    cells_at_once: int | None = None

    @cached_property
    def _tools(self) -> Toolchain:
        """Found once: a set-up in another terminal must not change what the next cell of a run is made of."""
        return self.toolchain or find_toolchain()

    def cell(self, folder: Path, plan: Plan, dilation: int = 1) -> VirtualCell:
        return VirtualCell(self._tools, folder, plan)

    @cached_property
    def inputs(self) -> VirtualInputs:
        return VirtualInputs(self._tools)

    def check_name_free(self, name: str) -> None:
        session.check_name_free(name)

    def up(self, plan: Plan, file: Path, dilation: int, limits: Limits) -> UpReport:
        session.start(plan, file, limits)
        return UpReport()

    def deployments(self) -> list[Deployment]:
        return [*session.sessions()]

    def find(self, name: str) -> Deployment | None:
        found = session.session(name)
        return found if found.is_up() else None

    def samples(self, folder: Path, plan: Plan) -> Samples:
        return session.samples(folder, plan)

    def missing_parts(self, plan: Plan) -> Iterator[MissingPart]:
        """`ToolchainError` if what the plan loads is damaged."""
        found = list(provision.missing_parts(self._tools, plan))
        if not found:
            self._tools.check(provision.loaded(self._tools, plan))
        return iter(found)

    def examine(self) -> Iterator[Finding]:
        return checks.examine()


def substrate() -> VirtualSubstrate:
    return VirtualSubstrate()
