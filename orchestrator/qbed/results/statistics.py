# SPDX-License-Identifier: Apache-2.0
"""What a queue's scheme said of itself: its qdisc's statistics, or at a switch in P4 its program's of these names; of a
discipline in tc's words what Linux has of that kind.
"""

from __future__ import annotations

from qbed.plan.model import Plan
from qbed.schemes.declaration import registry
from qbed.telemetry import qdiscs
from qbed.telemetry.records import Counters, QueueCounters


def statistics(plan: Plan, counters: Counters, index: int) -> qdiscs.Values:
    """By name, those of scheme.yml; empty where there are none. A program's counters count packets by egress port."""
    queue = plan.queues[index]
    if index >= len(counters.queues):
        return {}
    pipeline, scheme = plan.nodes[queue.node].pipeline, registry().get(queue.scheme)
    if pipeline is None:
        return decoded(queue.scheme, counters.queues[index].kind, bytes.fromhex(counters.queues[index].xstats))
    if scheme is None:
        return {}
    counted = counters.switches.get(plan.nodes[queue.node].name)
    if counted is None:
        return {}
    port, said = pipeline.ports.index(queue.interface), counted.registers | counted.counters
    return {one.name: said[one.name].get(port, 0) for one in scheme.statistics if one.name in said}


def decoded(scheme: str, kind: str, xstats: bytes) -> qdiscs.Values:
    """The statistics of a qdisc: of its scheme, or of its kind where the lab gives it in tc's words."""
    declared = registry().get(scheme)
    return {**declared.decode(xstats)} if declared is not None else qdiscs.decode(kind, xstats)


def discipline(scheme: str, counters: QueueCounters | None) -> str:
    """The scheme, or which qdisc it is that the lab gives in tc's words."""
    return scheme if scheme in registry() or counters is None else counters.kind or scheme
