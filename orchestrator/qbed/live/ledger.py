# SPDX-License-Identifier: Apache-2.0
"""What of a run's points is where: `telemetry/` in the run folder, a file for each sink.

No point is kept twice: the cells' tables are the spool. They are durable and bounded as the results are, and a ledger
of lines says how many rows of which table a sink has. A line that a crash took, or cut, is points that are sent again,
and those are the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from qbed.json_files import read_json, write_json
from qbed.live.points import Origin
from qbed.results.identity import read_identity

FOLDER = "telemetry"
RUN = "run.json"


def origin_of(run: Path) -> Origin:
    """Whose points a run folder's are; the first who asks gives the run its name and its beginning."""
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


class Ledger:
    """What one sink has."""

    def __init__(self, run: Path, sink: str) -> None:
        self.rows: defaultdict[tuple[int, str], int] = defaultdict(int)
        """By cell and table."""
        self.done: set[int] = set()
        """Cells of which it has all."""
        self.size: int | None = None
        """How much it had, if it counts; None: it was never opened."""
        self.points = 0
        self.told: str | None = None
        """The checksum of the claims that it has."""
        path = run / FOLDER / f"{hashlib.sha256(sink.encode()).hexdigest()[:16]}.ndjson"
        known = path.read_bytes() if path.exists() else b""
        for line in known.split(b"\n"):
            with suppress(ValueError, KeyError, TypeError):  # the last one, of a process that was killed
                self._take(json.loads(line))
        self._file: TextIO = path.open("a")
        self._put({} if known[-1:] in (b"\n", b"") and known else {"sink": sink}, fresh=known[-1:] != b"\n")

    def _put(self, entry: dict[str, Any], *, fresh: bool = False) -> None:
        if entry:
            self._file.write(("\n" if fresh else "") + json.dumps(entry) + "\n")
            self._file.flush()

    def _take(self, entry: dict[str, Any]) -> None:
        self.points = int(entry.get("points", self.points))
        self.size = entry.get("size", self.size)
        if "rows" in entry:
            self.rows[int(entry["cell"]), str(entry["table"])] = int(entry["rows"])
        if entry.get("done"):
            self.done.add(int(entry["cell"]))
        self.told = entry.get("claims", self.told)

    def opened(self) -> None:
        """What is in the sink from now on is of ours."""
        if self.size is None:
            self.given({}, 0, 0)

    def given(self, entry: dict[str, Any], points: int, size: int | None) -> None:
        """The sink has so many points more; `entry`: what else is known now."""
        entry |= {"points": self.points + points, "size": size}
        self._take(entry)
        self._put(entry)
