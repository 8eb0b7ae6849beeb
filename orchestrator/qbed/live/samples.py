# SPDX-License-Identifier: Apache-2.0
"""The samples of a lab while it runs, in containers or in virtual time: one stream of NDJSON in the lab's own time.

The nodes' files are read as they grow, so a reader costs the lab nothing. Queue samples are those of `observe.queues`
at an interval, packets those of ports with `every packet`, flow samples those of `observe.flows`. In containers, each
interface has a sample when it has lost frames outside the plan's queues.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from qbed.base.json_files import Row
from qbed.plan.model import Plan
from qbed.plan.ports import port_names
from qbed.storage.checksums import check_cell, has_checksums
from qbed.storage.identity import ran_on
from qbed.substrates import Samples, SessionError, substrate, substrates
from qbed.telemetry.tail import Growing
from qbed.telemetry.taps import OPERATIONS, Records

POLL_S = 0.2
_QUEUE = (
    "min_bytes",
    "max_bytes",
    "min_packets",
    "max_packets",
    "enqueued",
    "dequeued",
    "dropped",
    "marked",
    "dequeued_bytes",
)

_PACKET = ("bytes", "ecn", "queue_bytes", "queue_packets", "packet", "payload", "sport", "dport", "tcp_seq", "tcp_ack")

_LOST = ("interface_dropped", "socket_dropped", "device_dropped")

UNITS = ("byte", "packet")


@dataclass(frozen=True)
class Running:
    """A lab or cell whose samples can be read: its folder (with `plan.json`), where they are, whether it goes on."""

    folder: Path
    samples: Callable[[Plan], Samples]
    alive: Callable[[], bool]


def find(what: str) -> Running:
    """A lab that is up, by its name; or a run folder: its newest cell that runs, or the last one that was kept."""
    lab = next((lab for one in substrates() if (lab := one.find(what))), None) if "/" not in what else None
    if lab is not None:
        return Running(lab.folder, lab.samples, lab.is_up)
    cells = Path(what) / "cells"
    works = sorted(cells.glob("*.tmp/work"), key=lambda path: path.stat().st_mtime) if cells.is_dir() else []
    kept = sorted(cells.glob("[0-9]*/work")) if cells.is_dir() and not works else []
    if kept and has_checksums(Path(what)):
        check_cell(kept[-1].parent)
    if works or kept:
        folder = (works or kept)[-1]
        return Running(
            folder,
            lambda plan: substrate(ran_on(Path(what)).name).samples(folder, plan),
            folder.exists if works else lambda: False,
        )
    hint = (
        "no cell runs there, and none was kept (--keep)" if cells.is_dir() else "`qbed ps` lists the labs that are up"
    )
    raise SessionError(f"{what} has no samples: {hint}")


def stream(running: Running, *, follow: bool) -> Iterator[Row]:
    """The clock, then every sample, in the order of time of what could be read at once. `follow`: until it ends."""
    plan = plan_of(running)
    samples = running.samples(plan)
    yield samples.clock
    tails = [_Tail(plan, part) for part in samples.parts]
    while True:
        alive = running.alive()
        rows = heapq.merge(*(sorted(tail.rows(), key=_time) for tail in tails), key=_time)
        yield from rows
        if not follow or not alive:
            return
        time.sleep(POLL_S)


def plan_of(running: Running) -> Plan:
    """The plan of what runs."""
    try:
        return Plan.loads((running.folder / "plan.json").read_bytes())
    except OSError as error:
        raise SessionError(f"{running.folder} has no plan: {error.strerror}") from error
    except ValueError as error:
        raise SessionError(f"{running.folder / 'plan.json'} is no plan of this qbed") from error


def _time(row: Row) -> int:
    return int(row["time_ns"])


class _Tail:
    """The growing files of one folder."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self._ports = port_names(plan)
        self._files = Growing(folder, len(plan.queues))
        self._interfaces = {
            (end.node, end.interface): self._ports[end.queue] for link in plan.links for end in (link.a, link.b)
        }

    def rows(self) -> Iterator[Row]:
        """New samples since the last call."""
        for run in self._files.runs():
            if run.kind == "samples":
                yield from self._queues(run.records)
            elif run.kind == "events":
                yield from self._packets(run.records)
        for _, rows in self._files.flows():
            yield from ({"sample": "flow", **row} for row in rows)
        for rows in self._files.interfaces():
            yield from map(self._interface, rows)

    def _interface(self, row: Row) -> Row:
        port = self._interfaces[row["node"], row["interface"]]
        lost = {name: int(row[name]) for name in _LOST}
        return {"sample": "interface", "port": port, "time_ns": int(row["time_ns"]), **lost}

    def _queues(self, records: Records) -> Iterator[Row]:
        for record in records:
            interval = int(record["interval_ns"])
            row: Row = {"sample": "queue", "port": self._ports[int(record["id"])], "time_ns": int(record["time_ns"])}
            row |= {"interval_ns": interval}
            row |= {f"mean_{unit}s": int(record[f"{unit}_ns"]) / interval if interval else None for unit in UNITS}
            yield row | {name: int(record[name]) for name in _QUEUE}

    def _packets(self, records: Records) -> Iterator[Row]:
        for record in records:
            row: Row = {"sample": "packet", "port": self._ports[int(record["id"])], "time_ns": int(record["time_ns"])}
            row |= {"op": OPERATIONS[int(record["op"])]}
            yield row | {name: int(record[name]) for name in _PACKET}
