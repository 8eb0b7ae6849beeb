# SPDX-License-Identifier: Apache-2.0
"""A lab that is up, from Python: `with qbed.up(lab) as live: live.exec("h1", "ping -c 3 h3")`."""

from __future__ import annotations

import base64
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from qbed.api.labs import Lab
from qbed.base import terminal
from qbed.config.units import parse_duration
from qbed.substrates import DEFAULT, Deployment, Limits, find_lab, link_changes, parse_pace, substrate
from qbed.substrates.rebuild import build_changed


@dataclass(frozen=True)
class CommandResult:
    """The exit status and output of a command."""

    status: int
    stdout: str
    stderr: str


@dataclass(frozen=True)
class Live:
    """A lab that is up; `deployment` is its full interface."""

    deployment: Deployment

    def exec(self, node: str, command: str | Sequence[str], *, stdin: bytes = b"") -> CommandResult:
        """Run a command on a node, in a shell's words or as a list, to its end."""
        argv = shlex.split(command) if isinstance(command, str) else list(command)
        output = {"stdout": b"", "stderr": b""}
        status = 1
        with self.deployment.exec(node, argv, background=False, stdin=stdin) as execution:
            for answer in execution.events():
                if answer["event"] in output:
                    output[answer["event"]] += base64.b64decode(answer["data"])
                elif answer["event"] == "exit":
                    status = int(answer["code"])
                    break
        return CommandResult(
            status, output["stdout"].decode(errors="replace"), output["stderr"].decode(errors="replace")
        )

    def advance(self, duration: str) -> int:
        """Let time pass, such as `10 ms`; returns the time since the epoch, in ns."""
        return self.deployment.advance(parse_duration(duration))

    def set_pace(self, pace: str) -> None:
        """Set how time passes while a command runs: `fast`, `real`, or `manual`, by `advance` alone. ValueError."""
        self.deployment.set_pace(parse_pace(pace))

    def set(self, link: str, **fields: str) -> None:
        """Change links, as `qbed set`: `live.set("s1-s2", rate="20 Mbit/s", loss="1 %")`. ValueError."""
        link_changes.set_links(self.deployment, link, fields)

    def undo(self) -> None:
        """Undo the last `set`. SessionError if there is none."""
        link_changes.undo(self.deployment)

    def workload(self) -> None:
        """Start the lab's own workload: its times count from 1 s later."""
        self.deployment.workload()

    @property
    def time_ns(self) -> int:
        """The lab's time, since its epoch."""
        return self.deployment.status().time_ns


@contextmanager
def up(lab: Lab, *, seed: int | None = None, name: str | None = None, on: str = DEFAULT) -> Iterator[Live]:
    """Bring a lab up, and take it down on exit. `name` replaces the lab's name."""
    build_changed(terminal.print_status)
    plan = (lab if name is None else lab.set(name=name)).plan(seed)
    where = substrate(on)
    where.check_name_free(plan.lab)
    where.up(plan, lab.file, 1, Limits())
    live = Live(find_lab(plan.lab))
    try:
        yield live
    finally:
        live.deployment.stop()
