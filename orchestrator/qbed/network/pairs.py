# SPDX-License-Identifier: Apache-2.0
"""Senders and receivers: the hosts that a workload's names, globs and ranges match, and random choices by the seed."""

from collections.abc import Collection
from hashlib import sha256
from itertools import count, islice

from qbed.config.selectors import select
from qbed.lab.workloads import Bursts, Flow, Flows, Incast, Paired, Probes, Replay, Udp

Pairs = list[tuple[str, str]]


def select_hosts(patterns: list[str], hosts: Collection[str]) -> list[str]:
    """Return the hosts that any of the patterns matches, each once, in the patterns' order."""
    return list(dict.fromkeys(name for pattern in patterns for name in select(pattern, hosts)))


def incast_senders(incast: Incast, hosts: Collection[str]) -> list[str]:
    """Return an incast's senders: the first hosts except the receiver, or those that are named."""
    if isinstance(incast.senders, int):
        return list(islice((host for host in hosts if host != incast.receiver), incast.senders))
    return select_hosts(incast.senders, hosts)


PairedUp = Flow | Flows | Incast | Probes | Bursts | Replay | Udp


def flow_pairs(workload: PairedUp, hosts: Collection[str], seed: str) -> Pairs:
    """Return the pairs of a workload's flows, before `count`. ValueError if senders and receivers do not pair up.

    `seed`: the run's seed and the workload's number; equal seeds give equal pairs.
    """
    if isinstance(workload, Incast):
        return [(sender, workload.receiver) for sender in incast_senders(workload, hosts)]
    if isinstance(workload, Replay):
        return [(flow.src, flow.dst) for flow in workload.flows()]
    if not isinstance(workload, Paired):
        return [(workload.source, workload.to)]
    if workload.pairs is not None:
        return list(workload.pairs)
    sources, targets = (select_hosts(names or [], hosts) for names in (workload.source, workload.to))
    if workload.pairing == "random":
        return _random(sources, targets, seed)
    if workload.pairing == "permutation" and len(sources) == len(targets):
        return _permutation(sources, targets, seed)
    if len(targets) == 1:
        targets = targets * len(sources)
    if len(sources) != len(targets):
        raise ValueError(f"{len(sources)} senders and {len(targets)} receivers do not pair up")
    return list(zip(sources, targets, strict=True))


def _drawn(*words: object) -> int:
    """Return 256 bits that depend only on the words, independent of the machine and library versions."""
    return int.from_bytes(sha256("/".join(map(str, words)).encode()).digest())


def _random(sources: list[str], targets: list[str], seed: str) -> Pairs:
    pairs = []
    for source in sources:
        _refuse_itself(source, targets)
        draws = (targets[_drawn(seed, source, attempt) % len(targets)] for attempt in count())
        pairs.append((source, next(target for target in draws if target != source)))
    return pairs


def _permutation(sources: list[str], targets: list[str], seed: str) -> Pairs:
    """Draw uniformly from the permutations without a fixed point, which are about one in three or more of all."""
    if len(sources) == 1:
        _refuse_itself(sources[0], targets)
    orders = (sorted(targets, key=lambda target: _drawn(seed, attempt, target)) for attempt in count())
    drawn = (list(zip(sources, order, strict=True)) for order in orders)
    return next(pairs for pairs in drawn if all(source != target for source, target in pairs))


def _refuse_itself(source: str, targets: list[str]) -> None:
    if not targets or targets == [source]:
        raise ValueError(f"`{source}` has no receiver but itself")
