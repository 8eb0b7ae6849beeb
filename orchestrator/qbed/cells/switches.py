# SPDX-License-Identifier: Apache-2.0
"""P4 switches: the rows of the tables `switches` and `p4_arrays`, and warnings about faults that make results doubtful
and about elements without a row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator

from qbed.base.json_files import Row
from qbed.plan.model import Plan
from qbed.telemetry.records import SHELL_DROPS, Counters, SwitchCounters

_FAULTS = {
    "too_many_rounds": "its program resubmits, recirculates or clones packets without end",
    "an action that looped too often": "an action of its program does not end",
    "no_memory": "its machine had no memory left",
}
"""Reasons for drops that are faults."""
_COLUMNS = {
    "counter": ("packets", "bytes"),
    "register": ("value",),
    "meter": ("green_packets", "yellow_packets", "red_packets"),
}
"""The columns of an array's elements, by its kind."""


def rows(plan: Plan, counters: Counters) -> Iterator[Row]:
    """A row for each P4 switch; its drops by reason include those of the module that runs the program."""
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


def array_rows(plan: Plan, counters: Counters) -> Iterator[Row]:
    """A row for each element of a program's counters, registers and meters that is not zero."""
    for node in plan.nodes:
        counted = counters.switches.get(node.name)
        if node.pipeline is None or counted is None:
            continue
        for array in counted.arrays:
            common = {"node": node.name, "p4_program": node.pipeline.program, "name": array.name}
            for index, *numbers in array.elements:
                yield common | {"index": index} | dict(zip(_COLUMNS[array.kind], numbers, strict=True))


def warnings(counters: Counters, of_schemes: Collection[str] = ()) -> Iterator[str]:
    """Warnings about packets lost by a fault of a switch's program or machine, about failed asserts, and about elements
    of arrays without a row. `of_schemes`: switches with the program of a scheme, of which large arrays are the state.
    """
    for name, counted in counters.switches.items():
        drops = Counter(_drops(counted))
        for reason, why in _FAULTS.items():
            if drops[reason]:
                yield f"switch {name} dropped {drops[reason]} packets ({reason}): {why}"
        if failed := counted.totals.get("asserts_failed", 0):
            yield f"switch {name}: asserts of its program failed {failed} times; the packets were processed further"
        for array in counted.arrays if name not in of_schemes else ():
            if array.nonzero is not None and array.nonzero > len(array.elements):
                text = f"{array.nonzero} elements of the {array.kind} {array.name} are not zero"
                yield f"switch {name}: {text}; the table p4_arrays has the first {len(array.elements)}"
    arrays = [(name, array) for name, counted in counters.switches.items() for array in counted.arrays]
    unread = [f"{array.name} of {name}" for name, array in arrays if array.over_limit and name not in of_schemes]
    if unread:
        yield f"{len(unread)} large arrays of P4 programs are not in the table p4_arrays, the first {unread[0]}"


def _drops(counted: SwitchCounters) -> dict[str, int]:
    dropped = {name: packets for name, packets in counted.shell.items() if name in SHELL_DROPS and packets}
    return dropped | counted.drops
