# SPDX-License-Identifier: Apache-2.0
"""Statistics of a queue's scheme.

They come from the qdisc, or from registers and counters of these names in the program of a P4 switch. A queue with a
`tc` qdisc has the statistics that Linux defines for its kind.
"""

from __future__ import annotations

from qbed.plan.model import Plan
from qbed.schemes.declaration import registry
from qbed.telemetry import qdiscs
from qbed.telemetry.records import Counters, QueueCounters


def statistics(plan: Plan, counters: Counters, index: int) -> qdiscs.Values:
    """The statistics of a queue by the names of scheme.yml; empty without any. A P4 program has them by egress port."""
    queue = plan.queues[index]
    if index >= len(counters.queues):
        return {}
    pipeline, scheme = plan.nodes[queue.node].pipeline, registry().get(queue.scheme)
    if pipeline is None:
        return decode_statistics(
            queue.scheme, counters.queues[index].kind, bytes.fromhex(counters.queues[index].xstats)
        )
    if scheme is None:
        return {}
    counted = counters.switches.get(plan.nodes[queue.node].name)
    if counted is None:
        return {}
    port, values = pipeline.ports.index(queue.interface), counted.registers | counted.counters
    return {
        statistic.name: values[statistic.name].get(port, 0)
        for statistic in scheme.statistics
        if statistic.name in values
    }


def decode_statistics(scheme: str, kind: str, xstats: bytes) -> qdiscs.Values:
    """Decode the statistics of a qdisc by its scheme, or by its kind if the lab gives `tc` arguments."""
    declared = registry().get(scheme)
    return {**declared.decode(xstats)} if declared is not None else qdiscs.decode(kind, xstats)


def discipline(scheme: str, counters: QueueCounters | None) -> str:
    """The name of the scheme, or the kind of the qdisc if the lab gives `tc` arguments."""
    return scheme if scheme in registry() or counters is None else counters.kind or scheme
