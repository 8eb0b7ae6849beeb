# SPDX-License-Identifier: Apache-2.0
"""Server-sent events: a job's events from its file, and the samples of its queues (`qbed.live.cell_events`).

Each viewer reads at its own pace from files that are written anyway. Nothing is buffered for it, and nothing waits for
it.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from anyio import to_thread

from qbed.live.cell_events import CellTail, Event
from qbed.service.events import EVENTS, parsed
from qbed.service.states import ENDED
from qbed.telemetry.tail import PIECE_BYTES

POLL_S, EAGER_S, HEARTBEAT_S = 0.1, 0.01, 15.0


def message(event: str, data: Any, at: int | None = None) -> bytes:
    """One event. `at`: the viewer's `Last-Event-ID` when it connects again."""
    identity = "" if at is None else f"id: {at}\n"
    return f"event: {event}\n{identity}data: {json.dumps(data, default=str, separators=(',', ':'))}\n\n".encode()


HEARTBEAT = b": still here\n\n"


async def job_events(place: Path, state: Callable[[], str], at: int, stopping: asyncio.Event) -> AsyncIterator[bytes]:
    """A job's events from an offset of its file on, until it has ended."""
    sent_at = time.monotonic()
    while not stopping.is_set():
        ended = state() in ENDED  # before the file is read: what ends a job comes last
        lines, at = await to_thread.run_sync(_lines, place / EVENTS, at) if _size(place / EVENTS) > at else ([], at)
        for line, after in lines:
            for event in parsed([line]):
                yield message(str(event.get("event")), event, after)
                sent_at = time.monotonic()
        if ended and not lines:
            yield message("end", {}, at)
            return
        if time.monotonic() - sent_at > HEARTBEAT_S:
            yield HEARTBEAT
            sent_at = time.monotonic()
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


async def samples(run: Path, state: Callable[[], str], stopping: asyncio.Event) -> AsyncIterator[bytes]:
    """The samples of a job's newest running cell, until the job has ended."""
    sent_at, tail, ended = time.monotonic(), CellTail(run), False
    try:
        while not stopping.is_set():
            events = await to_thread.run_sync(tail.poll)
            if events:
                yield b"".join(message(event, data) for event, data in events)
                sent_at = time.monotonic()
            elif ended:  # and nothing came after that
                yield message("end", {})
                return
            else:
                ended = state() in ENDED
            if time.monotonic() - sent_at > HEARTBEAT_S:
                yield HEARTBEAT
                sent_at = time.monotonic()
            await _rest(tail, EAGER_S if tail.behind or ended else POLL_S)
    finally:
        tail.close()


async def _rest(tail: CellTail, seconds: float) -> None:
    """Wait until the next poll is due or the awaited files exist; a test of whether they exist is cheap."""
    until = time.monotonic() + seconds
    while tail.awaited and time.monotonic() < until:
        await asyncio.sleep(EAGER_S)
        if not tail.awaited:
            return
    await asyncio.sleep(max(0.0, until - time.monotonic()))


async def replay(events: Iterator[Event], stopping: asyncio.Event) -> AsyncIterator[bytes]:
    """Send events as fast as the viewer receives them."""
    while not stopping.is_set():
        event = await to_thread.run_sync(next, events, None)
        if event is None:
            yield message("end", {})
            return
        yield message(*event)
