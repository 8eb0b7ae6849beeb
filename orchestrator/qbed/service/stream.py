# SPDX-License-Identifier: Apache-2.0
"""Server-sent events: what a job does, as lines come into its file, and what its queues do (`qbed.service.watch`).

Each viewer reads at its own pace from files that are written anyway: nothing is kept for it, nothing waits for it, and
one that is gone has cost what it has read.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from anyio import to_thread

from qbed.service.jobs import ATTEMPT, EVENTS, Row, parsed
from qbed.service.states import ENDED
from qbed.service.watch import PIECE_BYTES, Said, Watch

POLL_S, EAGER_S, HEARTBEAT_S = 0.1, 0.01, 15.0
_TAIL_BYTES = 64 << 10


def message(event: str, data: Any, at: int | None = None) -> bytes:
    """One event. `at`: what the viewer says as `Last-Event-ID` when it comes again."""
    identity = "" if at is None else f"id: {at}\n"
    return f"event: {event}\n{identity}data: {json.dumps(data, default=str, separators=(',', ':'))}\n\n".encode()


HEARTBEAT = b": still here\n\n"


async def job_events(place: Path, state: Callable[[], str], at: int, stopping: asyncio.Event) -> AsyncIterator[bytes]:
    """A job's events from an offset of its file on, until it has ended."""
    heard = time.monotonic()
    while not stopping.is_set():
        ended = state() in ENDED  # before the file is read: what ends a job comes last
        lines, at = await to_thread.run_sync(_lines, place / EVENTS, at) if _size(place / EVENTS) > at else ([], at)
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
            await asyncio.sleep(POLL_S)


def _size(file: Path) -> int:
    """In the loop's own thread: to look whether there is anything costs less than to have another do it."""
    with suppress(OSError):
        return file.stat().st_size
    return 0


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
        status = (place / EVENTS).stat()
        return dict(_latest(place / EVENTS, status.st_ino, status.st_size, status.st_mtime_ns))
    except FileNotFoundError:
        return {}


@lru_cache(256)
def _latest(file: Path, *_: int) -> Row:
    """The same of a file in one state: a page asks for fifty jobs every two seconds, most of which have ended."""
    with file.open("rb") as stream:
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(0, size - _TAIL_BYTES))
        data = stream.read()
    found: Row = {}
    for event in parsed(data.split(b"\n")):
        kind = str(event.get("event"))
        if kind == ATTEMPT:
            found.clear()
        found[kind] = event
    return found


async def samples(run: Path, state: Callable[[], str], stopping: asyncio.Event) -> AsyncIterator[bytes]:
    """What the queues of a job's cells do, the newest cell that runs at a time, until the job has ended."""
    heard, watch, ended = time.monotonic(), Watch(run), False
    try:
        while not stopping.is_set():
            said = await to_thread.run_sync(watch.look)
            if said:
                yield b"".join(message(event, data) for event, data in said)
                heard = time.monotonic()
            elif ended:  # and nothing came after that
                yield message("end", {})
                return
            else:
                ended = state() in ENDED
            if time.monotonic() - heard > HEARTBEAT_S:
                yield HEARTBEAT
                heard = time.monotonic()
            await _rest(watch, EAGER_S if watch.behind or ended else POLL_S)
    finally:
        watch.close()


async def _rest(watch: Watch, seconds: float) -> None:
    """Until it is time to look again, or the files that are awaited are there: to ask for those costs little."""
    until = time.monotonic() + seconds
    while watch.awaited and time.monotonic() < until:
        await asyncio.sleep(EAGER_S)
        if not watch.awaited:
            return
    await asyncio.sleep(max(0.0, until - time.monotonic()))


async def told(events: Iterator[Said], stopping: asyncio.Event) -> AsyncIterator[bytes]:
    """What is known already, as fast as a viewer takes it."""
    while not stopping.is_set():
        one = await to_thread.run_sync(next, events, None)
        if one is None:
            yield message("end", {})
            return
        yield message(*one)
