# SPDX-License-Identifier: Apache-2.0
"""A divided cell in virtual time: a guest for each part of the lab, on cores of their own if there are enough, and the
merge of their results (docs/formats.md section 2).
"""

from __future__ import annotations

import json
import os
import select
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from qbed.base.json_files import Row
from qbed.plan.model import Plan
from qbed.plan.parts import distances_ns
from qbed.substrates import PART_TIMES, CellError, Limits, Progress
from qbed.substrates.merge import COUNTERS, merge, merged_counters, read_json
from qbed.substrates.toolchain import Toolchain
from qbed.substrates.virtual.cell import judge
from qbed.substrates.virtual.guest import Guest, PartOfLab, boot
from qbed.substrates.virtual.part_memory import SPINS, PartMemory, part_memory
from qbed.substrates.virtual.quota import EVERY_S, Quota
from qbed.telemetry.records import read_done

PARTS, OUT = "parts", "out"
START_NS = 500_000_000
"""CLOCK_MONOTONIC at which frames between parts begin to arrive: all parts have built their nodes by then."""


@dataclass(frozen=True)
class DividedCell:
    """A cell in a folder that holds its plan, which has several parts."""

    toolchain: Toolchain
    folder: Path
    plan: Plan

    def run(self, limits: Limits, progress: Progress) -> None:
        """Run `plan.json`. All guests have ended when this returns or raises."""
        count = self.plan.part_count
        shutil.rmtree(self.folder / PARTS, ignore_errors=True)
        folders = [part_folder(self.folder, part) for part in range(count)]
        for folder in folders:
            folder.mkdir(parents=True)
            shutil.copyfile(self.folder / "plan.json", folder / "plan.json")
        cores = len(os.sched_getaffinity(0))
        with part_memory(distances_ns(self.plan), START_NS, SPINS if cores >= count else 0) as memory:
            with self._guests(folders, memory) as guests:
                ran_s = _Watch(self, folders, guests, limits, progress).run()
            times = [memory.times(part) for part in range(count)]
        with (self.folder / "console.log").open("wb") as console:
            for folder in folders:
                console.write((folder / "console.log").read_bytes())
        out = self.folder / OUT
        out.mkdir(exist_ok=True)
        agents = [folder / OUT for folder in folders]
        merge(out, self.plan, agents, self.plan.parts)
        counted = [read_json(agent / COUNTERS) for agent in agents]
        counters = merged_counters(self.plan, counted, self.plan.parts)
        _add_deliveries(self.plan, counters, counted)
        (out / COUNTERS).write_text(json.dumps(counters))
        ends = [done.end_ns or 0 for agent in agents if (done := read_done(agent / "done.json")) is not None]
        (out / "done.json").write_text(json.dumps({"status": "complete", "end_ns": max(ends)}))
        rows = [
            {"windows": found.windows, "busy_s": ran - found.waited_ns / 1e9, "waited_s": found.waited_ns / 1e9}
            for found, ran in zip(times, ran_s, strict=True)
        ]
        (self.folder / PART_TIMES).write_text(json.dumps(rows))

    @contextmanager
    def _guests(self, folders: Sequence[Path], memory: PartMemory) -> Iterator[list[Guest]]:
        with ExitStack() as stack:
            yield [
                stack.enter_context(
                    boot(self.toolchain, folder, self.plan, "cell", part=PartOfLab(part, memory.descriptor))
                )
                for part, folder in enumerate(folders)
            ]


def part_folder(folder: Path, part: int) -> Path:
    """The folder of a part's guest in its cell's."""
    return folder / PARTS / str(part)


class _Watch:
    """Follows the guests of a cell until all have ended."""

    def __init__(
        self, cell: DividedCell, folders: Sequence[Path], guests: Sequence[Guest], limits: Limits, progress: Progress
    ) -> None:
        self._cell, self._folders, self._guests = cell, folders, guests
        self._limits, self._progress = limits, progress
        self._at_ns = [-1] * len(guests)
        self._ended_at = [0.0] * len(guests)
        self._running = set(range(len(guests)))

    def run(self) -> list[float]:
        """Return for how many seconds each part ran. `CellError` as soon as one fails."""
        begun = moved = time.monotonic()
        quota = Quota(self._cell.folder, self._limits.space_bytes)
        while self._running:
            now = time.monotonic()
            reached_ns = min(self._at_ns)
            if now - begun > self._limits.cell_s:
                raise CellError(
                    f"the cell was stopped after {self._limits.cell_s:g} s of wall clock, at {max(reached_ns, 0)} ns "
                    "of virtual time"
                )
            if now - moved > self._limits.stall_s:
                what = (
                    f"virtual time stands still at {reached_ns} ns" if reached_ns >= 0 else "a part does not get ready"
                )
                raise CellError(f"{what}: no progress in {self._limits.stall_s:g} s of wall clock")
            if excess := quota.excess():
                raise CellError(excess)
            for part in self._ready(EVERY_S):
                if self._read(part):
                    moved = time.monotonic()
            if min(self._at_ns) > max(reached_ns, 0):
                self._progress(min(1.0, min(self._at_ns) / self._cell.plan.duration_ns))
        return [ended - begun for ended in self._ended_at]

    def _ready(self, timeout_s: float) -> list[int]:
        """The running parts with messages, or that have ended."""
        descriptors = {fd: part for part in self._running for fd in self._guests[part].descriptors}
        ready, _, _ = select.select(list(descriptors), [], [], timeout_s)
        return sorted({descriptors[fd] for fd in ready})

    def _read(self, part: int) -> bool:
        """Read a part's messages; returns whether it has made progress."""
        messages = self._guests[part].wait(0)
        if messages is None:
            self._running.discard(part)
            self._ended_at[part] = time.monotonic()
            self._judge(part, None)
            return True
        moved = False
        for message in messages:
            if message.get("event") == "error":
                self._judge(part, f"the agent says: {message.get('error')}")
            if message.get("event") in ("progress", "ready"):
                moved = True
                self._at_ns[part] = int(message.get("time_ns", max(self._at_ns[part], 0)))
        return moved

    def _judge(self, part: int, trouble: str | None) -> None:
        status = self._guests[part].end()
        try:
            judge(self._folders[part], trouble, status, self._cell.toolchain)
        except CellError as error:
            raise type(error)(f"part {part}: {error}") from error


def _add_deliveries(plan: Plan, merged: Row, counted: Sequence[Row]) -> None:
    """Frames of a cut link are delivered, or lost at an end that is down, in the part of the other end."""
    for index, link in enumerate(plan.links):
        for side, end, peer in (("a", link.a, link.b), ("b", link.b, link.a)):
            if plan.parts[end.node] != plan.parts[peer.node]:
                arrived = counted[plan.parts[peer.node]]["links"][index][side]
                row = merged["links"][index][side]
                row["delivered"] = arrived["delivered"]
                row["lost"] += arrived["lost"]
