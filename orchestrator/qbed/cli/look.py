# SPDX-License-Identifier: Apache-2.0
"""`qbed shell`, `capture`: to look around in a lab that is up."""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from qbed import terminal
from qbed.cli.session import LabName, carry_out
from qbed.errors import QbedError, nearest
from qbed.substrates import Deployment, SessionError, find_lab

STEP_NS, MOST_STEPS = 1_000_000, 500
HEADER_BYTES = 24
"""Of a pcap file: the capture has begun when it is there."""
LOOK_S = 0.05
_CAPTURE = [
    *("/bin/sh", "-c"),
    'exec tcpdump -i "$1" -s "$2" -U --nano --immediate-mode -w - 2>/dev/null',
    "sh",
]
"""The interface, and the snapshot's length."""
# What a line leaves to the next one: the folder, and variables that are exported.
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
    """Type commands for a node, a line each, as to a shell; an empty input (Ctrl-D) or `exit` ends it.

    Time passes while a command runs, and stands still while you type. The folder and exported variables stay from line
    to line. Commands have no terminal: what fills the screen (vi, top) does not work.
    """
    with suppress(ImportError):
        import readline  # noqa: F401 - lines can be edited, and come back
    one, mark, status = find_lab(lab), secrets.token_hex(4), 0
    for line in _lines(one, node):
        if line.split()[:1] == ["exit"]:
            break
        status = carry_out(one, node, ["/bin/bash", "-c", _LINE, "bash", mark, line])
    raise typer.Exit(status)


def _lines(lab: Deployment, node: str) -> Iterator[str]:
    """What is typed, or what a pipe has, without what is empty. On a terminal the prompt has the lab's time."""
    typed = sys.stdin.isatty()
    while True:
        try:
            line = input(f"{node} {lab.status().time_ns / 1e9:.9f} s $ " if typed else "")
        except EOFError:
            if typed:
                terminal.say("")
            return
        except KeyboardInterrupt:
            terminal.say("")
            continue
        if line.strip():
            yield line


def capture(
    lab: LabName,
    end: Annotated[str, typer.Argument(metavar="END", help="The end of a link, such as `h1>s1`: at h1, towards s1.")],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="A file for the packets, instead of standard output.")
    ] = None,
    snaplen: Annotated[int, typer.Option(min=1, max=262144, help="The most bytes of each packet.")] = 262144,
) -> None:
    """Capture packets of a lab that is up while others use it, until Ctrl-C.

    `qbed capture LAB END | wireshark -k -i -` shows them as they come.

    In virtual time packets come as time passes: by `qbed exec` and `advance` in another terminal.
    """
    if out is None and sys.stdout.isatty():
        raise typer.BadParameter("packets are for no terminal: expected --out FILE, or a pipe", param_hint="--out")
    one = find_lab(lab)
    node, interface = _interface(one, end)
    with one.exec(node, [*_CAPTURE, interface, str(snaplen)], background=True) as execution:
        started = next(answer for answer in execution.answers() if answer.get("event") == "started")
    file = Path(started["output"])
    try:
        _begin(one, file)
        terminal.tell(f"capturing at {end} ({interface} of {node}); Ctrl-C ends it")
        with out.open("wb") if out is not None else os.fdopen(os.dup(1), "wb") as stream:
            _follow(one, file, stream)
    except (KeyboardInterrupt, BrokenPipeError):
        pass
    finally:
        with suppress(SessionError):  # the lab has gone, or its job
            one.end(started["id"])


def _interface(lab: Deployment, end: str) -> tuple[str, str]:
    """The node and the interface of a link's end."""
    from qbed.plan.model import Plan
    from qbed.plan.ports import port_names

    plan = Plan.loads((lab.folder / "plan.json").read_bytes())
    names = port_names(plan)
    if end not in names:
        raise QbedError(f"no link of {lab.name} leads `{end}`{nearest(end, names)}")
    queue = plan.queues[names.index(end)]
    return plan.nodes[queue.node].name, queue.interface


def _begin(lab: Deployment, file: Path) -> None:
    """Let time pass until packets are captured: whatever comes next is in it."""
    for _ in range(MOST_STEPS):
        if file.exists() and file.stat().st_size >= HEADER_BYTES:
            return
        try:
            lab.advance(STEP_NS)
        except SessionError:  # it passes by itself
            time.sleep(LOOK_S)
    raise QbedError(f"tcpdump does not begin: {file}")


def _follow(lab: Deployment, file: Path, stream: BinaryIO) -> None:
    """Pass on what is captured while the lab is up."""
    with file.open("rb") as captured:
        while True:
            if piece := captured.read(1 << 16):
                stream.write(piece)
                stream.flush()
            elif not lab.is_up():
                return
            else:
                time.sleep(LOOK_S)
