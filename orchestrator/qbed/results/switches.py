# SPDX-License-Identifier: Apache-2.0
"""Switches in P4: their rows in `switches.parquet`, and warnings for what makes the results of a program doubtful."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from qbed.plan.model import Plan
from qbed.telemetry.records import SHELL_DROPS, Counters, SwitchCounters

_FAULTS = {
    "too_many_rounds": "its program resubmits, recirculates or clones packets without end",
    "an action that looped too often": "an action of its program does not end",
    "no_memory": "its machine had no memory left",
}
"""Reasons for drops that no program asks for."""


def rows(plan: Plan, counters: Counters) -> Iterator[dict[str, Any]]:
    """A row for each switch in P4; its drops by reason, those of its program and those of the module around it."""
    counts = ("ingress", "egress", "cloned", "replicated", "resubmitted", "recirculated")
    for node in plan.nodes:
        counted = counters.switches.get(node.name)
        if node.pipeline is None or counted is None:
            continue
        yield {
            "node": node.name,
            "p4_program": node.pipeline.program,
            "received_packets": counted.shell.get("received", 0),
            "sent_packets": counted.shell.get("sent", 0),
            **{f"{name}_packets": counted.totals.get(name, 0) for name in counts},
            **{name: counted.totals.get(name, 0) for name in ("parser_errors", "checksum_errors")},
            "drops": sorted(_drops(counted).items()),
        }


def warnings(counters: Counters) -> Iterator[str]:
    """Packets that a switch lost through a fault of its program or machine, and asserts that failed."""
    for name, counted in counters.switches.items():
        drops = Counter(_drops(counted))
        for reason, why in _FAULTS.items():
            if drops[reason]:
                yield f"switch {name} dropped {drops[reason]} packets ({reason}): {why}"
        if failed := counted.totals.get("asserts_failed", 0):
            yield f"switch {name}: asserts of its program failed {failed} times, and the packets went on"


def _drops(counted: SwitchCounters) -> dict[str, int]:
    dropped = {name: packets for name, packets in counted.shell.items() if name in SHELL_DROPS and packets}
    return dropped | counted.drops
