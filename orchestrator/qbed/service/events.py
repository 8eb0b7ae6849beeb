# SPDX-License-Identifier: Apache-2.0
"""A job's events: a file of lines in JSON, to which the service and the job's process append."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from qbed.base.json_files import Row

EVENTS = "events.ndjson"
ATTEMPT = "attempt"
"""First event of an attempt: earlier events are those of earlier attempts."""
_TAIL_BYTES = 64 << 10


def append_events(place: Path, *events: Row) -> None:
    """Append to a job's events, with one write each: the service and the job's process write to the same file. An event
    that a full disk has cut remains as a separate line.
    """
    descriptor = os.open(place / EVENTS, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        for event in events:
            line = json.dumps(event, default=str).encode() + b"\n"
            size = os.fstat(descriptor).st_size
            if size and os.pread(descriptor, 1, size - 1) != b"\n":
                line = b"\n" + line
            if os.write(descriptor, line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    finally:
        os.close(descriptor)


def parsed(lines: Iterable[bytes]) -> Iterable[Row]:
    """Parse events. A line that a crash has cut is skipped."""
    for line in lines:
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict):
            yield event


def latest(place: Path) -> Row:
    """The last event of each kind since the job's process was started last, from the end of its file."""
    try:
        status = (place / EVENTS).stat()
        return dict(_latest(place / EVENTS, status.st_ino, status.st_size, status.st_mtime_ns))
    except FileNotFoundError:
        return {}


@lru_cache(256)
def _latest(file: Path, *_: int) -> Row:
    """The last events in a file of this size and time, cached: a page requests fifty jobs every two seconds."""
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
