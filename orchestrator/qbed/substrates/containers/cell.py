# SPDX-License-Identifier: Apache-2.0
"""Cells on the wall clock: deploys a lab, starts its nodes at one instant, and merges their results."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from qbed.base.errors import QbedError
from qbed.plan.model import Plan
from qbed.substrates import CellError, Limits, Progress
from qbed.substrates.containers import beside, bmv2
from qbed.substrates.containers.folder import NODES, SOCKET, write_folder
from qbed.substrates.containers.gather import gather
from qbed.substrates.containers.labs import (
    TOPOLOGY,
    Record,
    check_machine,
    deploy,
    destroy,
    ended_container,
    lock,
    read_record,
    take_down,
    up,
)
from qbed.substrates.containers.nodes import Nodes, nodes_of
from qbed.substrates.containers.placement import Placement

LEAD_NS, LEAD_PER_NODE_NS, LEAD_PER_VALUE_NS = 1_500_000_000, 200_000_000, 200_000
"""Real time from the start command to the epoch, in which each node boots and fills its P4 tables and registers."""
READY_S, READY_PER_NODE_S = 60.0, 1.0
LATE_S = 60.0
"""How long nodes may take to write their results."""


def origin_for(plan: Plan, dilation: int, lead_ns: int) -> int:
    """The CLOCK_MONOTONIC at which paper time is 0, so that the epoch comes after `lead_ns`. It may be past.

    Programs of the plan (routing daemons) have all the time that the plan gives them before the epoch.
    """
    epoch_ns = plan.epoch_ns * dilation
    if any(node.programs for node in plan.nodes):
        lead_ns = max(lead_ns, epoch_ns)
    return time.monotonic_ns() + lead_ns - epoch_ns


def ready_until(plan: Plan) -> float:
    """By when (`time.monotonic`) the nodes of a lab that has just been deployed must wait for the word."""
    return time.monotonic() + READY_S + READY_PER_NODE_S * len(plan.nodes)


@contextmanager
def deployed(record: Record) -> Iterator[Nodes]:
    """The lab of a record. Its folder is written, and its nodes wait. At the end the caller decides what stays."""
    with lock(record.name) as held:
        record.write()
        deploy(record, held)
        with nodes_of(record.nodes, record.path, lambda: ended_container(record)) as nodes:
            yield nodes


class ContainersCell:
    """A cell in containers: it has the whole machine."""

    def __init__(self, folder: Path, plan: Plan, placement: Placement, images: dict[str, str]) -> None:
        """Write the lab's folder; `images` by role."""
        self._folder, self._plan, self._placement = folder, plan, placement
        self._images = images
        self._record = Record(
            name=cell_name(folder, plan),
            folder=str(folder),
            nodes=tuple(node.name for node in plan.nodes),
            kind="cell",
            file=str(folder / TOPOLOGY),
            dilation=placement.dilation,
            host_kernel=tuple(plan.nodes[node].name for node in placement.host_kernel),
            beside=beside.names(plan),
        )
        write_folder(folder, plan, placement, images, name=self._record.name, file=TOPOLOGY, start="on go")

    def run(self, limits: Limits, progress: Progress) -> None:
        """Run the lab from its epoch to its end; nothing of it is left when this returns or raises."""
        record, plan = self._record, self._plan
        remove_leftovers(record)
        check_machine(record.name, self._images, beside.host_images(plan))
        try:
            with deployed(record) as nodes:
                up(record)
                _run(nodes, plan, record, limits, progress)
            gather(self._folder, plan, self._placement)
        except BaseException:
            # The first error is reported. If the lab cannot be removed now, its record stays for `qbed down`.
            with suppress(QbedError):
                take_down(record)
            raise
        take_down(record)
        for node in plan.nodes:
            (self._folder / NODES / node.name / SOCKET).unlink(missing_ok=True)


def cell_name(folder: Path, plan: Plan) -> str:
    """A name that no other cell on this machine has: of the lab and the cell's folder."""
    return f"{plan.lab[:40]}-{hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:8]}"


def remove_leftovers(record: Record) -> None:
    """Remove the remains of a crashed lab of this name. Raise `SessionError` if another process uses it."""
    before = read_record(record.name)
    if before is not None:
        with lock(record.name):
            destroy(before)
            before.delete()


def _run(nodes: Nodes, plan: Plan, record: Record, limits: Limits, progress: Progress) -> None:
    dilation = record.dilation
    nodes.gather(ready_until(plan))
    bmv2.configure_switches(plan, record.path / NODES, record.name, dilation)
    values = [len(node.pipeline.entries) + len(node.pipeline.registers) for node in plan.nodes if node.pipeline]
    lead_ns = LEAD_NS + LEAD_PER_NODE_NS * len(plan.nodes) + LEAD_PER_VALUE_NS * sum(values)
    origin_ns = origin_for(plan, dilation, lead_ns)
    begin_ns = origin_ns + plan.epoch_ns * dilation
    lasts_ns = plan.duration_ns * dilation
    if lasts_ns > limits.cell_s * 1e9:
        raise CellError(
            f"the cell would last {lasts_ns / 1e9:.0f} s of wall clock ({dilation} times its duration), longer than the"
            f" {limits.cell_s:g} s that it may; --cell-timeout says more, a smaller --dilate makes it shorter"
        )
    nodes.start("cell", origin_ns)
    nodes.wait(
        {"ended"},
        (begin_ns + lasts_ns) / 1e9 + LATE_S,
        lambda: progress(min(1.0, max(0.0, (time.monotonic_ns() - begin_ns) / lasts_ns))),
    )
