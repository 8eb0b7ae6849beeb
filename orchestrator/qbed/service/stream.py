# SPDX-License-Identifier: Apache-2.0
"""Server-sent events: what a job does, as lines come into its file, and what its queues do, from a cell's own files.

Each viewer reads at its own pace from files that are written anyway: nothing is kept for it, nothing waits for it, and
one that is gone has cost what it has read. A queue's samples are put together to `BINS` columns of the cell's duration,
each with minimum, mean and maximum, so that what a viewer gets has a bound, whatever the lab samples.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from io import BufferedReader
from pathlib import Path
from typing import Any

import numpy as np
from anyio import to_thread

from qbed.errors import QbedError
from qbed.network.frames import ETHERNET_BYTES
from qbed.plan.model import Plan
from qbed.plan.ports import port_names
from qbed.results.identity import ran_on
from qbed.service.jobs import EVENTS, Row, parsed
from qbed.service.states import ENDED
from qbed.substrates import substrate
from qbed.telemetry.taps import Histogram, Records, TapTail

POLL_S, EAGER_S, HEARTBEAT_S = 0.1, 0.01, 15.0
PIECE_BYTES = 1 << 20
BINS = 500
MOST_FLOWS = 100
"""Of which a viewer gets the rates: the first that say one."""
_TAIL_BYTES = 64 << 10
FLOWS = {"tcpinfo.ndjson": "delivery_bps", "rates.ndjson": "rate_bps"}


def message(event: str, data: Any, at: int | None = None) -> bytes:
    """One event. `at`: what the viewer says as `Last-Event-ID` when it comes again."""
    identity = "" if at is None else f"id: {at}\n"
    return f"event: {event}\n{identity}data: {json.dumps(data, default=str)}\n\n".encode()


HEARTBEAT = b": still here\n\n"


async def job_events(place: Path, state: Callable[[], str], at: int, stopping: asyncio.Event) -> AsyncIterator[bytes]:
    """A job's events from an offset of its file on, until it has ended."""
    heard = time.monotonic()
    while not stopping.is_set():
        ended = state() in ENDED  # before the file is read: what ends a job comes last
        lines, at = await to_thread.run_sync(_lines, place / EVENTS, at)
        for line, after in lines:
            for event in parsed([line]):
                yield message(str(event.get("event")), event, after)
                heard = time.monotonic()
        if ended and not lines:
            yield message("end", {}, at)
            return
        if time.monotonic() - heard > HEARTBEAT_S:
            yield HEARTBEAT
            heard = time.monotonic()
        if not lines:
            await _rest(stopping, POLL_S)


async def _rest(stopping: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(stopping.wait(), seconds)


def _lines(file: Path, at: int) -> tuple[list[tuple[bytes, int]], int]:
    """Whole lines from an offset on, each with the offset behind it; a piece of them."""
    try:
        with file.open("rb") as stream:
            stream.seek(at)
            data = stream.read(PIECE_BYTES)
    except FileNotFoundError:
        return [], at
    found = []
    for line in data.splitlines(keepends=True):
        if line.endswith(b"\n"):
            at += len(line)
            found.append((line, at))
    return found, at


def latest(place: Path) -> Row:
    """The last event of each kind since the job's process was started last, from the end of its file."""
    try:
        with (place / EVENTS).open("rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, size - _TAIL_BYTES))
            data = stream.read()
    except FileNotFoundError:
        return {}
    found: Row = {}
    for event in parsed(data.split(b"\n")):
        kind = str(event.get("event"))
        if kind == "state" and event.get("state") in ("queued", "running"):
            found.clear()
        found[kind] = event
    return found


async def samples(run: Path, state: Callable[[], str], stopping: asyncio.Event) -> AsyncIterator[bytes]:
    """What the queues of a job's cells do, the newest cell that runs at a time, until the job has ended."""
    heard, watch = time.monotonic(), Watch(run)
    try:
        while not stopping.is_set():
            ended = state() in ENDED
            said = await to_thread.run_sync(watch.look)
            for one in said:
                yield one
                heard = time.monotonic()
            if ended and not said:
                yield message("end", {})
                return
            if time.monotonic() - heard > HEARTBEAT_S:
                yield HEARTBEAT
                heard = time.monotonic()
            await _rest(stopping, EAGER_S if watch.eager else POLL_S)
    finally:
        watch.close()


class Watch:
    """Follows the cells of a run folder."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self._cell: _Cell | None = None

    @property
    def eager(self) -> bool:
        """Whether files are still to come: a short cell is over before a viewer would look again, and they are gone."""
        return self._cell is not None and self._cell.awaited

    def look(self) -> list[bytes]:
        """What is new."""
        if self._cell is None:
            self._cell = self._newest()
            if self._cell is None:
                return []
            return [message("cell", self._cell.described())]
        gone = self._cell.gone  # before its files are read: they are whole then
        try:
            said = self._cell.look()
        except (QbedError, ValueError, KeyError):  # a guest that was killed in the middle of a record
            said, gone = [], True
        if gone and not said:
            number = self._cell.number
            self.close()
            return [message("cell-end", {"cell": number})]
        return said

    def _newest(self) -> _Cell | None:
        with suppress(OSError, QbedError, ValueError):
            works = sorted((self._run / "cells").glob("*.tmp/work"), key=lambda path: path.stat().st_mtime)
            if works:
                return _Cell(self._run, works[-1])
        return None

    def close(self) -> None:
        if self._cell is not None:
            self._cell.close()
        self._cell = None


class _Cell:
    """A cell that runs. Its files stay open: they can be read to their end when it has ended and they are gone."""

    def __init__(self, run: Path, work: Path) -> None:
        self.number = int(work.parent.name.removesuffix(".tmp"))
        self._work = work
        self._inode = work.stat().st_ino
        self._plan = Plan.loads((work / "plan.json").read_bytes())
        found = substrate(ran_on(run).name).samples(work, self._plan)
        self._clock = found.clock
        self._width = max(1, -(-self._plan.duration_ns // BINS))
        self._tails = [(_File(part / "taps.bin"), TapTail(len(self._plan.queues))) for part in found.parts]
        self._lines = [(_File(part / name), field) for part in found.parts for name, field in FLOWS.items()]
        self._rests = [b""] * len(self._lines)
        self._flows: set[int] = set()

    @property
    def gone(self) -> bool:
        """Whether the cell has ended: its folder is renamed, or another cell's."""
        try:
            return self._work.stat().st_ino != self._inode
        except OSError:
            return True

    @property
    def awaited(self) -> bool:
        """Whether the samples of queues have no file yet."""
        there = [file.there() for file, _ in (*self._tails, *self._lines)]
        return not all(there[: len(self._tails)])

    def described(self) -> Row:
        """What a viewer needs to know before the samples."""
        plan = self._plan
        names = [node.name for node in plan.nodes]
        links = [
            {
                "a": link.a.node,
                "b": link.b.node,
                "queues": [link.a.queue, link.b.queue],
                "rate_bps": min(link.a.rate_bps, link.b.rate_bps),
                "frame_bytes": link.mtu + ETHERNET_BYTES + link.a.overhead_bytes,
            }
            for link in plan.links
        ]
        return {
            "cell": self.number, "lab": plan.lab, "duration_ns": plan.duration_ns, "bin_ns": self._width,
            "clock": self._clock, "queues": port_names(plan), "nodes": names,
            "kinds": [node.kind for node in plan.nodes], "links": links,
        }  # fmt: skip

    def look(self) -> list[bytes]:
        """What has come since the last time: at most a piece of each file."""
        said = []
        for file, tail in self._tails:
            runs = [
                run.records
                for run in tail.feed(file.more())
                if not isinstance(run, Histogram) and run.kind == "samples"
            ]
            if runs and (columns := binned(np.concatenate(runs), self._width)):
                said.append(message("queues", columns))
        for at, (file, field) in enumerate(self._lines):
            *lines, self._rests[at] = (self._rests[at] + file.more()).split(b"\n")
            if rates := self._rates(lines, field):
                said.append(message("flows", rates))
        return said

    def _rates(self, lines: list[bytes], field: str) -> Row:
        """Each flow's last rate of each column."""
        last: dict[tuple[int, int], float] = {}
        for row in parsed(lines):
            flow, rate = int(row["flow"]), row.get(field)
            if flow in self._flows or len(self._flows) < MOST_FLOWS:
                self._flows.add(flow)
                if rate is not None:
                    last[flow, int(row["time_ns"]) // self._width] = rate
        columns = {"flow": [flow for flow, _ in last], "bin": [at for _, at in last], "bps": [*last.values()]}
        return columns if last else {}

    def close(self) -> None:
        for file, _ in (*self._tails, *self._lines):
            file.close()


class _File:
    """A file that grows, from the moment it is there."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stream: BufferedReader | None = None

    def there(self) -> bool:
        """Whether it is; from now on it stays open."""
        if self._stream is None:
            with suppress(OSError):
                self._stream = self._path.open("rb")
        return self._stream is not None

    def more(self) -> bytes:
        """A piece of what is new."""
        return self._stream.read(PIECE_BYTES) if self.there() and self._stream else b""

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()


def binned(records: Records, width_ns: int) -> dict[str, list[Any]]:
    """Samples by queue and column: the least and the most bytes in the queue, their mean, packets that left it, were
    dropped and marked. A column that comes in two pieces is said twice: whoever reads it puts them together.
    """
    records = records[records["interval_ns"] > 0]
    if not len(records):
        return {}
    column = np.maximum(records["time_ns"] - 1, 0) // width_ns  # a sample's time is its end
    key = records["id"].astype(np.int64) << 32 | column
    order = np.argsort(key, kind="stable")
    sorted_, begins = records[order], np.flatnonzero(np.diff(key[order], prepend=-1))
    time_ns = np.add.reduceat(sorted_["interval_ns"], begins)
    sums = {name: np.add.reduceat(sorted_[name].astype(np.int64), begins) for name in ("dequeued", "dropped", "marked")}
    keys = key[order][begins]
    return {
        "queue": (keys >> 32).tolist(),
        "bin": (keys & 0xFFFFFFFF).tolist(),
        "ns": time_ns.tolist(),
        "min": np.minimum.reduceat(sorted_["min_bytes"], begins).tolist(),
        "mean": (np.add.reduceat(sorted_["byte_ns"], begins) / time_ns).round(1).tolist(),
        "max": np.maximum.reduceat(sorted_["max_bytes"], begins).tolist(),
        **{name: values.tolist() for name, values in sums.items()},
    }
