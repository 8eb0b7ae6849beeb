# SPDX-License-Identifier: Apache-2.0
"""The exporter sends a run's points to a sink, while the cells run (`qbed.live.exporter_process`) or later.

It reads the files that the cells write anyway, and holds one batch at a time. While a sink takes nothing, nothing is
read, and the run folder keeps the points (`qbed.live.delivery_log`). `qbed samples RUN --send` sends what is left.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import socket
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from qbed.base.crash_report import describe_os_error
from qbed.base.errors import QbedError
from qbed.base.json_files import Row
from qbed.live import samples
from qbed.live.cells import SAMPLED, Cells, Piece, Running
from qbed.live.claims import claim_points
from qbed.live.delivery_log import FOLDER, DeliveryLog, origin_of
from qbed.live.points import Origin, Points
from qbed.live.results import machine_points, progress_points, run_points
from qbed.live.sinks import NotTakenError, Sink, SinkError
from qbed.storage.checksums import check_merged
from qbed.storage.run_folder import CLAIMS

POLL_S = 0.2
CELLS_A_ROUND = 20
"""Ended cells that are sent before the running cells are polled again."""
FIRST_WAIT_S, LONGEST_WAIT_S = 0.25, 15.0
PATIENCE_S = 30.0
"""How long a sink may take nothing until `deliver` stops."""
SHOW_EVERY_S = 5.0
MACHINE_EVERY_S = 1.0
MAX_MACHINE = 3_600
"""The most waiting points about the machine and the run's progress. The oldest are dropped: they are no results."""
WHOLE_RUN = -1
"""The number of the cell under which the delivery log records points of the whole run."""


@dataclass(frozen=True)
class Delivery:
    """The result of an export. `left`: cells whose points are incomplete at the sink; `claims_left`: whether claims
    are; `crowded`: cells whose samples would be too many series; `why`: the sink's last error, if it refused points.
    """

    sink: str
    points: int
    left: int
    crowded: int
    why: str | None
    claims_left: bool = False

    @property
    def complete(self) -> bool:
        """Whether the sink has all points."""
        return not self.left and not self.claims_left

    def describe(self) -> str:
        """The delivery as one sentence."""
        text = f"{self.points} points to {self.sink}"
        if self.crowded:
            text += f"; only the results of {self.crowded} cells: their samples would be too many series"
        if not self.complete:
            left = f"those of {self.left} cells" if self.left else "the claims"
            text += f"; NOT DELIVERED: {left} ({self.why or 'there was no time left'})"
        return text


class SinkTimeoutError(QbedError):
    """The sink took nothing for too long, or the export had to end."""


class RetryingSink:
    """Sends batches to a sink until it takes them. `expired`: whether to stop, called with the seconds for which a
    batch is not taken or not recorded.
    """

    def __init__(self, sink: Sink, expired: Callable[[float], bool]) -> None:
        self.sink = sink
        self.why: str | None = None
        self._expired = expired

    def send(self, points: Points) -> int:
        """Send points, as the same bytes at each try; returns the sink's size. `SinkTimeoutError`."""
        self._check(0.0)
        begun = time.monotonic()
        body, wait_s = self.sink.encode(points), FIRST_WAIT_S
        while True:
            try:
                return self.sink.write(body)
            except NotTakenError as error:
                self.why = str(error)
                self._wait(max(wait_s * random.uniform(0.5, 1.0), error.wait_s), begun)
                wait_s = min(wait_s * 2, LONGEST_WAIT_S)

    def record(self, write: Callable[[], None]) -> None:
        """Record a batch that the sink took, once the disk has room. `SinkTimeoutError`."""
        begun = time.monotonic()
        while True:
            try:
                return write()
            except OSError as error:
                self.why = describe_os_error(error)
                self._wait(FIRST_WAIT_S, begun)

    def _wait(self, pause: float, begun: float) -> None:
        until = time.monotonic() + pause
        while (now := time.monotonic()) < until:
            self._check(now - begun)
            time.sleep(min(POLL_S, until - now))

    def _check(self, waited_s: float) -> None:
        if self._expired(waited_s):
            raise SinkTimeoutError(self.why or "")


class Exporter:
    """Sends the points of one run to one sink. `cells`: how many the run has, as far as that is known."""

    def __init__(
        self, run: Path, sink: Sink, expired: Callable[[float], bool], machine: bool = True, cells: int = 0
    ) -> None:
        self._run, self._total = run, cells
        try:
            self._origin = origin_of(run)
            self._log = DeliveryLog(run, sink.name)
            sink.open(self._log.size)
            self._log.record_opened()
        except OSError as error:
            error.filename = error.filename or run / FOLDER
            raise SinkError(f"no points to {sink.name}: {describe_os_error(error)}") from error
        self._sender = RetryingSink(sink, expired)
        self._cells = Cells(run, self._origin)
        self._running: dict[int, Running] = {}
        self._machine: deque[Points] | None = deque(maxlen=MAX_MACHINE) if machine else None
        self._measured = 0.0
        self._newest: int | None = None
        self._described = False
        self._begun, self._ended_before = time.monotonic(), len(self._cells.look()[1])
        self._before = self._log.points
        self._damaged: set[int] = set()

    def round(self) -> bool:
        """Send the points of running cells, then of ended cells; returns whether there were any."""
        running, ended = self._cells.look()
        self._describe_run()
        for gone in self._running.keys() - running:
            self._running.pop(gone).close()
        found = False
        open_cells = sorted(ended.keys() - self._log.done - self._damaged)
        self._measure(len(running), len(ended), len(open_cells))
        followed = running & {cell for (cell, table), rows in self._log.rows.items() if rows and table in SAMPLED}
        self._newest = max(followed or self._log.done, default=self._newest)
        for cell in sorted(running):
            found = self._follow(cell) or found
        for cell in open_cells[:CELLS_A_ROUND]:
            self._finish(cell, ended[cell])
            found = True
        return self._claims() or found

    def conclude(self) -> None:
        """Send how far the run is, after the last round."""
        ended = len(self._cells.look()[1])
        self._newest = max(self._log.done, default=None)
        if self._machine is not None:
            self._sender.send(self._progress(0, ended, time.time_ns()))
        elif self._log.rows[WHOLE_RUN, "progress"] != ended:
            points = self._progress(0, ended, self._origin.begun_ns + 1 + ended)
            self._send(Piece(points, WHOLE_RUN, "progress", ended))

    def _progress(self, running: int, ended: int, at_ns: int) -> Points:
        cells, done = max(self._total, ended + running), ended - self._ended_before
        left_s = (time.monotonic() - self._begun) / done * (cells - ended) if done else None
        numbers = {"cells": cells, "cells_ended": ended, "cells_running": running}
        return progress_points(
            numbers | {"left_s": 0.0 if ended == cells else left_s}, self._newest, self._origin, at_ns
        )

    def _describe_run(self) -> None:
        if self._described:
            return
        seen = self._log.rows[WHOLE_RUN, "run"]
        points = [*run_points(self._cells.axes, self._cells.parameters, self._origin)]
        for number, described in enumerate(points[seen:], seen + 1):
            self._send(Piece(described, WHOLE_RUN, "run", number))
        self._described = True

    def _follow(self, cell: int) -> bool:
        stream = self._running.get(cell) or self._cells.running(cell)
        if stream is None:
            return False
        self._running[cell] = stream
        found = False
        if self._cells.fits(cell, len(stream.queues)):
            try:
                for piece in stream.new(self._seen(cell)):
                    self._send(piece)
                    found = True
            except SinkTimeoutError:
                raise
            except (ValueError, QbedError):
                pass  # invalid samples are reported when the cell's tables are made
        return found

    def _finish(self, cell: int, folder: Path) -> None:
        try:
            for piece in self._cells.ended(cell, folder, self._seen(cell)):
                self._send(piece)
            self._record({"cell": cell, "done": True}, 0, self._log.size)
        except SinkTimeoutError:
            raise
        except (FileNotFoundError, QbedError) as error:
            if folder.exists():  # else it is being run again
                self._damaged.add(cell)
                self._sender.why = str(error)

    def _seen(self, cell: int) -> dict[str, int]:
        return {table: rows for (number, table), rows in self._log.rows.items() if number == cell}

    def _send(self, piece: Piece) -> None:
        size = self._sender.send(piece.points) if len(piece.points) else self._log.size
        entry = {"cell": piece.cell, "table": piece.table, "rows": piece.rows}
        self._record(entry, len(piece.points), size)

    def _record(self, entry: Row, points: int, size: int | None) -> None:
        self._sender.record(lambda: self._log.record(entry, points, size))

    def _claims(self) -> bool:
        """Send the claims once they are judged, and again after each new judgement."""
        content, digest = self._judged()
        if digest in (None, self._log.claims_digest):
            return False
        try:
            check_merged(self._run, [CLAIMS])
        except (OSError, QbedError):
            return False
        verdicts = json.loads(content)
        *parts, last = claim_points(verdicts, self._origin) if verdicts else (None,)
        for points in parts:
            part = f"{digest} {points.measurement}"
            if part not in self._log.claim_parts:
                self._record({"claim_part": part}, len(points), self._sender.send(points))
        size = self._sender.send(last) if last is not None else self._log.size
        self._record({"claims": digest}, 0 if last is None else len(last), size)
        return True

    def _judged(self) -> tuple[bytes, str | None]:
        """The content of the run's claims and its checksum; None if they are not judged yet."""
        try:
            content = (self._run / CLAIMS).read_bytes()
        except OSError:
            return b"", None
        return content, hashlib.sha256(content).hexdigest()

    def _measure(self, running: int, ended: int, waiting: int) -> None:
        """Send measurements of the machine once a second."""
        now = time.monotonic()
        if self._machine is None or now - self._measured < MACHINE_EVERY_S:
            return
        self._measured = now
        numbers = {"cells_running": running, "cells_ended": ended, "cells_waiting": waiting, **_machine(self._run)}
        now_ns = time.time_ns()
        self._machine.append(machine_points(numbers, socket.gethostname(), self._origin, now_ns))
        self._machine.append(self._progress(running, ended, now_ns))
        while self._machine:
            self._sender.send(self._machine[0])
            self._machine.popleft()

    def close(self) -> None:
        """Let another process send the points of this run to this sink."""
        self._log.close()

    def delivery(self) -> Delivery:
        """The result so far."""
        _, ended = self._cells.look()
        left = len(ended.keys() - self._log.done)
        points, why = self._log.points - self._before, self._sender.why
        claims_left = self._judged()[1] not in (None, self._log.claims_digest)
        return Delivery(self._sender.sink.name, points, left, len(self._cells.crowded), why, claims_left)


def _machine(run: Path) -> dict[str, float]:
    load = os.getloadavg()[0]
    memory = {}
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, value = line.partition(":")
        memory[name] = int(value.split()[0]) * 1024
    with Path("/proc/stat").open() as stat:
        steal = int(stat.readline().split()[8]) / os.sysconf("SC_CLK_TCK")
    return {
        "load": load,
        "cores": len(os.sched_getaffinity(0)),
        "memory_free_bytes": memory.get("MemAvailable", 0),
        "disk_free_bytes": shutil.disk_usage(run).free,
        "stolen_s": steal,
    }


def deliver(
    run: Path, sink: Sink, patience_s: float = PATIENCE_S, show: Callable[[Delivery], None] = lambda _: None
) -> Delivery:
    """Send all points of a run folder's cells that the sink does not have yet, until it takes nothing for so long.

    `show` gets the result so far every few seconds.
    """
    shown_at = time.monotonic()

    def expired(waited_s: float) -> bool:
        nonlocal shown_at
        if time.monotonic() - shown_at >= SHOW_EVERY_S:
            shown_at = time.monotonic()
            show(exporter.delivery())
        return waited_s > patience_s

    exporter = Exporter(run, sink, expired, machine=False)
    try:
        while exporter.round():
            pass
        exporter.conclude()
    except SinkTimeoutError:
        pass
    finally:
        exporter.close()
    return exporter.delivery()


def deliver_lab(lab: samples.Running, sink: Sink, *, follow: bool, patience_s: float = PATIENCE_S) -> Delivery:
    """The samples of a lab that is up, from its beginning; `follow`: until it is not. It is one cell."""
    plan = samples.plan_of(lab)
    begun = (lab.folder / "plan.json").stat().st_mtime_ns
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(begun // 10**9))
    origin = Origin(plan.lab, f"{plan.lab}-{stamp}", begun)
    streams = [Running(plan, part, origin, lab=True) for part in lab.samples(plan).parts]
    alive, sent, left = lab.alive, 0, 0
    ended_at: float | None = None

    def expired(waited_s: float) -> bool:
        nonlocal ended_at
        if not waited_s or (follow and alive()):
            return False
        ended_at = ended_at or time.monotonic()
        return min(waited_s, time.monotonic() - ended_at) > patience_s

    sender = RetryingSink(sink, expired)
    sink.open(None)
    progress = {"cells": 1, "cells_ended": 0, "cells_running": 1}
    try:
        for points in (*run_points({}, [], origin), progress_points(progress, 0, origin, time.time_ns())):
            sender.send(points)
        while True:
            last = not follow or not alive()
            for piece in (piece for stream in streams for piece in stream.new({})):
                sender.send(piece.points)
                sent += len(piece.points)
            if last:
                break
            time.sleep(POLL_S)
    except SinkTimeoutError:
        left = 1
    finally:
        for stream in streams:
            stream.close()
    return Delivery(sink.name, sent, left, 0, sender.why)
