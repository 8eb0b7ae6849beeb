# SPDX-License-Identifier: Apache-2.0
"""Pairs of hosts between which a plan's workloads send."""

import itertools
from collections.abc import Iterator
from itertools import islice

from qbed.plan.model import Plan
from qbed.plan.workload import Flows

MAX_PAIRS = 200
"""Number of pairs in which `shortest_rtt_ns` looks."""


def communicating_pairs(plan: Plan) -> Iterator[tuple[int, int]]:
    """Sender and receiver by node index, once for each workload; several thousand in a large lab."""
    for workload in plan.workloads:
        if workload.pairs is not None:
            yield from dict.fromkeys(workload.pairs)
        elif not isinstance(workload, Flows):
            sources, targets = workload.sources or [], workload.destinations or []
            yield from ((a, b) for a, b in itertools.product(sources, targets) if a != b)


def shortest_rtt_ns(plan: Plan) -> int:
    """The shortest base RTT of all communicating pairs in lab time; 0 without any."""
    return min((plan.base_rtt_ns(a, b) for a, b in islice(communicating_pairs(plan), MAX_PAIRS)), default=0)
