# SPDX-License-Identifier: Apache-2.0
"""The rule of thumb for labs on the wall clock: the dilation from which results are about those of virtual time.

Its source is labs/gap (docs/containers.md, The gap). The more nodes share a core, the later is each of them, and a late
node sends the frames of that time in one burst.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from qbed.config.units import format_duration, format_rate
from qbed.plan.communicating_pairs import shortest_rtt_ns
from qbed.plan.model import Plan
from qbed.runs.calibrate import faithful_rtt_ns
from qbed.runs.forwarding import Measure, fastest_bps, limit_bps, round_down
from qbed.substrates import Substrate

RATE_SHARE = 5
"""Least ratio of the rate that this machine forwards to the rate of the fastest link in real time."""


def short_time_scales(on: Substrate, plan: Plan, dilation: int, measure: Measure | None = None) -> Iterator[str]:
    """A warning if round trips or the transmission of packets take too little real time at this dilation."""
    rtt_ns, least_ns = shortest_rtt_ns(plan), faithful_rtt_ns(plan)
    if on.clock == "virtual" or not rtt_ns:
        return
    causes, enough = list[str](), 1
    if rtt_ns * dilation < least_ns:
        enough = -(-least_ns // rtt_ns)
        causes.append(
            f"the shortest round trip takes {format_duration(round_down(rtt_ns * dilation))} of real time, and should"
            f" take {format_duration(least_ns)} with {len(plan.nodes)} nodes on {os.cpu_count()} cores"
        )
    wanted_bps = RATE_SHARE * fastest_bps(plan)
    forwarded_bps, _ = limit_bps(on, wanted_bps, dilation, measure)
    if forwarded_bps is not None and wanted_bps > forwarded_bps * dilation:
        enough = max(enough, -(-wanted_bps // forwarded_bps))
        causes.append(
            f"the fastest link has {format_rate(round_down(fastest_bps(plan) // dilation))} of real time, and should"
            f" have {format_rate(round_down(forwarded_bps // RATE_SHARE))} on this machine"
        )
    if causes:
        yield (
            f"at dilation {dilation}, queues and rates differ from those of virtual time: {'; '.join(causes)};"
            f" as a rule of thumb, `--dilate {enough}` is enough (docs/containers.md)"
        )
