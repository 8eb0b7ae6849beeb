# SPDX-License-Identifier: Apache-2.0
"""The states of a job and their transitions, as a table."""

from __future__ import annotations

from typing import Literal

from qbed.base.errors import QbedError

State = Literal["queued", "running", "cancelling", "finished", "failed", "cancelled"]
Event = Literal["start", "finish", "fail", "interrupt", "cancel", "stop", "retry"]

ENDED: tuple[State, ...] = ("finished", "failed", "cancelled")
RULES: dict[Event, dict[State, State]] = {
    "start": {"queued": "running"},
    # its process came to an end by itself: with a conclusion, or with a reason
    "finish": {"running": "finished", "cancelling": "finished"},
    "fail": {"running": "failed", "cancelling": "failed"},
    # the process was ended, or the service was: what was to go on goes on later, what was to stop has stopped
    "interrupt": {"running": "queued", "cancelling": "cancelled"},
    "cancel": {"queued": "cancelled", "running": "cancelling", "cancelling": "cancelling"},
    "stop": {"cancelling": "cancelled"},
    "retry": {"finished": "queued", "failed": "queued", "cancelled": "queued"},
}


class TransitionError(QbedError):
    """A job is not in a state in which that can happen."""

    def __init__(self, job: int, event: str, state: str) -> None:
        super().__init__(f"job {job} is {state}: it cannot {event} now")


def after(event: Event, state: State) -> State | None:
    """The state that follows; None: the event is none for a job in this state."""
    return RULES[event].get(state)
