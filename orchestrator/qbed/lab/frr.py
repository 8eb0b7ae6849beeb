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
    """Settings of FRR. A session fails immediately if its link goes down, otherwise after `hold`."""

    protocol: Literal["bgp", "ospf"] = "bgp"
    """`bgp`: eBGP on unnumbered links, private AS numbers by layer (RFC 7938); `ospf`: OSPFv2, one area."""
    keepalive: Seconds = SECOND
    """Interval of BGP's keepalives or OSPF's hellos, in whole seconds."""
    hold: Annotated[Duration, _multiple(SECOND), between(3 * SECOND, 65535 * SECOND, format_duration)] = 3 * SECOND
    """Time without keepalives or hellos after which a session fails, in whole seconds."""
    retry: Seconds = SECOND
    """Time before BGP reopens a failed session, or OSPF retransmits an unacknowledged advertisement; whole seconds."""
    advertisement_interval: Annotated[Duration, _multiple(SECOND), between(0, 600 * SECOND, format_duration)] = 0
    """BGP: minimum interval of advertisements of a prefix to a neighbour (MRAI), in whole seconds."""
    spf_delay: Annotated[Duration, _multiple(MILLISECOND), between(0, 600 * SECOND, format_duration)] = 10 * MILLISECOND
    """OSPF: delay of the computation of shortest paths after a first change, in whole milliseconds. After further
    changes it is up to ten times as long.
    """
    lsa_interval: Annotated[Duration, _multiple(MILLISECOND), between(0, 5 * SECOND, format_duration)] = (
        50 * MILLISECOND
    )
    """OSPF: minimum interval of two versions of an advertisement (5 s in RFC 2328), in whole milliseconds."""
    maximum_paths: int = Field(default=64, ge=1, le=64)
    """Maximum number of next hops of a route (ECMP)."""
    settle: Annotated[Duration, between(2 * SECOND, LARGEST, format_duration)] = 10 * SECOND
    """Time before the epoch at which FRR starts. The lab fails if a route is missing 1 s before the epoch."""
