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
from qbed.live.exporter import Address, Delivery
from qbed.report import make_report  # noqa: F401 - loaded before there is a job
from qbed.runs.executor.local import LocalExecutor
from qbed.runs.experiment import RunOptions, RunResult, prepare, run_campaign
from qbed.runs.worker import Outcome
from qbed.service.job_spec import STOPPED, UNWRITTEN, JobSpec
from qbed.service.jobs import LAB, RUN, say
from qbed.substrates import Limits, substrate

EVERY_S = 0.2
MESSAGES_MAX = 50
"""Damaged files, differences, warnings."""


class EventScreen:
    """A `Screen` that writes events."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._progress_at = 0.0

    def say(self, event: str, **more: Any) -> None:
        say(self._place, {"event": event, **more})

    def refuse(self, messages: list[str]) -> None:
        """Write why the job cannot run. The client gets no path of the service's folder."""
        folder = str(self._place / LAB)
        self.say(
            "refused",
            messages=[
                shorten(text.replace(f"{folder}/", "").replace(folder, "the lab")) for text in messages[:MESSAGES_MAX]
            ],
        )

    def skipped(self, cells: int) -> None:
        self.say("skipped", cells=cells)

    def damaged(self, what: list[str]) -> None:
        if what:
            self.say("damaged", what=what[:MESSAGES_MAX], more=max(0, len(what) - MESSAGES_MAX))

    def asked(self, cells: int) -> None:
        self.say("cells", total=cells)

    def waiting(self) -> None:
        self.say("waiting")  # of a service that was killed, the process is still ending

    def discarded(self, why: str) -> None:
        self.say("discarded", why=why)

    def progress(self, finished: int, running: float) -> None:
        if (now := time.monotonic()) - self._progress_at >= EVERY_S:
            self._progress_at = now
            self.say("progress", finished=finished, running=round(running, 4))

    def outcome(self, outcome: Outcome) -> None:
        self._progress_at = 0.0
        if outcome.status != "complete":
            self.say("outcome", **(asdict(outcome) | {"error": outcome.error and shorten(outcome.error)}))

    def phase(self, name: str) -> None:
        self.say("phase", name=name)

    def delivered(self, what: Delivery | str) -> None:
        self.say("delivered", what=what if isinstance(what, str) else what.describe())


def carry_out(spec: JobSpec) -> int:
    """Run a job; returns the exit status."""
    place = Path(spec.place)
    screen = EventScreen(place)
    os.environ.pop(TRUST, None)
    if spec.foreign:
        os.environ[FOREIGN] = "1"
    if spec.trusted:
        os.environ[TRUST] = "1"
    try:
        return _carried(spec, screen)
    except OSError:
        return UNWRITTEN


def _carried(spec: JobSpec, screen: EventScreen) -> int:
    """Run the job and report its errors as events; `OSError` if none could be written."""
    try:
        return _conduct(spec, screen)
    except LabError as error:
        screen.refuse(error.messages)
        return error.exit_status
    except QbedError as error:
        if error.exit_status != STOPPED:
            screen.refuse([str(error)])
        return error.exit_status
    except OSError as error:
        screen.refuse([crash_report.describe_os_error(error)])
    except Exception as error:
        screen.refuse([crash_report.explain(error)])
    return 1


def _conduct(spec: JobSpec, screen: EventScreen) -> int:
    asked = spec.request
    limits = Limits(asked["cell_timeout"], asked["stall_timeout"], asked["cell_space"])
    # Only the owner's environment names a sink: a client's request opens no connection.
    sinks = [Address("influx", url)] if (url := os.environ.get("QBED_INFLUX")) else []
    options = RunOptions(
        asked["profile"], Path(spec.place) / RUN, asked["seeds"], asked["settings"], asked["keep"], limits,
        asked["on"], asked["dilation"], store=asked["store"], lock="compare" if asked["locked"] else None, sinks=sinks,
    )  # fmt: skip
    screen.say("phase", name="checking")
    experiment = prepare(Path(spec.lab), options)
    if experiment.warnings:
        screen.say("warnings", texts=[shorten(text) for text in experiment.warnings[:MESSAGES_MAX]])
    screen.asked(len(experiment.task.matrix))
    cores = sorted(os.sched_getaffinity(0))
    workers = min(spec.cores or len(cores), substrate(asked["on"]).cells_at_once or 1 << 20)
    mine = [cores[i % len(cores)] for i in range(workers)]
    # A job's run folder is its own: what another version of qbed has left in it is no one's to miss.
    outcome = run_campaign(experiment, LocalExecutor(mine), screen, images=asked["images"], fresh=True)
    screen.say("concluded", **concluded(outcome))
    return int(outcome.failed())


def concluded(outcome: RunResult) -> dict[str, Any]:
    """A conclusion as an event."""
    return {
        "totals": asdict(outcome.totals),
        "verdicts": [verdict.model_dump() for verdict in outcome.verdicts],
        "problems": [shorten(text) for text in outcome.problems[:MESSAGES_MAX]],
        "differences": outcome.differences[:MESSAGES_MAX],
        "wall_s": round(outcome.wall_s, 3),
    }
