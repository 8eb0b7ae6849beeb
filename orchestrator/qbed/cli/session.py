# SPDX-License-Identifier: Apache-2.0
"""`qbed up`, `exec`, `advance`, `down`, `ps`: a lab to try things in. Virtual time stands still between commands."""

from __future__ import annotations

import base64
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from qbed.cli.run import parse_settings
from qbed.sessions import Conversation, Session, SessionError, session, sessions, start, stop
from qbed.units import parse_duration

LabName = Annotated[str, typer.Argument(metavar="LAB", help="The lab's name, its folder or its file.")]


def register(app: typer.Typer) -> None:
    app.command()(up)
    app.command("exec", context_settings={"ignore_unknown_options": True})(execute)
    app.command()(advance)
    app.command()(down)
    app.command()(ps)


def up(
    lab: Annotated[Path, typer.Argument(metavar="LAB", help="The lab's folder or file.")],
    seed: Annotated[int | None, typer.Option(min=0, help="The seed of everything random.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", metavar="FIELD=VALUE", help="A field of the lab.")] = None,
) -> None:
    """Bring a lab up: its nodes, links and queues, without its workload."""
    from qbed.compile import compile_lab
    from qbed.lab import load_lab

    file = _file(lab)
    plan = compile_lab(load_lab(file, parse_settings(set_ or [])), seed)
    start(plan, file)
    names = [node.name for node in plan.nodes]
    shown = " ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
    print(f"{plan.lab} is up: {shown}")
    print(f"try: qbed exec {plan.lab} {names[0]} -- ip addr")


def execute(
    lab: LabName,
    node: Annotated[str, typer.Argument(help="The node.")],
    command: Annotated[list[str], typer.Argument(help="The command, after `--`.")],
    background: Annotated[bool, typer.Option("--background", "-d", help="Let it run while other commands do.")] = False,
) -> None:
    """Run a command of this machine on a node; its exit status is the command's.

    A background command runs only while another one does, or during `qbed advance`: virtual time stands still
    otherwise.
    """
    request: dict[str, object] = {
        "command": "background" if background else "exec",
        "node": node,
        "argv": command,
        "env": {},
        "cwd": "/",
    }
    with _find(lab).connect() as conversation:
        conversation.send(request)
        try:
            status = _follow(conversation)
        except KeyboardInterrupt:
            conversation.send({"command": "interrupt"})
            status = _after_interrupt(conversation)
    raise typer.Exit(status)


def _follow(conversation: Conversation) -> int:
    """Pass on what a command says; returns its exit status."""
    for answer in conversation.answers():
        match answer.get("event"):
            case "stdout" | "stderr" as stream:
                os.write(1 if stream == "stdout" else 2, base64.b64decode(answer["data"]))
            case "started":
                print(f"started, output in {answer['output']}")
                return 0
            case "exit":
                return int(answer["code"])
    return 1


def _after_interrupt(conversation: Conversation) -> int:
    """The command has been interrupted: show its last words, but a second Ctrl-C leaves at once."""
    try:
        _follow(conversation)
    except KeyboardInterrupt:
        print("\nleft; the keeper ends the command", file=sys.stderr)
    return 130


def advance(
    lab: LabName,
    duration: Annotated[str, typer.Argument(help="How long, such as `10 ms`.")],
) -> None:
    """Let virtual time pass."""
    try:
        ns = parse_duration(duration)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="DURATION") from None
    with _find(lab).connect() as conversation:
        conversation.send({"command": "advance", "ns": ns})
        for answer in conversation.answers():
            if answer.get("event") == "exit":
                print(f"virtual time: {_clock(int(answer['time_ns']))}")
                return


def down(
    lab: Annotated[str | None, typer.Argument(metavar="LAB", help="The lab's name, its folder or its file.")] = None,
    every: Annotated[bool, typer.Option("--all", help="All labs that are up.")] = False,
) -> None:
    """Take a lab down."""
    if (lab is None) != every:
        raise typer.BadParameter("expected a lab or --all")
    for one in sessions() if lab is None else [_find(lab)]:
        stop(one)
        print(f"{one.name} is down")


def ps() -> None:
    """List the labs that are up."""
    rows = [("LAB", "KEEPER", "VIRTUAL TIME", "RUNS", "FILE")]
    for one in sessions():
        with one.connect() as conversation:
            conversation.send({"command": "status"})
            status = next(conversation.answers())
        file, runs = (one.folder / "lab").read_text(), "; ".join(status["running"]) or "-"
        rows.append((one.name, str(status["pid"]), _clock(status["time_ns"]), runs, file))
    widths = [max(len(row[i]) for row in rows) for i in range(5)]
    for row in rows:
        print("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())


def _file(lab: Path) -> Path:
    return lab / "lab.yml" if lab.is_dir() else lab


def _find(lab: str) -> Session:
    """The session of a lab by its name, or by the file or folder that it was brought up from."""
    path = Path(lab)
    if path.exists() and not session(lab).is_up():
        file = str(_file(path).resolve())
        for one in sessions():
            if (one.folder / "lab").read_text() == file:
                return one
        raise SessionError(f"the lab of {path} is not up; `qbed ps` lists what is up")
    if not lab or "/" in lab or lab.startswith("."):
        raise SessionError(f"there is no lab {lab}; `qbed ps` lists what is up")
    return session(lab)


def _clock(ns: int) -> str:
    """Virtual time since boot."""
    return f"{ns / 1e9:.9f} s"
