# SPDX-License-Identifier: Apache-2.0
"""`qbed shell` and `qbed capture`: interactive commands for a running lab."""

from __future__ import annotations

import os
import secrets
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from qbed.base import terminal
from qbed.base.errors import QbedError, nearest
from qbed.base.processes import raise_on
from qbed.cli import keyboard
from qbed.cli.session import LabName, at_keyboard, run_command
from qbed.substrates import Deployment, SessionError, find_lab

STEP_NS, MAX_STEPS = 1_000_000, 500
HEADER_BYTES = 24
"""Size of a pcap file's header. tcpdump writes it when it starts to capture."""
LOOK_S = 0.05
_CAPTURE = [
    *("/bin/sh", "-c"),
    'exec tcpdump -i "$1" -s "$2" -U --nano --immediate-mode -w - 2>/dev/null',
    "sh",
]
"""Arguments: the interface and the snapshot length."""
# In virtual time the prompt contains lab time.
_SHELL = [
    *("/bin/sh", "-c"),
    r"""[ -z "$QBED_EPOCH_US" ] || export PROMPT_COMMAND='
qbed_us=$((${EPOCHREALTIME/[^0-9]/} - QBED_EPOCH_US))
printf -v qbed_time "%d.%06d s " $((qbed_us / 1000000)) $((qbed_us % 1000000))'
export PS1="$1 "'${qbed_time}\w $ '
exec /bin/bash --norc""",
    "sh",
]
# The state between lines: the folder and the exported variables.
_LINE = """state=/tmp/.qbed-shell-$1
[ ! -f "$state" ] || . "$state"
eval "$2"
code=$?
{ export -p; printf 'cd -- %q\\n' "$PWD"; } >"$state"
exit $code"""


def register(app: typer.Typer) -> None:
    app.command()(shell)
    app.command()(capture)


def shell(
    lab: LabName,
    node: Annotated[str, typer.Argument(help="The node.")],
) -> None:
    """Run bash on a node at this terminal. Ctrl-D or `exit` ends it.

    Virtual time advances while a command runs, and stops while the shell waits for input. While a program reads keys
    (an editor, top), virtual time advances with the wall clock.

    Lines from a pipe run one by one. The working directory and exported variables are kept between lines.
    """
    running_lab = find_lab(lab)
    if keyboard.is_interactive():
        raise typer.Exit(at_keyboard(running_lab, node, [*_SHELL, node], shell=True))
    mark, status = secrets.token_hex(4), 0
    for line in filter(str.strip, sys.stdin):
        if line.split()[:1] == ["exit"]:
            break
        status = run_command(running_lab, node, ["/bin/bash", "-c", _LINE, "bash", mark, line])
    raise typer.Exit(status)


def capture(
    lab: LabName,
    end: Annotated[
        str, typer.Argument(metavar="END", help="The end of a link, such as `h1>s1`: the interface of h1 to s1.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="File for the packets instead of standard output.")
    ] = None,
    snaplen: Annotated[
        int, typer.Option(min=1, max=262144, help="Maximum number of captured bytes of each packet.")
    ] = 262144,
) -> None:
    """Capture packets of a lab that is up while others use it, until Ctrl-C or SIGTERM.

    `qbed capture LAB END | wireshark -k -i -` shows them live.

    In virtual time, packets are sent only while lab time advances: run `qbed exec` or `qbed advance` in another
    terminal.
    """
    if out is None and sys.stdout.isatty():
        raise typer.BadParameter(
            "cannot write packets to a terminal: expected --out FILE, or a pipe", param_hint="--out"
        )
    running_lab = find_lab(lab)
    node, interface = _interface(running_lab, end)
    raise_on(signal.SIGTERM, KeyboardInterrupt, once=True)
    with running_lab.exec(node, [*_CAPTURE, interface, str(snaplen)], background=True) as execution:
        started = next(answer for answer in execution.events() if answer.get("event") == "started")
    file = Path(started["output"])
    try:
        _begin(running_lab, file)
        terminal.print_status(f"capturing at {end} ({interface} of {node}); Ctrl-C ends it")
        with out.open("wb") if out is not None else os.fdopen(os.dup(1), "wb") as stream:
            _follow(running_lab, file, stream)
    except (KeyboardInterrupt, BrokenPipeError):
        pass
    finally:
        with suppress(SessionError):  # the lab or the job has ended
            running_lab.end(started["id"])


def _interface(lab: Deployment, end: str) -> tuple[str, str]:
    """Return the node and the interface of a link's end."""
    from qbed.plan.model import Plan
    from qbed.plan.ports import port_names

    plan = Plan.loads((lab.folder / "plan.json").read_bytes())
    names = port_names(plan)
    if end not in names:
        raise QbedError(f"no link of {lab.name} leads `{end}`{nearest(end, names)}")
    queue = plan.queues[names.index(end)]
    return plan.nodes[queue.node].name, queue.interface


def _begin(lab: Deployment, file: Path) -> None:
    """Advance lab time until tcpdump has started."""
    for _ in range(MAX_STEPS):
        if file.exists() and file.stat().st_size >= HEADER_BYTES:
            return
        try:
            lab.advance(STEP_NS)
        except SessionError:  # on the wall clock
            time.sleep(LOOK_S)
    raise QbedError(f"tcpdump has not started: {file}")


def _follow(lab: Deployment, file: Path, stream: BinaryIO) -> None:
    """Copy captured packets to `stream` while the lab is up."""
    with file.open("rb") as captured:
        while True:
            if piece := captured.read(1 << 16):
                stream.write(piece)
                stream.flush()
            elif not lab.is_up():
                return
            else:
                time.sleep(LOOK_S)
