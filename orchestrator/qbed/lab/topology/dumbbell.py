# SPDX-License-Identifier: Apache-2.0
"""Hosts on the left, hosts on the right, and between their switches s1 and s2 one link that all of them share."""

from pydantic import Field

from qbed.config.strict import Strict
from qbed.lab.topology import Network, numbered

LAYERS = ("left", "right", "bottleneck")


class Settings(Strict):
    """Hosts `h1`... at the left switch `s1`, then hosts at the right switch `s2`, and one link `s1-s2` that they
    share.
    """

    left: int = Field(ge=1, le=8192)
    """Number of hosts on the left, the first hosts."""
    right: int = Field(ge=1, le=8192)
    """Number of hosts on the right, numbered after the hosts on the left."""


def size(settings: Settings) -> tuple[int, int]:
    hosts = settings.left + settings.right
    return hosts + 2, hosts + 1


def build(settings: Settings) -> Network:
    network = Network()
    left = network.add_all(numbered("h", settings.left), "host")
    right = network.add_all(numbered("h", settings.right, first=settings.left + 1), "host")
    network.add_all(["s1", "s2"], "switch")
    for host in left:
        network.link(host, "s1", "left")
    network.link("s1", "s2", "bottleneck")
    for host in right:
        network.link(host, "s2", "right")
    return network
