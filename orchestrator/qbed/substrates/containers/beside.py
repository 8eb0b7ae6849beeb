# SPDX-License-Identifier: Apache-2.0
"""Containers beside the nodes', in their network namespaces: BMv2 of switches, and images of hosts (`hosts.*.image`).

An image of a host runs its default command. No node has a name like theirs: nodes' have no underscore.
"""

from __future__ import annotations

from collections.abc import Mapping

from qbed.base.json_files import Row
from qbed.plan.model import Plan
from qbed.substrates.containers import bmv2

_SUFFIX = "_image"


def host_images(plan: Plan) -> dict[str, str]:
    """The image by the name of its host."""
    return {node.name: node.image for node in plan.nodes if node.image is not None}


def names(plan: Plan) -> tuple[str, ...]:
    """The names in the lab of all containers beside nodes."""
    return (*bmv2.containers(plan), *(host + _SUFFIX for host in host_images(plan)))


def topology(plan: Plan, nodes: Mapping[str, Row], images: Mapping[str, str]) -> dict[str, Row]:
    """Containerlab's entries of these containers. `nodes`: those of the nodes; `images` by role."""
    entries = {
        name: bmv2.topology(nodes[switch], switch, images[bmv2.ROLE]) for name, switch in bmv2.containers(plan).items()
    }
    for host, image in host_images(plan).items():
        entries[host + _SUFFIX] = {"kind": "linux", "image": image, "network-mode": f"container:{host}"}
    return entries
