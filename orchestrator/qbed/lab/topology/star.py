# SPDX-License-Identifier: Apache-2.0
"""Hosts h1, h2, ... around one switch s1."""

from pydantic import Field

from qbed.config.strict import Strict
from qbed.lab.topology import Network, numbered

LAYERS = ("hosts",)


class Settings(Strict):
    """Hosts `h1`, `h2`, ... around one switch `s1`."""

    hosts: int = Field(ge=2, le=16384)
    """Number of hosts."""


def size(settings: Settings) -> tuple[int, int]:
    return settings.hosts + 1, settings.hosts


def build(settings: Settings) -> Network:
    network = Network()
    hosts = network.add_all(numbered("h", settings.hosts), "host")
    network.add("s1", "switch")
    for host in hosts:
        network.link(host, "s1", "hosts")
    return network
