# SPDX-License-Identifier: Apache-2.0
"""Pairs of hosts between which a plan's workloads send."""

import itertools
from collections.abc import Iterator

from qbed.plan.model import Plan
from qbed.plan.workload import Flows


def communicating_pairs(plan: Plan) -> Iterator[tuple[int, int]]:
    """Sender and receiver by node index, once for each workload; several thousand in a large lab."""
    for workload in plan.workloads:
        if workload.pairs is not None:
            yield from dict.fromkeys(workload.pairs)
        elif not isinstance(workload, Flows):
            sources, targets = workload.sources or [], workload.destinations or []
            yield from ((a, b) for a, b in itertools.product(sources, targets) if a != b)
