# SPDX-License-Identifier: Apache-2.0
"""Labs in containers that are brought up by hand: `qbed up LAB --on containerlab`. Docker keeps them."""

from __future__ import annotations

import secrets
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from qbed.errors import QbedError
from qbed.lab.model import Lab
from qbed.plan.model import Plan
from qbed.substrates.containers.cell import clear_the_way, deployed, origin_for, ready_until
from qbed.substrates.containers.engine import Engine
from qbed.substrates.containers.folder import NODES, write_folder
from qbed.substrates.containers.images import images, role
from qbed.substrates.containers.labs import (
    TOPOLOGY,
    Record,
    check_machine,
    destroy,
    is_busy,
    lock,
    read_record,
)
from qbed.substrates.containers.nodes import connect_to
from qbed.substrates.containers.placement import Machine, Placement, place
from qbed.substrates.sessions import Conversation, SessionError, session, state_folder

CELL = "cell"
BOOT_S = 60.0
ANSWER_S = 30.0
"""A node that runs has started a program long before."""


def start(lab: Lab, plan: Plan, file: Path, dilation: int | None = None) -> Placement:
    """Bring a lab up: returns when its nodes run. What a crash left of it is taken away first.

    `dilation` None: the smallest at which this machine keeps up.
    """
    name = plan.lab
    if session(name).is_up():
        raise SessionError(f"the lab {name} is up already, in virtual time; `qbed down {name}` takes it down")
    before = read_record(name)
    if before is not None and before.state == "up":
        raise SessionError(f"the lab {name} is up already; `qbed down {name}` takes it down")
    if dilation is None:  # what judges the cells of the calibration takes long to import
        from qbed.runs.calibrate import calibrated

        dilation = calibrated(lab, plan)
    placement = place(lab, plan, Machine(), dilation)
    names = images({role(node) for node in plan.nodes}, build=True)
    folder = state_folder() / name / CELL
    record = Record(
        name=name,
        folder=str(folder),
        nodes=tuple(node.name for node in plan.nodes),
        kind="lab",
        file=str(file.resolve()),
        dilation=dilation,
        host_kernel=tuple(plan.nodes[node].name for node in placement.host_kernel),
    )
    clear_the_way(record)
    try:
        check_machine(name, set(names.values()))
        record.write()
        write_folder(folder, plan, placement, names, name=name, file=TOPOLOGY, start="on go")
        with deployed(record) as nodes:
            nodes.gather(ready_until(plan))
            origin_ns = origin_for(plan, dilation, 0)  # no common beginning to wait for: ready is who has booted
            nodes.go("lab", origin_ns)
            nodes.wait({"ready"}, (origin_ns + plan.epoch_ns * dilation) / 1e9 + BOOT_S)
            replace(record, state="up", origin_ns=origin_ns + plan.epoch_ns * dilation).write()
    except BaseException:
        with suppress(QbedError), lock(name):
            destroy(record)
            record.forget()
        raise
    return placement


def converse(record: Record, node: str) -> Conversation:
    """A conversation with a node's control socket."""
    if node not in record.nodes:
        raise SessionError(f"{record.name} has no node {node}: it has {', '.join(record.nodes[:12])}")
    if record.state != "up":
        raise SessionError(f"{record.name} did not come up; `qbed down {record.name}` takes away what is left of it")
    try:
        return Conversation(connect_to(record.path / NODES / node))
    except OSError as error:
        raise SessionError(
            f"node {node} of {record.name} does not answer ({error.strerror}): `qbed ps` shows what runs"
        ) from error


def request(record: Record, node: str, argv: list[str], *, background: bool) -> tuple[dict[str, Any], Path | None]:
    """The command for a node's control socket; in the background what it prints goes to the file that is returned."""
    message: dict[str, Any] = {"command": "exec", "id": 1, "node": node, "argv": argv, "env": {}, "cwd": "/"}
    if not background:
        return message, None
    name = f"background-{secrets.token_hex(4)}.log"
    # The node's own folder, as programs in it see it: on the lab's kernel it is the guest's /mnt.
    inside = f"{'/qbed' if node in record.host_kernel else '/mnt'}/{name}"
    wrapped = ["/bin/sh", "-c", f'exec "$@" >{inside} 2>&1 </dev/null', "sh", *argv]
    return message | {"command": "background", "argv": wrapped}, record.path / NODES / node / name


def running(record: Record) -> str:
    """How many of a lab's containers run, for `qbed ps`."""
    if record.state != "up":
        return "comes up" if is_busy(record.name) else "broken"
    try:
        found = Engine().containers(record.name)
    except QbedError as error:
        return str(error).partition(":")[0]
    alive = sum(container.state == "running" for container in found)
    return f"{alive} of {len(record.nodes)} nodes"


def paper_time_ns(record: Record) -> int:
    """The lab's time now, since its epoch."""
    return (time.monotonic_ns() - record.origin_ns) // record.dilation if record.state == "up" else 0
