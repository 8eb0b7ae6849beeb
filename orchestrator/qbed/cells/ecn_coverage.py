# SPDX-License-Identifier: Apache-2.0
"""ECN coverage: warn where a queue marks packets, but none of its flows negotiated ECN.

A queue that only marks then behaves like drop-tail. ECN is measured, not taken from the configuration: each flow's
record contains whether its connection negotiated ECN.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from qbed.cells.statistics import statistics
from qbed.plan.model import Plan
from qbed.plan.ports import port_names
from qbed.plan.queue import Queue, TcQdisc
from qbed.schemes.declaration import registry
from qbed.telemetry.records import Counters


@dataclass
class PairEcn:
    """Counts of the flows from one host to another."""

    flows: int = 0
    with_ecn: int = 0
    """Flows that negotiated ECN."""


EcnByPair = Mapping[tuple[int, int], PairEcn]


def marks_without_ecn(plan: Plan, counters: Counters, ecn_by_pair: EcnByPair, *, one_path: bool) -> list[str]:
    """Return a warning for each marking queue without a flow that negotiated ECN.

    Without `one_path` the queues that a flow crossed are unknown; then one flow with ECN suppresses all warnings.
    """
    signals = {index: marking for index, queue in enumerate(plan.queues) if (marking := _marking(queue)) is not None}
    crossing: dict[int, PairEcn] = {}
    for (source, destination), pair in ecn_by_pair.items() if signals else ():
        ends = (end.queue for end in plan.path(source, destination).ends) if one_path else iter(signals)
        for index in signals.keys() & set(ends):
            seen = crossing.setdefault(index, PairEcn())
            seen.flows, seen.with_ecn = seen.flows + pair.flows, seen.with_ecn + pair.with_ecn
    ports = port_names(plan)
    return [
        f"{ports[index]} signals by ECN ({signals[index]}), but {_flows_without(pair.flows)} ECN"
        f"{_consequence(index, plan, counters)}"
        for index, pair in sorted(crossing.items())
        if pair.flows and not pair.with_ecn
    ]


def _marking(queue: Queue) -> str | None:
    """Return the qdisc or scheme of a queue that signals by marks only, or None."""
    if isinstance(queue.qdisc, TcQdisc):
        arguments = queue.qdisc.tc
        return f"qdisc {' '.join(arguments)}" if "ecn" in arguments else None
    scheme = registry().get(queue.scheme)
    return f"scheme {scheme.name}" if scheme is not None and scheme.without_ecn == "passed" else None


def _flows_without(flows: int) -> str:
    return "the one flow through it has no" if flows == 1 else f"none of the {flows} flows through it has"


def _consequence(index: int, plan: Plan, counters: Counters) -> str:
    """Describe the effect of the missing ECN, from the scheme's statistics."""
    queue = plan.queues[index]
    if isinstance(queue.qdisc, TcQdisc):
        return ": it can only drop"
    scheme, values = registry()[queue.scheme], statistics(plan, counters, index)
    lost = sum(values.get(statistic.name, 0) for statistic in scheme.statistics if statistic.not_ecn_capable)
    return f": {lost} packets passed unmarked" if lost else ": it marks nothing"
