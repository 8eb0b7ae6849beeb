# SPDX-License-Identifier: Apache-2.0
"""The points of a run that each sink has: `telemetry/` in the run folder, a file for each sink.

No point is kept twice: the cells' tables are the spool. They are durable and bounded as the results are. Each
line records how many rows of which table a sink has. After a line is lost in a crash, its points are sent again, as the
same bytes.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Any

from qbed.base.json_files import read_json, write_json
from qbed.live.points import Origin
from qbed.live.sinks import SinkError
from qbed.storage.identity import read_identity

FOLDER = "telemetry"
RUN = "run.json"


def origin_of(run: Path) -> Origin:
    """The origin of a run folder's points. The first call gives the run its name and its start."""
    file = run / FOLDER / RUN
    with suppress(OSError, ValueError, KeyError, TypeError):
        known = read_json(file)
        return Origin(str(known["campaign"]), str(known["run"]), int(known["begun_ns"]))
    begun = time.time_ns()
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(begun // 10**9))
    origin = Origin(str(read_identity(run)["name"]), f"{run.resolve().name}-{stamp}", begun)
    file.parent.mkdir(exist_ok=True)
    write_json(file, {"campaign": origin.campaign, "run": origin.run, "begun_ns": origin.begun_ns})
    return origin


def sinks_of(run: Path) -> list[str]:
    """The names of the sinks that points of a run were sent to."""
    names = []
    for file in sorted((run / FOLDER).glob("*.ndjson")):
        with suppress(ValueError, KeyError, TypeError, StopIteration), file.open() as lines:
            names.append(next(str(json.loads(line)["sink"]) for line in lines if '"sink"' in line))
    return names


class DeliveryLog:
    """The points that one sink has. `SinkError` if another process has this log open."""

    def __init__(self, run: Path, sink: str) -> None:
        self.rows: defaultdict[tuple[int, str], int] = defaultdict(int)
        """Numbers of rows by cell and table."""
        self.done: set[int] = set()
        """Cells with complete points."""
        self.size: int | None = None
        """The sink's size, if it reports one; None if it was never opened."""
        self.points = 0
        self.claims_digest: str | None = None
        """The checksum of the claims that were sent."""
        self.claim_parts: set[str] = set()
        """Measurements of claims that were sent, each as `CHECKSUM MEASUREMENT`."""
        path = run / FOLDER / f"{hashlib.sha256(sink.encode()).hexdigest()[:16]}.ndjson"
        self._file = path.open("ab", buffering=0)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SinkError(f"another process sends the points of {run} to {sink}") from None
        known = path.read_bytes()
        for line in known.split(b"\n"):
            with suppress(ValueError, KeyError, TypeError):  # the last line of a process that was killed
                self._take(json.loads(line))
        self._cut = known[-1:] not in (b"\n", b"")
        if not known or self._cut:
            self._put({"sink": sink})

    def _put(self, entry: dict[str, Any]) -> None:
        """Append a line. `OSError` if there is no room for all of it; the next line begins after the part."""
        line = (b"\n" if self._cut else b"") + json.dumps(entry).encode() + b"\n"
        written = self._file.write(line)
        if written:
            self._cut = written < len(line)
        if written != len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._file.name)

    def _take(self, entry: dict[str, Any]) -> None:
        self.points = int(entry.get("points", self.points))
        self.size = entry.get("size", self.size)
        if "rows" in entry:
            self.rows[int(entry["cell"]), str(entry["table"])] = int(entry["rows"])
        if entry.get("done"):
            self.done.add(int(entry["cell"]))
        if "claim_part" in entry:
            self.claim_parts.add(str(entry["claim_part"]))
        self.claims_digest = entry.get("claims", self.claims_digest)

    def close(self) -> None:
        self._file.close()

    def record_opened(self) -> None:
        """Record that the sink was opened."""
        if self.size is None:
            self.record({}, 0, 0)

    def record(self, entry: dict[str, Any], points: int, size: int | None) -> None:
        """Record that the sink took points. `entry`: the further fields of the line. `OSError`: nothing is recorded."""
        line = entry | {"points": self.points + points, "size": size}
        try:
            self._put(line)
        except OSError as error:
            error.filename = error.filename or self._file.name
            raise
        self._take(line)
