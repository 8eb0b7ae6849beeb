# SPDX-License-Identifier: Apache-2.0
"""A cell in virtual time: boots the guest, follows it through the gate, and checks its result."""

from __future__ import annotations

import shutil
import signal
import time
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from qbed.plan.model import Plan
from qbed.substrates import CellError, DiskFullError, Limits, Progress
from qbed.substrates.panics import panic
from qbed.substrates.toolchain import Toolchain
from qbed.substrates.virtual.guest import Guest, boot
from qbed.substrates.virtual.quota import EVERY_S, Quota
from qbed.telemetry.console import console_tail
from qbed.telemetry.records import read_done

CONSOLE_LINES = 8
DISK_FULL_BYTES = 1 << 20


@dataclass(frozen=True)
class VirtualCell:
    """A cell in a folder that holds its plan."""

    toolchain: Toolchain
    folder: Path
    plan: Plan

    def run(self, limits: Limits, progress: Progress) -> None:
        """Run `plan.json`. The guest has ended when this returns or raises."""
        with boot(self.toolchain, self.folder, self.plan, "cell") as guest:
            quota = Quota(self.folder, limits.space_bytes)
            trouble = _watch(guest, self.plan, limits, quota, progress)
            status = guest.end()
        judge(self.folder, trouble, status, self.toolchain)


def _watch(guest: Guest, plan: Plan, limits: Limits, quota: Quota, progress: Progress) -> str | None:
    """Follow the gate until the guest has ended. Return an error of its clock or folder, if any."""
    begun = moved = time.monotonic()
    at_ns = -1
    while True:
        now = time.monotonic()
        if now - begun > limits.cell_s:
            return (
                f"the cell was stopped after {limits.cell_s:g} s of wall clock, at {max(at_ns, 0)} ns of virtual time"
            )
        if now - moved > limits.stall_s:
            what = f"virtual time stands still at {at_ns} ns" if at_ns >= 0 else "the guest does not become ready"
            return f"{what}: no progress in {limits.stall_s:g} s of wall clock"
        if excess := quota.excess():
            return excess
        messages = guest.wait(min(begun + limits.cell_s - now, moved + limits.stall_s - now, EVERY_S))
        if messages is None:
            return None
        for message in messages:
            if message.get("event") == "error":
                return f"the agent says: {message.get('error')}"
            if message.get("event") in ("progress", "ready"):
                moved = time.monotonic()
                at_ns = int(message.get("time_ns", max(at_ns, 0)))
                progress(min(1.0, at_ns / plan.duration_ns))


def judge(folder: Path, trouble: str | None, status: int, toolchain: Toolchain) -> None:
    """Raise `CellError` unless the cell in `folder` is complete."""
    done = read_done(folder / "out" / "done.json")
    if trouble is None and done is not None and done.status == "complete":
        return
    if shutil.disk_usage(folder).free < DISK_FULL_BYTES:
        raise DiskFullError(f"the disk is full: {folder} has no space left")
    lines, then = console_tail(folder / "console.log"), "; "
    if trouble is None:
        if done is not None:
            trouble = f"the agent says: {done.error}"
            if "\n" in trouble:  # the console ends with all of it once more
                then = "\n    "
                lines = list(takewhile(lambda line: not line.startswith("qbed-agent: "), lines))
        elif (panicked := panic(lines, toolchain.folder)) is not None:
            trouble, then = panicked, "\n    "
            lines = lines[: next(i for i, line in enumerate(lines) if "Kernel panic" in line)]
        elif status < 0:
            trouble = f"the guest was killed by {signal.Signals(-status).name}"
        else:
            trouble = f"the guest ended with status {status} and without a result"
    shown = "".join(f"\n    | {line}" for line in lines[-CONSOLE_LINES:])
    raise CellError(trouble + then + (f"its console said last:{shown}" if shown else "its console said nothing"))
