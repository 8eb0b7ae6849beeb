# SPDX-License-Identifier: Apache-2.0
"""Signals that nobody hears: queues that mark packets of flows which have no ECN.

A queue that only marks is then a queue that only drops what does not fit, and its numbers are drop-tail's under another
name. Who hears is measured, not asked: each flow's record says whether its connection negotiated ECN.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from qbed.plan.model import Plan, Queue
from qbed.plan.ports import port_names
from qbed.results.statistics import statistics
from qbed.schemes.declaration import registry
from qbed.telemetry.records import Counters


@dataclass
class Talk:
    """The flows from one host to another."""

    flows: int = 0
    hearing: int = 0
    """Those that negotiated ECN."""


Talks = Mapping[tuple[int, int], Talk]


def unheard(plan: Plan, counters: Counters, talks: Talks, *, one_path: bool) -> list[str]:
    """A warning for each queue that marks, and whose flows have no ECN at all. Without `one_path` nobody knows which
    flows crossed which queue, so that one flow with ECN anywhere is enough.
    """
    signals = {index: how for index, queue in enumerate(plan.queues) if (how := _signals(queue)) is not None}
    crossing: dict[int, Talk] = {}
    for (source, destination), talk in talks.items() if signals else ():
        ends = (end.queue for end in plan.path(source, destination).ends) if one_path else iter(signals)
        for index in signals.keys() & set(ends):
            seen = crossing.setdefault(index, Talk())
            seen.flows, seen.hearing = seen.flows + talk.flows, seen.hearing + talk.hearing
    ports = port_names(plan)
    return [
        f"{ports[index]} signals by ECN ({signals[index]}), but {_none_of(talk.flows)} ECN"
        f"{_instead(index, plan, counters)}"
        for index, talk in sorted(crossing.items())
        if talk.flows and not talk.hearing
    ]


def _signals(queue: Queue) -> str | None:
    """What marks packets and has no other signal than that, or was asked to mark; None: nothing does."""
    words = queue.qdisc.get("tc")
    if words is not None:
        return f"qdisc {' '.join(words)}" if "ecn" in words else None
    scheme = registry().get(queue.scheme)
    return f"scheme {scheme.name}" if scheme is not None and scheme.without_ecn == "passed" else None


def _none_of(flows: int) -> str:
    return "the one flow through it has no" if flows == 1 else f"none of the {flows} flows through it has"


def _instead(index: int, plan: Plan, counters: Counters) -> str:
    """What became of the signals, as far as the scheme counts it."""
    queue = plan.queues[index]
    if "tc" in queue.qdisc:
        return ": it can only drop"
    scheme, values = registry()[queue.scheme], statistics(plan, counters, index)
    lost = sum(values.get(one.name, 0) for one in scheme.statistics if one.unheard)
    return f": {lost} packets that it would have marked passed as they were" if lost else ": it marks nothing"
