# SPDX-License-Identifier: Apache-2.0
"""A lab that is up, from Python: `with qbed.up(lab) as live: live.exec("h1", "ping -c 3 h3")`."""

from __future__ import annotations

import base64
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from qbed.api.labs import Lab
from qbed.language.units import parse_duration
from qbed.substrates import DEFAULT, Deployment, Limits, find_lab, substrate
from qbed.substrates.rebuild import build_changed


@dataclass(frozen=True)
class Said:
    """What came of a command."""

    status: int
    stdout: str
    stderr: str


@dataclass(frozen=True)
class Live:
    """A lab that is up; `deployment` has what the command line does with it."""

    deployment: Deployment

    def exec(self, node: str, command: str | Sequence[str], *, stdin: bytes = b"") -> Said:
        """Run a command on a node, in a shell's words or as a list, to its end."""
        argv = shlex.split(command) if isinstance(command, str) else list(command)
        said = {"stdout": b"", "stderr": b""}
        status = 1
        with self.deployment.exec(node, argv, background=False, stdin=stdin) as execution:
            for answer in execution.events():
                if answer["event"] in said:
                    said[answer["event"]] += base64.b64decode(answer["data"])
                elif answer["event"] == "exit":
                    status = int(answer["code"])
                    break
        return Said(status, said["stdout"].decode(errors="replace"), said["stderr"].decode(errors="replace"))

    def advance(self, duration: str) -> int:
        """Let time pass, such as `10 ms`; returns the time since the epoch, in ns."""
        return self.deployment.advance(parse_duration(duration))

    def workload(self) -> None:
        """Start the lab's own workload: its times count from 1 s later."""
        self.deployment.workload()

    @property
    def time_ns(self) -> int:
        """The lab's time, since its epoch."""
        return self.deployment.status().time_ns


@contextmanager
def up(lab: Lab, *, seed: int | None = None, name: str | None = None, on: str = DEFAULT) -> Iterator[Live]:
    """The lab is up within; at the end it is taken down. `name`: instead of its own."""
    build_changed(lambda _: None)
    plan = (lab if name is None else lab.set(name=name)).plan(seed)
    where = substrate(on)
    where.check_name_free(plan.lab)
    where.up(plan, lab.file, 1, Limits())
    live = Live(find_lab(plan.lab))
    try:
        yield live
    finally:
        live.deployment.stop()
