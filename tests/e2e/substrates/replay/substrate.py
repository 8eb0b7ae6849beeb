# SPDX-License-Identifier: Apache-2.0
"""Recorded cells, found by their plans in the run folder that the variable QBED_RECORDED names."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from qbed.plan.model import Plan
from qbed.substrates import (
    CellError,
    Clock,
    Deployment,
    Finding,
    Inputs,
    Limits,
    MissingPart,
    Progress,
    Samples,
    SubstrateError,
    UpReport,
)


@dataclass(frozen=True)
class RecordedCell:
    """A recorded cell."""

    work: Path
    folder: Path

    def run(self, limits: Limits, progress: Progress) -> None:
        shutil.copytree(self.work / "out", self.folder / "out")
        progress(1.0)


@dataclass(frozen=True)
class Replay:
    """The substrate: an implementation of `qbed.substrates.Substrate`."""

    recorded: Path
    name: str = "replay"
    clock: Clock = "virtual"
    cells_at_once: int | None = None
    inputs: Inputs | None = None

    def many_cells(self) -> AbstractContextManager[None]:
        return nullcontext()

    def cell(self, folder: Path, plan: Plan, dilation: int = 1) -> RecordedCell:
        for work in sorted(self.recorded.glob("cells/*/work")):
            if (work / "plan.json").read_text() == plan.dumps():
                return RecordedCell(work, folder)
        raise CellError("this plan was not recorded")

    def check_name_free(self, name: str) -> None:
        """Accept any name, as no lab can be up."""

    def up(self, plan: Plan, file: Path, dilation: int, limits: Limits) -> UpReport:
        raise SubstrateError("a recording cannot be brought up")

    def deployments(self) -> list[Deployment]:
        return []

    def find(self, name: str) -> Deployment | None:
        return None

    def samples(self, folder: Path, plan: Plan) -> Samples:
        return Samples({"event": "clock", "substrate": self.name, "recorded": True}, [folder / "out"])

    def missing_parts(self, plan: Plan) -> Iterator[MissingPart]:
        yield from ()

    def examine(self) -> Iterator[Finding]:
        count = len(list(self.recorded.glob("cells/*/work")))
        yield Finding("recording", "good" if count else "missing", f"{count} cells in {self.recorded}")


def substrate() -> Replay:
    return Replay(Path(os.environ["QBED_RECORDED"]))
