# SPDX-License-Identifier: Apache-2.0
"""A divided cell in virtual time: a guest for each part of the lab, on cores of their own if there are enough, and the
merge of their results (docs/formats.md section 2).
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from qbed.base.json_files import Row
from qbed.plan.model import Plan
from qbed.plan.parts import distances_ns, plans_of_parts
from qbed.substrates import PART_TIMES, Limits, Progress
from qbed.substrates.merge import COUNTERS, merge, merged_counters, read_json
from qbed.substrates.toolchain import Toolchain
from qbed.substrates.virtual.guest import PartOfLab, boot
from qbed.substrates.virtual.part_memory import SPINS, PartMemory, part_memory
from qbed.substrates.virtual.watch import Watch, Watched
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
        plans = plans_of_parts(self.plan, (self.folder / "plan.json").read_text())
        for folder, plan in zip(folders, plans, strict=True):
            folder.mkdir(parents=True)
            (folder / "plan.json").write_text(plan)
        shares_core = len(os.sched_getaffinity(0)) < count
        with part_memory(distances_ns(self.plan), START_NS, 0 if shares_core else SPINS) as memory:
            with self._guests(folders, memory, shares_core) as guests:
                Watch(self.toolchain, self.folder, guests, self.plan.duration_ns).run(limits, progress)
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
            {"windows": found.windows, "busy_s": watched.guest.cpu_s, "waited_s": found.waited_s}
            for found, watched in zip(times, guests, strict=True)
        ]
        (self.folder / PART_TIMES).write_text(json.dumps(rows))

    @contextmanager
    def _guests(self, folders: Sequence[Path], memory: PartMemory, shares_core: bool) -> Iterator[list[Watched]]:
        with ExitStack() as stack:
            guests = []
            for number, folder in enumerate(folders):
                part = PartOfLab(number, memory.descriptor, shares_core)
                guest = stack.enter_context(boot(self.toolchain, folder, self.plan, "cell", part=part))
                guests.append(Watched(guest, folder))
            yield guests


def part_folder(folder: Path, part: int) -> Path:
    """The folder of a part's guest in its cell's."""
    return folder / PARTS / str(part)


def _add_deliveries(plan: Plan, merged: Row, counted: Sequence[Row]) -> None:
    """Frames of a cut link are delivered, or lost at an end that is down, in the part of the other end."""
    for index, link in enumerate(plan.links):
        for side, end, peer in (("a", link.a, link.b), ("b", link.b, link.a)):
            if plan.parts[end.node] != plan.parts[peer.node]:
                arrived = counted[plan.parts[peer.node]]["links"][index][side]
                row = merged["links"][index][side]
                row["delivered"] = arrived["delivered"]
                row["lost"] += arrived["lost"]
