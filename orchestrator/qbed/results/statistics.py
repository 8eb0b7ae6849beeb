# SPDX-License-Identifier: Apache-2.0
"""What a queue's scheme said of itself: its qdisc's statistics, or at a switch in P4 its program's of these names."""

from __future__ import annotations

from qbed.plan.model import Plan
from qbed.schemes.declaration import registry
from qbed.telemetry.records import Counters


def statistics(plan: Plan, counters: Counters, index: int) -> dict[str, int]:
    """By name, those of scheme.yml; empty where there are none. A program's counters count packets by egress port."""
    queue = plan.queues[index]
    scheme = registry().get(queue.scheme)
    if scheme is None or index >= len(counters.queues):
        return {}
    pipeline = plan.nodes[queue.node].pipeline
    if pipeline is None:
        return scheme.decode(bytes.fromhex(counters.queues[index].xstats))
    counted = counters.switches.get(plan.nodes[queue.node].name)
    if counted is None:
        return {}
    port, said = pipeline.ports.index(queue.interface), counted.registers | counted.counters
    return {one.name: said[one.name].get(port, 0) for one in scheme.statistics if one.name in said}
