# SPDX-License-Identifier: Apache-2.0
"""A chain of switches with hosts at each: flows over the whole chain meet others at every hop."""

from itertools import pairwise

from pydantic import Field

from qbed.config.strict import Strict
from qbed.lab.topology import Network, numbered

LAYERS = ("hosts", "chain")


class Settings(Strict):
    """A chain of switches `s1`, `s2`, ... with hosts at each: `h1`... at `s1`, then those at `s2`, and so on."""

    switches: int = Field(ge=2, le=1024)
    """Number of switches."""
    hosts: int = Field(default=1, ge=1, le=1024)
    """Number of hosts per switch."""


def size(settings: Settings) -> tuple[int, int]:
    hosts = settings.switches * settings.hosts
    return hosts + settings.switches, hosts + settings.switches - 1


def build(settings: Settings) -> Network:
    network = Network()
    hosts = network.add_all(numbered("h", settings.switches * settings.hosts), "host")
    switches = network.add_all(numbered("s", settings.switches), "switch")
    for index, host in enumerate(hosts):
        network.link(host, switches[index // settings.hosts], "hosts")
    for switch, neighbor in pairwise(switches):
        network.link(switch, neighbor, "chain")
    return network
