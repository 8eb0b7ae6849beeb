# SPDX-License-Identifier: Apache-2.0
"""Racks of hosts under spines, directly or by the leaves of their pod: leaf-spine, fat tree, or one core switch over
racks.
"""

from pydantic import Field

from qbed.config.strict import Strict
from qbed.lab.topology import Network, TopologyError, numbered

LAYERS = ("hosts", "racks", "leaves")


class Settings(Strict):
    """Hosts `h1`... in racks `rack1`..., under `leaf1`... of their pod and `spine1`...; without leaves every rack has
    a link to every spine.
    """

    hosts: int = Field(ge=1, le=1024)
    """Number of hosts per rack."""
    racks: int = Field(ge=1, le=1024)
    """Number of racks in total."""
    spines: int = Field(ge=1, le=256)
    """Number of spines. Each has a link to every leaf, or to every rack if there are no leaves."""
    leaves: int = Field(default=0, ge=0, le=256)
    """Number of leaves per pod. Each has a link to every rack of its pod."""
    pods: int = Field(default=1, ge=1, le=256)
    """Number of pods, which have equal numbers of racks."""


def size(settings: Settings) -> tuple[int, int]:
    hosts, leaves = settings.racks * settings.hosts, settings.leaves * settings.pods
    above_racks = settings.racks * (settings.leaves or settings.spines)
    return hosts + settings.racks + leaves + settings.spines, hosts + above_racks + leaves * settings.spines


def build(settings: Settings) -> Network:
    if settings.racks % settings.pods:
        raise TopologyError(("racks",), f"{settings.racks} racks do not divide into {settings.pods} pods")
    if settings.pods > 1 and not settings.leaves:
        raise TopologyError(("pods",), "pods need leaves: expected `leaves` of at least 1, or no `pods`")
    network = Network()
    hosts = network.add_all(numbered("h", settings.racks * settings.hosts), "host")
    racks = network.add_all(numbered("rack", settings.racks), "switch")
    leaves = network.add_all(numbered("leaf", settings.leaves * settings.pods), "switch")
    spines = network.add_all(numbered("spine", settings.spines), "switch")
    for index, host in enumerate(hosts):
        network.link(host, racks[index // settings.hosts], "hosts")
    racks_per_pod = settings.racks // settings.pods
    for index, rack in enumerate(racks):
        first = index // racks_per_pod * settings.leaves
        for upper in leaves[first : first + settings.leaves] if leaves else spines:
            network.link(rack, upper, "racks")
    for leaf in leaves:
        for spine in spines:
            network.link(leaf, spine, "leaves")
    return network
