# SPDX-License-Identifier: Apache-2.0
"""An exporter as a process beside the cells of a run. No cell waits for it, and the run's end waits only so long.

The process has nice 19 and uses cores without cells if there are some. The run sends it one command: the seconds that
are left. From then on it reports its delivery every half second, and it stops between two batches when they are over.
The run kills a process that does not stop: the delivery log has each batch that the sink took.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from pathlib import Path

from qbed.base import crash_report
from qbed.base.errors import QbedError
from qbed.base.processes import end_with_parent
from qbed.live.exporter import POLL_S, Delivery, Exporter, SinkTimeoutError
from qbed.live.flush_timeout import FLUSH_S
from qbed.live.sinks.address import Address

STOP_S = 2.0
"""How long an exporter may take to stop when its time is over."""
REPORT_S = 0.5
SHOWN_AFTER_S = 1.0


@contextmanager
def exporting(
    run: Path,
    addresses: list[Address],
    done: Callable[[Delivery | str], None],
    cells_on: Collection[int] = (),
    cells: int = 0,
    *,
    flush_s: float = FLUSH_S,
    flushing: Callable[[str], None] = lambda _: None,
) -> Iterator[None]:
    """Export the points of a run to its sinks while the context lasts, and the rest at its end, for `flush_s`.

    `done` gets the result of each sink, `flushing` a line of progress. A stopped run does not wait, and Ctrl-C ends the
    wait. `cells_on`: the cores of cells; exporters use the others, if any. `cells`: how many cells the
    run has.
    """
    exporters = [ExporterProcess(run, address, cells_on, cells) for address in addresses]
    left_s = 0.0
    try:
        yield
        left_s = flush_s
    finally:
        for exporter in exporters:
            exporter.end_in(left_s)
        until = time.monotonic() + left_s
        for exporter in exporters:
            try:
                result = exporter.result(until, flushing)
            except KeyboardInterrupt:
                until = time.monotonic() - STOP_S
                result = exporter.result(until, flushing)
            done(result)


class ExporterProcess:
    """The run's handle of an exporter process."""

    def __init__(self, run: Path, address: Address, cells_on: Collection[int], cells: int = 0) -> None:
        context = multiprocessing.get_context("spawn")
        self._where = address.where
        self._last: Delivery | str = f"telemetry to {self._where} was not waited for"
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

    def end_in(self, seconds: float) -> None:
        with suppress(OSError):
            self._pipe.send(seconds)

    def result(self, until: float, flushing: Callable[[str], None]) -> Delivery | str:
        """The result of an exporter that has time until `until`. One that does not stop then is killed."""
        shown_at = time.monotonic()
        try:
            while self._pipe.poll(max(0.0, until + STOP_S - time.monotonic())):
                final, self._last = self._pipe.recv()
                if final or isinstance(self._last, str):
                    break
                now = time.monotonic()
                if now - shown_at >= SHOWN_AFTER_S:
                    shown_at = now
                    flushing(_describe(self._last, until - now))
        except (EOFError, OSError):
            self._last = f"telemetry to {self._where} ended: its process was killed"
        self._process.join(0.5)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        return self._last


def _describe(delivery: Delivery, left_s: float) -> str:
    why = f" ({delivery.why})" if delivery.why else ""
    return (
        f"telemetry: sending to {delivery.sink} for up to {max(0.0, left_s):.0f} s more:"
        f" {delivery.points} points sent, {delivery.left} cells left{why}; Ctrl-C ends the wait"
    )


def _serve(pipe: Connection, run: Path, address: Address, parent: int, cells_on: Collection[int], cells: int) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the run decides when the exporter ends
    if not end_with_parent(parent, signal.SIGKILL):
        return
    os.nice(19)
    if others := os.sched_getaffinity(0) - set(cells_on):
        os.sched_setaffinity(0, others)
    control = _Control(pipe)
    try:
        exporter = control.exporter = Exporter(run, address.make(), control.expired, cells=cells)
        _export(exporter, control)
        answer: Delivery | str = exporter.delivery()
    except QbedError as error:
        answer = f"telemetry: {error}"
    except Exception as problem:
        answer = f"telemetry: {crash_report.explain(problem)}"
    control.finish(answer)


class _Control:
    """The run's command to this exporter, and the exporter's reports, in a thread."""

    def __init__(self, pipe: Connection) -> None:
        self.exporter: Exporter | None = None
        self.ending = threading.Event()
        self._pipe = pipe
        self._deadline = float("inf")
        self._finished = threading.Event()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def expired(self, _waited_s: float = 0.0) -> bool:
        return time.monotonic() >= self._deadline

    def _listen(self) -> None:
        try:
            left_s = float(self._pipe.recv())
        except (EOFError, OSError):
            left_s = 0.0
        self._deadline = time.monotonic() + left_s
        self.ending.set()
        while not self._finished.wait(REPORT_S):
            if self.exporter is not None:
                with suppress(OSError):
                    self._pipe.send((False, self.exporter.delivery()))

    def finish(self, answer: Delivery | str) -> None:
        """Send the result after the run's command."""
        self.ending.wait()  # the run continues without an exporter that failed
        self._finished.set()
        self._thread.join()
        with suppress(OSError):
            self._pipe.send((True, answer))


def _export(exporter: Exporter, control: _Control) -> None:
    with suppress(SinkTimeoutError):
        while not control.expired():
            ending = control.ending.is_set()
            if not exporter.round():
                if ending:
                    exporter.conclude()
                    break
                control.ending.wait(POLL_S)
