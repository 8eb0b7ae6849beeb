# SPDX-License-Identifier: Apache-2.0
"""The exporter: a process that sends a run's points to a sink while the cells run. No cell waits for it.

It reads the files that the cells write anyway, with nice 19 and on cores without cells if there are some, and holds one
batch at a time. While a sink takes nothing, nothing is read, and the run folder keeps the points
(`qbed.live.delivery_log`). After the end of the run the exporter continues as long as points are taken. Then it reports
what is left, which `qbed samples RUN` with the same sink sends later.
"""

from __future__ import annotations

import hashlib
import json
import math
import multiprocessing
import os
import random
import shutil
import signal
import socket
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from pathlib import Path

from qbed.base import crash_report
from qbed.base.errors import QbedError
from qbed.base.processes import end_with_parent
from qbed.base.terminal import shorten
from qbed.live import samples
from qbed.live.cells import SAMPLED, Cells, Piece, Running
from qbed.live.delivery_log import DeliveryLog, origin_of
from qbed.live.points import Origin, Points
from qbed.live.results import claim_points, machine_points, progress_points, run_points
from qbed.live.sinks import NotTakenError, Sink, SinkError
from qbed.live.sinks.influx import Influx
from qbed.live.sinks.ndjson import File
from qbed.storage.checksums import check_merged
from qbed.storage.run_folder import CLAIMS

POLL_S = 0.2
CELLS_A_ROUND = 20
"""Ended cells that are sent before the running cells are polled again."""
STOP_S = 3.0
"""How long a stopped run waits for its exporters to flush."""
FIRST_WAIT_S, LONGEST_WAIT_S = 0.25, 15.0
PATIENCE = "QBED_INFLUX_PATIENCE"
PATIENCE_S = 30.0
"""How long a sink may take nothing after the run until the exporter stops."""
MACHINE_EVERY_S = 1.0
MAX_MACHINE = 3_600
"""The most waiting points about the machine and the run's progress. The oldest are dropped: they are no results."""
WHOLE_RUN = -1
"""The number of the cell under which the delivery log records points of the whole run."""


@dataclass(frozen=True)
class Address:
    """A sink that can be made anew in another process."""

    kind: str
    where: str

    def __post_init__(self) -> None:
        patience()  # reports a bad value before the run starts

    def make(self) -> Sink:
        """`SinkError` if there is none."""
        return Influx(self.where) if self.kind == "influx" else File(Path(self.where))


@dataclass(frozen=True)
class Delivery:
    """The result of an export. `left`: cells whose points are incomplete at the sink; `crowded`: cells whose samples
    would be too many series; `why`: the sink's last error, if it refused points.
    """

    sink: str
    points: int
    left: int
    crowded: int
    why: str | None

    def describe(self) -> str:
        """The delivery as one sentence."""
        text = f"{self.points} points to {self.sink}"
        if self.crowded:
            text += f"; only the results of {self.crowded} cells: their samples would be too many series"
        if self.left:
            text += f"; NOT DELIVERED: those of {self.left} cells ({self.why})"
        return text


class SinkTimeoutError(QbedError):
    """The sink took nothing for too long."""


class RetryingSink:
    """Sends batches to a sink until it takes them. `patience`: how long it may take none, in seconds from when that is
    known; None: without limit.
    """

    def __init__(self, sink: Sink, patience: Callable[[], float | None]) -> None:
        self.sink = sink
        self.why: str | None = None
        self._patience = patience
        self._taken = 0.0
        self._limited: float | None = None

    def send(self, points: Points) -> int:
        """Send points, as the same bytes at each try; returns the sink's size. `SinkTimeoutError`."""
        body, wait_s = self.sink.encode(points), FIRST_WAIT_S
        while True:
            try:
                size = self.sink.write(body)
            except NotTakenError as error:
                self.why = str(error)
                self._wait(max(wait_s * random.uniform(0.5, 1.0), error.wait_s))
                wait_s = min(wait_s * 2, LONGEST_WAIT_S)
            else:
                self._taken = time.monotonic()
                return size

    def _wait(self, pause: float) -> None:
        until = time.monotonic() + pause
        while (now := time.monotonic()) < until:
            limit = self._patience()
            if limit is not None:
                self._limited = self._limited or now
                if now >= max(self._taken, self._limited) + limit:
                    raise SinkTimeoutError(self.why or "")
            time.sleep(min(POLL_S, until - now))


class Exporter:
    """Sends the points of one run to one sink. `cells`: how many the run has, as far as that is known."""

    def __init__(
        self, run: Path, sink: Sink, patience: Callable[[], float | None], machine: bool = True, cells: int = 0
    ) -> None:
        self._run, self._total = run, cells
        self._origin = origin_of(run)
        self._log = DeliveryLog(run, sink.name)
        sink.open(self._log.size)
        self._log.record_opened()
        self._sender = RetryingSink(sink, patience)
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
            with suppress(ValueError, QbedError):  # invalid samples are reported when the cell's tables are made
                for piece in stream.new(self._seen(cell)):
                    self._send(piece)
                    found = True
        return found

    def _finish(self, cell: int, folder: Path) -> None:
        try:
            for piece in self._cells.ended(cell, folder, self._seen(cell)):
                self._send(piece)
            self._log.record({"cell": cell, "done": True}, 0, self._log.size)
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
        self._log.record(entry, len(piece.points), size)

    def _claims(self) -> bool:
        """Send the claims once they are judged, and again after each new judgement."""
        try:
            content = (self._run / CLAIMS).read_bytes()
            digest = hashlib.sha256(content).hexdigest()
            if digest == self._log.claims_digest:
                return False
            check_merged(self._run, [CLAIMS])
        except (OSError, QbedError):
            return False
        verdicts = json.loads(content)
        points = claim_points(verdicts, self._origin) if verdicts else None
        size = self._sender.send(points) if points is not None else self._log.size
        self._log.record({"claims": digest}, len(verdicts), size)
        return True

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

    def delivery(self) -> Delivery:
        """The result so far."""
        _, ended = self._cells.look()
        left = len(ended.keys() - self._log.done)
        points = self._log.points - self._before
        return Delivery(self._sender.sink.name, points, left, len(self._cells.crowded), self._sender.why)


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


def deliver(run: Path, sink: Sink, patience_s: float | None = None) -> Delivery:
    """All points of a run folder's cells that the sink does not have yet."""
    wait_s = patience() if patience_s is None else patience_s
    exporter = Exporter(run, sink, lambda: wait_s, machine=False)
    with suppress(SinkTimeoutError):
        while exporter.round():
            pass
        exporter.conclude()
    return exporter.delivery()


def deliver_lab(lab: samples.Running, sink: Sink, *, follow: bool, patience_s: float | None = None) -> Delivery:
    """The samples of a lab that is up, from its beginning; `follow`: until it is not. It is one cell."""
    plan = samples.plan_of(lab)
    begun = (lab.folder / "plan.json").stat().st_mtime_ns
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(begun // 10**9))
    origin = Origin(plan.lab, f"{plan.lab}-{stamp}", begun)
    streams = [Running(plan, part, origin, lab=True) for part in lab.samples(plan).parts]
    wait_s = patience() if patience_s is None else patience_s
    alive, sent, left = lab.alive, 0, 0
    sender = RetryingSink(sink, lambda: None if follow and alive() else wait_s)
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


def patience() -> float:
    """The value of QBED_INFLUX_PATIENCE in seconds. `SinkError`."""
    text = os.environ.get(PATIENCE, str(PATIENCE_S))
    with suppress(ValueError):
        if 0 <= (seconds := float(text)) < math.inf:
            return seconds
    raise SinkError(f"{PATIENCE}: expected seconds, such as 30, got `{shorten(text, 60)}`")


@contextmanager
def exporting(
    run: Path,
    addresses: list[Address],
    done: Callable[[Delivery | str], None],
    cells_on: Collection[int] = (),
    cells: int = 0,
) -> Iterator[None]:
    """Export the points of a run to its sinks while the context lasts, and the rest at its end. `done` gets the result
    of each sink. A stopped run does not wait. `cells_on`: the cores of cells; exporters use the others, if any.
    `cells`: how many cells the run has.
    """
    exporters = [ExporterProcess(run, address, cells_on, cells) for address in addresses]
    wait_s: float | None = STOP_S
    try:
        yield
        wait_s = None
    finally:
        for exporter in exporters:
            exporter.send("end" if wait_s is None else "stop")
        for exporter in exporters:
            done(exporter.result(wait_s))


class ExporterProcess:
    """The run's handle of an exporter process."""

    def __init__(self, run: Path, address: Address, cells_on: Collection[int], cells: int = 0) -> None:
        context = multiprocessing.get_context("spawn")
        self._where = address.where
        self._pipe, child_end = context.Pipe()
        arguments = (child_end, run, address, os.getpid(), cells_on, cells)
        self._process = context.Process(target=_serve, args=arguments, name="qbed-exporter")
        resource_tracker.ensure_running()  # else the first process starts it, and that unblocks the signal
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        child_end.close()

    def send(self, command: str) -> None:
        with suppress(OSError):
            self._pipe.send(command)

    def result(self, wait_s: float | None) -> Delivery | str:
        found: Delivery | str = f"telemetry to {self._where} was not waited for"
        try:
            if self._pipe.poll(wait_s):
                found = self._pipe.recv()
        except (EOFError, OSError):
            found = f"telemetry to {self._where} ended: its process was killed"
        self._process.join(1)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        return found


def _serve(pipe: Connection, run: Path, address: Address, parent: int, cells_on: Collection[int], cells: int) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the run decides when the exporter ends
    if not end_with_parent(parent, signal.SIGKILL):
        return
    os.nice(19)
    if others := os.sched_getaffinity(0) - set(cells_on):
        os.sched_setaffinity(0, others)
    commands: list[str] = []

    def wait() -> float | None:
        while not commands and pipe.poll():
            commands.append(_received(pipe))
        return None if not commands else 0.0 if commands[0] == "stop" else patience()

    try:
        answer: Delivery | str = _export(Exporter(run, address.make(), wait, cells=cells), wait, pipe)
    except QbedError as error:
        answer = f"telemetry: {error}"
    except Exception as problem:
        answer = f"telemetry: {crash_report.explain(problem)}"
    with suppress(OSError):
        while not commands:  # the run continues without this exporter
            commands.append(_received(pipe))
        pipe.send(answer)


def _received(pipe: Connection) -> str:
    try:
        return str(pipe.recv())
    except (EOFError, OSError):
        return "stop"


def _export(exporter: Exporter, wait: Callable[[], float | None], pipe: Connection) -> Delivery:
    with suppress(SinkTimeoutError):
        while (left := wait()) != 0.0:
            if not exporter.round():
                if left is not None:
                    break
                pipe.poll(POLL_S)
        if left != 0.0:
            exporter.conclude()
    return exporter.delivery()
