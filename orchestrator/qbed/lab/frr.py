# SPDX-License-Identifier: Apache-2.0
"""FRR settings of a lab file."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from qbed.config.strict import Strict
from qbed.config.units import LARGEST, Duration, between, format_duration

SECOND, MILLISECOND = 1_000_000_000, 1_000_000


def _multiple(unit: int) -> AfterValidator:
    def check(value: int) -> int:
        if value % unit:
            raise ValueError(f"expected a multiple of {format_duration(unit)}, got `{format_duration(value)}`")
        return value

    return AfterValidator(check)


Seconds = Annotated[Duration, _multiple(SECOND), between(SECOND, 65535 * SECOND, format_duration)]


class FrrSettings(Strict):
    """How FRR routes. Sessions that fail are noticed at once where the link itself goes down, or after `hold`."""

    protocol: Literal["bgp", "ospf"] = "bgp"
    """`bgp`: eBGP on unnumbered links, private AS numbers by layer (RFC 7938); `ospf`: OSPFv2, one area."""
    keepalive: Seconds = SECOND
    """Between BGP's keepalives, or OSPF's hellos; whole seconds."""
    hold: Annotated[Duration, _multiple(SECOND), between(3 * SECOND, 65535 * SECOND, format_duration)] = 3 * SECOND
    """After how long without them a neighbour is given up."""
    retry: Seconds = SECOND
    """Before BGP tries a session again that failed, or OSPF repeats what was not acknowledged; whole seconds."""
    advertisement_interval: Annotated[Duration, _multiple(SECOND), between(0, 600 * SECOND, format_duration)] = 0
    """BGP: between advertisements of one prefix to a neighbour (MRAI); whole seconds."""
    spf_delay: Annotated[Duration, _multiple(MILLISECOND), between(0, 600 * SECOND, format_duration)] = 10 * MILLISECOND
    """OSPF: before shortest paths are computed after a first change; whole milliseconds. Later ones wait up to ten
    times as long.
    """
    lsa_interval: Annotated[Duration, _multiple(MILLISECOND), between(0, 5 * SECOND, format_duration)] = (
        50 * MILLISECOND
    )
    """OSPF: the least time between two versions of one advertisement; RFC 2328 has 5 s."""
    maximum_paths: int = Field(default=64, ge=1, le=64)
    """The most next hops of a route (ECMP)."""
    settle: Annotated[Duration, between(2 * SECOND, LARGEST, format_duration)] = 10 * SECOND
    """How long before its epoch the lab starts FRR. Routes that are missing 1 s before the epoch end the lab."""
