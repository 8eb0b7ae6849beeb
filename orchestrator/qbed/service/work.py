# SPDX-License-Identifier: Apache-2.0
"""Runs a job as `qbed run` does, and writes events instead of terminal output."""

from __future__ import annotations

import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from qbed.base import crash_report
from qbed.base.errors import LabError, QbedError
from qbed.base.terminal import shorten
from qbed.config.reach import FOREIGN, TRUST
from qbed.live.exporter import Delivery
from qbed.live.flush_timeout import FLUSH_TIMEOUT, parse_flush_timeout
from qbed.live.sinks.address import addresses_of
from qbed.report import make_report  # noqa: F401 - loaded before there is a job
from qbed.runs.executor.local import LocalExecutor
from qbed.runs.experiment import RunOptions, RunResult, prepare, run_campaign
from qbed.runs.worker import Outcome
from qbed.service.events import append_events
from qbed.service.job_spec import STOPPED, UNWRITTEN, JobSpec
from qbed.service.jobs import LAB, RUN
from qbed.substrates import Limits, substrate

EVERY_S = 0.2
MESSAGES_MAX = 50
"""Limit on listed damaged files, differences and warnings, each."""


class EventScreen:
    """A `Screen` that writes events."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._progress_at = 0.0

    def write(self, event: str, **more: Any) -> None:
        append_events(self._place, {"event": event, **more})

    def refuse(self, messages: list[str]) -> None:
        """Write why the job cannot run. The client gets no path of the service's folder."""
        folder = str(self._place / LAB)
        self.write(
            "refused",
            messages=[
                shorten(text.replace(f"{folder}/", "").replace(folder, "the lab")) for text in messages[:MESSAGES_MAX]
            ],
        )

    def skipped(self, cells: int) -> None:
        self.write("skipped", cells=cells)

    def damaged(self, files: list[str]) -> None:
        if files:
            self.write("damaged", files=files[:MESSAGES_MAX], more=max(0, len(files) - MESSAGES_MAX))

    def total(self, cells: int) -> None:
        self.write("cells", total=cells)

    def waiting(self) -> None:
        self.write("waiting")  # the process of a killed service is still ending

    def discarded(self, difference: str) -> None:
        self.write("discarded", difference=difference)

    def obsolete(self, text: str) -> None:
        self.write("obsolete", text=text)

    def progress(self, finished: int, running: float) -> None:
        if (now := time.monotonic()) - self._progress_at >= EVERY_S:
            self._progress_at = now
            self.write("progress", finished=finished, running=round(running, 4))

    def outcome(self, outcome: Outcome) -> None:
        self._progress_at = 0.0
        if outcome.status != "complete":
            self.write("outcome", **(asdict(outcome) | {"error": outcome.error and shorten(outcome.error)}))

    def phase(self, name: str) -> None:
        self.write("phase", name=name)

    def flushing(self, text: str) -> None:
        self.write("flushing", text=text)

    def delivered(self, result: Delivery | str) -> None:
        self.write("delivered", text=result if isinstance(result, str) else result.describe())


def run_job(spec: JobSpec) -> int:
    """Run a job; returns the exit status."""
    place = Path(spec.place)
    screen = EventScreen(place)
    os.environ.pop(TRUST, None)
    if spec.foreign:
        os.environ[FOREIGN] = "1"
    if spec.trusted:
        os.environ[TRUST] = "1"
    try:
        return _run_job(spec, screen)
    except OSError:
        return UNWRITTEN


def _run_job(spec: JobSpec, screen: EventScreen) -> int:
    """Run the job and report its errors as events; `OSError` if none could be written."""
    try:
        return _execute(spec, screen)
    except LabError as error:
        screen.refuse(error.messages)
        return error.exit_status
    except QbedError as error:
        if error.exit_status != STOPPED:
            screen.refuse([str(error)])
        return error.exit_status
    except Exception as error:
        screen.refuse([crash_report.describe_system_error(error) or crash_report.explain(error)])
    return 1


def _execute(spec: JobSpec, screen: EventScreen) -> int:
    request = spec.request
    limits = Limits(request["cell_timeout"], request["stall_timeout"], request["cell_space"])
    # Only the owner's environment names a sink: a client's request opens no connection.
    sinks = addresses_of(os.environ.get("QBED_INFLUX"), os.environ.get("QBED_OTLP"))
    options = RunOptions(
        request["profile"], Path(spec.place) / RUN, request["seeds"], request["settings"], request["keep"], limits,
        request["on"], request["dilation"], store=request["store"],
        lock="compare" if request["locked"] else None, sinks=sinks,
        flush_timeout_s=parse_flush_timeout(os.environ.get(FLUSH_TIMEOUT)),
    )  # fmt: skip
    screen.write("phase", name="checking")
    experiment = prepare(Path(spec.lab), options)
    if experiment.warnings:
        screen.write("warnings", texts=[shorten(text) for text in experiment.warnings[:MESSAGES_MAX]])
    screen.total(len(experiment.task.matrix))
    cores = sorted(os.sched_getaffinity(0))
    workers = min(spec.cores or len(cores), substrate(request["on"]).cells_at_once or 1 << 20)
    assigned = [cores[i % len(cores)] for i in range(workers)]
    screen.write("phase", name="running")
    # No other run uses the job's run folder: results of another version of qbed in it may be replaced.
    outcome = run_campaign(experiment, LocalExecutor(assigned), screen, images=request["images"], fresh=True)
    screen.write("concluded", **concluded(outcome))
    return int(outcome.failed())


def concluded(outcome: RunResult) -> dict[str, Any]:
    """The fields of the event `concluded`."""
    return {
        "totals": asdict(outcome.totals),
        "verdicts": [verdict.model_dump() for verdict in outcome.verdicts],
        "problems": [shorten(text) for text in outcome.problems[:MESSAGES_MAX]],
        "differences": outcome.differences[:MESSAGES_MAX],
        "wall_s": round(outcome.wall_s, 3),
    }
