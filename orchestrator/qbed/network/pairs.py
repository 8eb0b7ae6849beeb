# SPDX-License-Identifier: Apache-2.0
"""Who sends to whom: the hosts that a workload's names, globs and ranges mean."""

from collections.abc import Collection

from qbed.lab.workloads import Flow, Flows, Incast, Udp
from qbed.language.selectors import select

Pairs = list[tuple[str, str]]


def select_hosts(patterns: list[str], hosts: Collection[str]) -> list[str]:
    """The hosts that any of the patterns means, each once, in the patterns' order."""
    return list(dict.fromkeys(name for pattern in patterns for name in select(pattern, hosts)))


def incast_senders(incast: Incast, hosts: Collection[str]) -> list[str]:
    """An incast's senders: the first so many hosts except the receiver, or those that are named."""
    if isinstance(incast.senders, int):
        return [host for host in hosts if host != incast.receiver][: incast.senders]
    return select_hosts(incast.senders, hosts)


def flow_pairs(workload: Flow | Flows | Incast | Udp, hosts: Collection[str]) -> Pairs:
    """The pairs of a workload's flows, before `count`. ValueError if senders and receivers do not pair up."""
    if isinstance(workload, Incast):
        return [(sender, workload.receiver) for sender in incast_senders(workload, hosts)]
    if not isinstance(workload, Flows):
        return [(workload.source, workload.to)]
    if workload.pairs is not None:
        return list(workload.pairs)
    sources, targets = (select_hosts(names or [], hosts) for names in (workload.source, workload.to))
    if len(targets) == 1:
        targets = targets * len(sources)
    if len(sources) != len(targets):
        raise ValueError(f"{len(sources)} senders and {len(targets)} receivers do not pair up")
    return list(zip(sources, targets, strict=True))
