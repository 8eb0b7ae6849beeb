# SPDX-License-Identifier: Apache-2.0
"""Follows the guests of a cell through their gates until all have ended, and checks their results."""

from __future__ import annotations

import select
import shutil
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from qbed.substrates import CellError, DiskFullError, Limits, Progress
from qbed.substrates.panics import panic
from qbed.substrates.toolchain import Toolchain
from qbed.substrates.virtual.guest import Guest
from qbed.substrates.virtual.quota import EVERY_S, Quota
from qbed.telemetry.console import console_tail
from qbed.telemetry.records import read_done

CONSOLE_LINES = 8
DISK_FULL_BYTES = 1 << 20


@dataclass
class Watched:
    """A guest of a cell, the folder of its part (the cell's own if it has one guest), and how far it has come."""

    guest: Guest
    folder: Path
    at_ns: int = -1
    has_ended: bool = False


class Watch:
    """Follows guests. `folder`: the cell's."""

    def __init__(self, toolchain: Toolchain, folder: Path, guests: Sequence[Watched], duration_ns: int) -> None:
        self._toolchain, self._folder, self._guests, self._duration_ns = toolchain, folder, guests, duration_ns

    def run(self, limits: Limits, progress: Progress) -> None:
        """Return when all guests have ended with complete results. `CellError` as soon as one fails."""
        begun = moved = time.monotonic()
        quota = Quota(self._folder, limits.space_bytes)
        while running := [watched for watched in self._guests if not watched.has_ended]:
            now, slowest = time.monotonic(), min(running, key=lambda watched: watched.at_ns)
            if trouble := _exceeded(limits, now - begun, now - moved, slowest.at_ns) or quota.excess():
                self._judge(slowest, trouble)
            reached_ns = slowest.at_ns
            for watched in _ready(running, min(begun + limits.cell_s - now, moved + limits.stall_s - now, EVERY_S)):
                if self._read(watched):
                    moved = time.monotonic()
            least_ns = min(watched.at_ns for watched in running)
            if least_ns > reached_ns:
                progress(min(1.0, least_ns / self._duration_ns))

    def _read(self, watched: Watched) -> bool:
        """Read a guest's messages; returns whether it has come further."""
        messages = watched.guest.wait(0)
        if messages is None:
            watched.has_ended = True
            self._judge(watched, None)
            return True
        moved = False
        for message in messages:
            if message.get("event") == "error":
                self._judge(watched, f"the agent says: {message.get('error')}")
            if message.get("event") in ("progress", "ready"):
                moved = True
                watched.at_ns = int(message.get("time_ns", max(watched.at_ns, 0)))
        return moved

    def _judge(self, watched: Watched, trouble: str | None) -> None:
        """End a guest. `CellError` if there is trouble or its result is not complete."""
        status = watched.guest.end()
        try:
            _judge(watched.folder, trouble, status, self._toolchain)
        except CellError as error:
            if len(self._guests) == 1:
                raise
            raise type(error)(f"part {self._guests.index(watched)}: {error}") from error


def _exceeded(limits: Limits, ran_s: float, stood_s: float, at_ns: int) -> str | None:
    """An error if the cell runs, or stands still, for longer than it may."""
    if ran_s > limits.cell_s:
        return f"the cell was stopped after {limits.cell_s:g} s of wall clock, at {max(at_ns, 0)} ns of virtual time"
    if stood_s > limits.stall_s:
        what = f"virtual time stands still at {at_ns} ns" if at_ns >= 0 else "the guest does not become ready"
        return f"{what}: no progress in {limits.stall_s:g} s of wall clock"
    return None


def _ready(guests: Sequence[Watched], timeout_s: float) -> list[Watched]:
    """The guests with messages, or that have ended."""
    descriptors = {fd: number for number, watched in enumerate(guests) for fd in watched.guest.descriptors}
    ready, _, _ = select.select(list(descriptors), [], [], max(0.0, timeout_s))
    return [guests[number] for number in sorted({descriptors[fd] for fd in ready})]


def _judge(folder: Path, trouble: str | None, status: int, toolchain: Toolchain) -> None:
    """Raise `CellError` unless the guest in `folder` gave a complete result."""
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
