# SPDX-License-Identifier: Apache-2.0
"""What a job does: `qbed run`, told as events instead of on a terminal."""

from __future__ import annotations

import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from qbed import faults
from qbed.errors import LabError, QbedError
from qbed.language.reach import FOREIGN, TRUST
from qbed.live.courier import Address, Delivery
from qbed.report import make_report  # noqa: F401 - loaded before there is a job
from qbed.runs.executor.local import LocalExecutor
from qbed.runs.experiment import Conclusion, Wishes, conduct, prepare
from qbed.runs.worker import Outcome
from qbed.service.jobs import LAB, RUN, say
from qbed.service.order import STOPPED, UNSAID, Order
from qbed.substrates import Limits, substrate
from qbed.terminal import shorten

EVERY_S = 0.2
MOST_TOLD = 50
"""Damaged files, differences, warnings."""


class Teller:
    """A `Screen` that writes events."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._told = 0.0

    def say(self, event: str, **more: Any) -> None:
        say(self._place, {"event": event, **more})

    def refuse(self, messages: list[str]) -> None:
        """Why it cannot run; the folder is the service's, and no one's who has sent the lab."""
        own = str(self._place / LAB)
        self.say(
            "refused",
            messages=[shorten(text.replace(f"{own}/", "").replace(own, "the lab")) for text in messages[:MOST_TOLD]],
        )

    def skipped(self, cells: int) -> None:
        self.say("skipped", cells=cells)

    def damaged(self, what: list[str]) -> None:
        if what:
            self.say("damaged", what=what[:MOST_TOLD], more=max(0, len(what) - MOST_TOLD))

    def asked(self, cells: int) -> None:
        self.say("cells", total=cells)

    def waiting(self) -> None:
        self.say("waiting")  # of a service that was killed, the process is still ending

    def discarded(self, why: str) -> None:
        self.say("discarded", why=why)

    def progress(self, finished: int, running: float) -> None:
        if (now := time.monotonic()) - self._told >= EVERY_S:
            self._told = now
            self.say("progress", finished=finished, running=round(running, 4))

    def outcome(self, outcome: Outcome) -> None:
        self._told = 0.0
        if outcome.status != "complete":
            self.say("outcome", **(asdict(outcome) | {"error": outcome.error and shorten(outcome.error)}))

    def phase(self, name: str) -> None:
        self.say("phase", name=name)

    def delivered(self, what: Delivery | str) -> None:
        self.say("delivered", what=what if isinstance(what, str) else what.said())


def carry_out(order: Order) -> int:
    """Run a job; returns the exit status."""
    place = Path(order.place)
    teller = Teller(place)
    os.environ.pop(TRUST, None)
    if order.foreign:
        os.environ[FOREIGN] = "1"
    if order.trusted:
        os.environ[TRUST] = "1"
    try:
        return _carried(order, teller)
    except OSError:
        return UNSAID


def _carried(order: Order, teller: Teller) -> int:
    """The same; `OSError`: nothing could be said."""
    try:
        return _conduct(order, teller)
    except LabError as error:
        teller.refuse(error.messages)
        return error.exit_status
    except QbedError as error:
        if error.exit_status != STOPPED:
            teller.refuse([str(error)])
        return error.exit_status
    except OSError as error:
        teller.refuse([faults.of_files(error)])
    except Exception as error:
        teller.refuse([faults.explain(error)])
    return 1


def _conduct(order: Order, teller: Teller) -> int:
    asked = order.request
    limits = Limits(asked["cell_timeout"], asked["stall_timeout"], asked["cell_space"])
    # Where the owner's environment says: what a client asks for opens no connection.
    sinks = [Address("influx", url)] if (url := os.environ.get("QBED_INFLUX")) else []
    wishes = Wishes(
        asked["profile"], Path(order.place) / RUN, asked["seeds"], asked["settings"], asked["keep"], limits,
        asked["on"], asked["dilation"], store=asked["store"], lock="compare" if asked["locked"] else None, sinks=sinks,
    )  # fmt: skip
    teller.say("phase", name="checking")
    experiment = prepare(Path(order.lab), wishes)
    if experiment.warnings:
        teller.say("warnings", texts=[shorten(text) for text in experiment.warnings[:MOST_TOLD]])
    teller.asked(len(experiment.task.matrix))
    cores = sorted(os.sched_getaffinity(0))
    workers = min(order.cores or len(cores), substrate(asked["on"]).cells_at_once or 1 << 20)
    mine = [cores[i % len(cores)] for i in range(workers)]
    # A job's run folder is its own: what another version of qbed has left in it is no one's to miss.
    outcome = conduct(experiment, LocalExecutor(mine), teller, images=asked["images"], fresh=True)
    teller.say("concluded", **concluded(outcome))
    return int(outcome.bad())


def concluded(outcome: Conclusion) -> dict[str, Any]:
    """A conclusion as an event."""
    return {
        "totals": asdict(outcome.totals),
        "verdicts": [verdict.model_dump() for verdict in outcome.verdicts],
        "problems": [shorten(text) for text in outcome.problems[:MOST_TOLD]],
        "differences": outcome.differences[:MOST_TOLD],
        "wall_s": round(outcome.wall_s, 3),
    }
