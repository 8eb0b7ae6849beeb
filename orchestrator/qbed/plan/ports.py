# SPDX-License-Identifier: Apache-2.0
"""Names of ports in the notation of the lab file: `s1>h1` is the queue of s1 towards h1."""

from collections import Counter

from qbed.plan.model import Plan


def port_names(plan: Plan) -> list[str]:
    """The port of each queue, by index. If nodes have several links, the name has the interface: `s1>s2 (eth3)`."""
    names = [""] * len(plan.queues)
    for link in plan.links:
        for end, peer in ((link.a, link.b), (link.b, link.a)):
            names[end.queue] = f"{plan.nodes[end.node].name}>{plan.nodes[peer.node].name}"
    count = Counter(names)
    return [
        f"{name} ({queue.interface})" if count[name] > 1 else name
        for name, queue in zip(names, plan.queues, strict=True)
    ]
