# SPDX-License-Identifier: Apache-2.0
"""Declaration of the parameters that are a length of a queue."""

from collections.abc import Mapping

from qbed.base.errors import nearest
from qbed.config.strict import Strict


class Occupancy(Strict):
    """Parameters that are a length of a queue, and how to convert between packets, bytes and time."""

    thresholds: tuple[str, ...]
    """Parameters that are a length: an amount, bytes, packets, or a duration, which is a waiting time."""
    rate: str | None = None
    """The parameter with the rate at which the queue drains. Without it, and where it is 0: the rate of the port."""
    packet: str | None = None
    """The parameter with the length of a packet; the largest frame of the port without it."""

    def check(self, types: Mapping[str, str]) -> None:
        """ValueError if a name is of no parameter, or of one that is no such quantity. `types`: by parameter."""
        wanted: dict[str, tuple[str, ...]] = dict.fromkeys(self.thresholds, ("amount", "bytes", "packets", "duration"))
        wanted |= {name: (kind,) for name, kind in ((self.rate, "rate"), (self.packet, "bytes")) if name is not None}
        for name, kinds in wanted.items():
            if name not in types:
                raise ValueError(f"`occupancy` names no parameter `{name}`{nearest(name, types)}")
            if types[name] not in kinds:
                expected = " or ".join(f"`{kind}`" for kind in kinds)
                raise ValueError(f"expected the type {expected} of the parameter `{name}`, which `occupancy` names")
