# SPDX-License-Identifier: Apache-2.0
"""Labs in virtual time: exact, repeatable to the byte, as an ordinary process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from qbed.base import terminal
from qbed.network.kernels import LabKernel
from qbed.plan.model import Plan
from qbed.substrates import Cell, Clock, Deployment, Finding, Limits, MissingPart, Samples, UpReport
from qbed.substrates.kernels import build_kernel, toolchain_of
from qbed.substrates.toolchain import Toolchain, ToolchainError, find_toolchain
from qbed.substrates.virtual import NAME, checks, provision, session
from qbed.substrates.virtual.cell import VirtualCell
from qbed.substrates.virtual.divided import DividedCell
from qbed.substrates.virtual.guest_memory import kept_memory
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

    @cached_property
    def _tools_of(self) -> Callable[[str], Toolchain]:
        """The toolchain of a kernel by its name, each found once."""
        return cache(toolchain_of)

    def _tools_for(self, plan: Plan) -> Toolchain:
        return self._tools if plan.kernel is None else self._tools_of(plan.kernel)

    def many_cells(self) -> AbstractContextManager[None]:
        return kept_memory()

    def cell(self, folder: Path, plan: Plan, dilation: int = 1) -> Cell:
        kind = DividedCell if plan.parts else VirtualCell
        return kind(self._tools_for(plan), folder, plan)

    @cached_property
    def inputs(self) -> VirtualInputs:
        return VirtualInputs(self._tools, self._tools_of)

    def check_name_free(self, name: str) -> None:
        session.check_name_free(name)

    def up(self, plan: Plan, file: Path, dilation: int, limits: Limits) -> UpReport:
        _build_kernel(plan)
        session.start(plan, file, limits)
        note = "the lab's parts are for runs; a lab that is up has one kernel"
        return UpReport([note] if plan.parts else [])

    def deployments(self) -> list[Deployment]:
        return [*session.sessions()]

    def find(self, name: str) -> Deployment | None:
        found = session.session(name)
        return found if found.is_up() else None

    def samples(self, folder: Path, plan: Plan) -> Samples:
        return session.samples(folder, plan)

    def missing_parts(self, plan: Plan) -> Iterator[MissingPart]:
        """A missing kernel is built now. `ToolchainError` if what the plan loads is damaged."""
        try:
            _build_kernel(plan)
        except ToolchainError as error:
            assert plan.kernel is not None
            return iter([MissingPart("kernel", plan.kernel, str(error))])
        tools = self._tools_for(plan)
        found = list(provision.missing_parts(tools, plan))
        if not found:
            tools.check(provision.loaded(tools, plan))
        return iter(found)

    def examine(self) -> Iterator[Finding]:
        return checks.examine()


def _build_kernel(plan: Plan) -> None:
    """Build the kernel that a plan selects if it is missing. `ToolchainError`."""
    if plan.kernel is not None:
        folder = Path(plan.kernel_folder) if plan.kernel_folder else None
        build_kernel(LabKernel(plan.kernel, folder), terminal.print_status)


def substrate() -> VirtualSubstrate:
    return VirtualSubstrate()
