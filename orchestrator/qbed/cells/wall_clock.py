# SPDX-License-Identifier: Apache-2.0
"""The evidence of a cell on the wall clock: whether the machine kept up, and whether packets were lost or held outside
the plan.

A late timer delays packets. Lateness is compared with the time scales of the lab: its shortest round trip and the
transmission time of a packet on its fastest link, both dilated.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable

from qbed.base.json_files import Row
from qbed.cells.frames import examine_frames
from qbed.network.frames import ETHERNET_BYTES
from qbed.plan.communicating_pairs import shortest_rtt_ns
from qbed.plan.model import Plan
from qbed.telemetry.wall import NodeWall, Wall

LATE_SHARE = 0.1
"""A run is not faithful if one in a hundred deadlines is late by more than this share of the shortest round trip."""
LATE_PACKETS = 10
"""A run has a warning if deadlines are late by more than so many packet times on the fastest link: they form bursts."""
BUSY_SHARE, STEAL_SHARE = 0.9, 0.02
MAX_SHOWN = 5


def examine_wall(
    plan: Plan, wall: Wall, slack: Callable[[int], int] = lambda sent: 0
) -> tuple[list[str], list[str], dict[str, object]]:
    """Contradictions (the run was not faithful), warnings, and details. `slack`: see `examine_frames`."""
    contradictions: list[str] = []
    warnings: list[str] = []
    known = {name: node for name, node in wall.nodes.items() if node is not None}
    silent = [name for name, node in wall.nodes.items() if node is None]
    if silent:
        contradictions.append(f"{', '.join(silent[:MAX_SHOWN])} reported no timing (no out/host.json)")
    details = _lateness(plan, wall, known, contradictions, warnings)
    lost, uncounted, frames = examine_frames(plan, wall, slack)
    contradictions.extend(lost)
    warnings.extend(uncounted)
    _offloads(known, contradictions)
    details |= frames | _cpu(known, warnings)
    details |= {
        "substrate": wall.substrate,
        "dilation": wall.dilation,
        "host_kernel": wall.host_kernel,
        "nodes": {name: node.model_dump(exclude={"interfaces"}) for name, node in known.items()},
    }
    if wall.dilation > 1 and wall.host_kernel:
        warnings.append(f"{', '.join(wall.host_kernel[:MAX_SHOWN])}: kernel timers were not dilated")
    return contradictions, warnings, details


def only_late(row: Row) -> str | None:
    """The contradiction of a cell that is invalid only because the machine was late; None for all others.

    Such a cell may be valid in another run.
    """
    if row["status"] != "invalid":
        return None
    late: str | None = json.loads(row["evidence"]).get("wall", {}).get("late")
    return late if row["contradictions"] == [late] else None


def _lateness(
    plan: Plan, wall: Wall, known: dict[str, NodeWall], contradictions: list[str], warnings: list[str]
) -> dict[str, object]:
    rtt_ns = shortest_rtt_ns(plan) * wall.dilation
    packet_ns = fastest_packet_ns(plan) * wall.dilation
    # On the host's kernel only the agent's deadlines are known: they delay starts of flows, not packets.
    for name in wall.host_kernel:
        agent_ns = known.get(name, NodeWall()).late_ns.p99
        if rtt_ns and agent_ns > LATE_SHARE * rtt_ns:
            warnings.append(
                f"{name}, on the machine's kernel, began and sampled flows up to {agent_ns / 1e3:.4g} us late"
            )
    guests = ((name, node) for name, node in known.items() if name not in wall.host_kernel)
    late = sorted(guests, key=lambda item: -item[1].late_ns.p99)
    too_late = None
    if late and rtt_ns:
        name, worst = late[0][0], late[0][1].late_ns
        if worst.p99 > LATE_SHARE * rtt_ns:
            too_late = (
                f"deadlines of {name} ran late by {worst.p99 / 1e3:.4g} us (99th percentile), more than"
                f" {LATE_SHARE:.0%} of the shortest round trip of {rtt_ns / 1e3:.4g} us: not faithful;"
                f" a dilation above {wall.dilation} would be"
            )
            contradictions.append(too_late)
        elif worst.p99 > LATE_PACKETS * packet_ns:
            warnings.append(
                f"deadlines of {name} ran late by {worst.p99 / packet_ns:.3g} packet times (99th percentile):"
                " packets left in bursts"
            )
    return {
        "late": too_late,
        "late_p99_ns": late[0][1].late_ns.p99 if late else None,
        "late_max_ns": wall.latest_ns,
        "shortest_rtt_real_ns": rtt_ns or None,
        "packet_real_ns": packet_ns,
        "late_share_of_rtt": late[0][1].late_ns.p99 / rtt_ns if late and rtt_ns else None,
    }


def _offloads(known: dict[str, NodeWall], contradictions: list[str]) -> None:
    for name, node in known.items():
        for interface, counted in node.interfaces.items():
            if counted.offloads:
                contradictions.append(f"{name}:{interface} has offloads on: {', '.join(counted.offloads)}")


def _cpu(known: dict[str, NodeWall], warnings: list[str]) -> dict[str, float | None]:
    wall_ns = max((node.wall_ns for node in known.values()), default=0)
    if not wall_ns:
        return {"cpu_share": None, "steal_share": None}
    cores = os.cpu_count() or 1
    busy = sum(node.cpu_ns for node in known.values()) / wall_ns / cores
    steal = max(node.steal_ns / max(node.wall_ns, 1) for node in known.values()) / cores
    if busy > BUSY_SHARE:
        warnings.append(f"the nodes kept the machine's {cores} cores busy for {busy:.0%} of the time")
    if steal > STEAL_SHARE:
        warnings.append(f"other machines took {steal:.1%} of this machine's time (steal)")
    return {"cpu_share": busy, "steal_share": steal}


def fastest_packet_ns(plan: Plan) -> int:
    """The transmission time of a full frame on the fastest link in lab time."""
    return min(
        (end.transmit_ns(link.mtu + ETHERNET_BYTES) for link in plan.links for end in (link.a, link.b)), default=1
    )
