# SPDX-License-Identifier: Apache-2.0
"""`qbed up`, `exec`, `advance`, `down`, `ps`: a lab to try things in. Virtual time stands still between commands; in
containers it is the wall clock's.
"""

from __future__ import annotations

import base64
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qbed.cli.run import Dilate, parse_dilation, parse_settings, parse_substrates
from qbed.errors import QbedError
from qbed.lab.library import find
from qbed.language.units import parse_duration
from qbed.substrates import VIRTUAL
from qbed.substrates.sessions import CELL, LAB, Conversation, Session, SessionError, session, sessions, start, stop

if TYPE_CHECKING:  # loading these takes longer than most commands
    from qbed.lab.model import Lab
    from qbed.plan.model import Plan
    from qbed.substrates.containers.labs import Record

LabName = Annotated[str, typer.Argument(metavar="LAB", help="The lab's name, its folder or its file.")]


def register(app: typer.Typer) -> None:
    app.command()(up)
    app.command("exec", context_settings={"ignore_unknown_options": True})(execute)
    app.command()(advance)
    app.command()(down)
    app.command()(ps)


def up(
    lab: Annotated[
        Path, typer.Argument(metavar="LAB", help="The lab's folder, its file, or a name of `qbed labs`.", callback=find)
    ],
    seed: Annotated[int | None, typer.Option(min=0, help="The seed of everything random.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", metavar="FIELD=VALUE", help="A field of the lab.")] = None,
    on: Annotated[str, typer.Option("--on", help="`virtual`, or `containerlab`: in containers, on the wall clock.")] = (
        VIRTUAL
    ),
    dilate: Dilate = "auto",
) -> None:
    """Bring a lab up: its nodes, links and queues, without its workload."""
    from qbed.lab.model import load_lab
    from qbed.plan.compile import compile_lab
    from qbed.substrates.rebuild import build_changed

    build_changed(lambda text: print(text, file=sys.stderr))
    file = _file(lab)
    (substrate,) = parse_substrates(on, single=True)
    loaded = load_lab(file, parse_settings(set_ or []))
    plan = compile_lab(loaded, seed)
    if substrate == VIRTUAL:
        start(plan, file)
    else:
        _up_in_containers(loaded, plan, file, parse_dilation(dilate))
    names = [node.name for node in plan.nodes]
    shown = " ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
    print(f"{plan.lab} is up: {shown}")
    print(f"try: qbed exec {plan.lab} {names[0]} -- ip addr")


def _up_in_containers(lab: Lab, plan: Plan, file: Path, dilation: int | None) -> None:
    from qbed.substrates.containers.session import start as start_in_containers

    placement = start_in_containers(lab, plan, file, dilation)
    for note in placement.notes:
        print(note, file=sys.stderr)
    for warning in placement.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    if placement.dilation > 1:
        print(f"its time goes {placement.dilation} times slower than the clock: `--dilate 1` changes that")


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
    if (record := _record(lab)) is not None:
        raise typer.Exit(_execute_in_containers(record, node, command, background))
    request: dict[str, object] = {
        "command": "background" if background else "exec",
        "node": node,
        "argv": command,
        "env": {},
        "cwd": "/",
    }
    one = _find(lab)
    _check_seen(one, command[0])
    with one.connect() as conversation:
        conversation.send(request)
        try:
            status = _follow(conversation)
        except KeyboardInterrupt:
            conversation.send({"command": "interrupt"})
            status = _after_interrupt(conversation)
    raise typer.Exit(status)


def _check_seen(one: Session, program: str) -> None:
    """Say it if the program is one that the lab does not see, though this machine has it."""
    from qbed.substrates.virtual.guest import HIDDEN, SEEN, TOOLS

    path = Path(program)
    if one.is_up() and any(scratch in path.parents for scratch in HIDDEN) and path.exists():
        seen = sorted(link.readlink() for link in (one.folder / CELL / TOOLS / SEEN).glob("*"))
        if not any(folder in path.parents for folder in seen):
            what = ", ".join(map(str, seen)) or "nothing"
            raise SessionError(
                f"{program}: of this machine's /tmp and /run the lab {one.name} sees {what};"
                f" it sees the folder where it is brought up: `qbed up` it in {path.parent}"
            )


def _execute_in_containers(record: Record, node: str, command: list[str], background: bool) -> int:
    from qbed.substrates.containers.session import ANSWER_S, converse, request

    message, output = request(record, node, command, background=background)
    with converse(record, node) as conversation:
        conversation.patience(ANSWER_S)  # until it runs
        conversation.send(message)
        try:
            return _follow(conversation, output)
        except TimeoutError:
            raise SessionError(
                f"node {node} of {record.name} has not started the command within {ANSWER_S:g} s: it hangs, or the"
                f" machine has far too much to do; `qbed down {record.name}` takes the lab down"
            ) from None
        except KeyboardInterrupt:
            return 130  # the node ends what nobody listens to any more


def _follow(conversation: Conversation, output: Path | None = None) -> int:
    """Pass on what a command says; returns its exit status. `output`: where it says it in the background instead."""
    for answer in conversation.answers():
        match answer.get("event"):
            case "stdout" | "stderr" as stream:
                os.write(1 if stream == "stdout" else 2, base64.b64decode(answer["data"]))
            case "running" if output is not None:
                print(f"started, output in {output}")
                return 0
            case "running":
                conversation.patience(None)
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
    """Let virtual time pass, and say how much has passed since the lab's epoch, when it came up."""
    try:
        ns = parse_duration(duration)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="DURATION") from None
    if _record(lab) is not None:
        raise SessionError(f"{lab} is in containers: its time passes by itself")
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
    if lab is not None and (record := _record(lab)) is not None:
        _take_down([record])
        return
    for one in sessions() if lab is None else [_find(lab)]:
        stop(one)
        print(f"{one.name} is down")
    if lab is None:
        _take_down(_records())


def _take_down(found: list[Record]) -> None:
    """Take labs in containers down; what cannot be is said at the end, and does not keep the others up."""
    from qbed.substrates.containers.labs import take_down

    wrong: list[str] = []
    for record in found:
        try:
            take_down(record)
        except QbedError as error:
            wrong.append(f"{record.name}: {error}")
        else:
            print(f"{record.name} is down")
    if wrong:
        raise SessionError("\n".join(wrong))


def ps() -> None:
    """List the labs that are up, with their time: since the lab's epoch, as all times of its samples and results."""
    rows = [("LAB", "KEEPER", "TIME", "RUNS", "ON", "FILE")]
    for one in sessions():
        with one.connect() as conversation:
            conversation.send({"command": "status"})
            status = next(conversation.answers())
        file, runs = (one.folder / LAB).read_text(), "; ".join(status["running"]) or "-"
        rows.append((one.name, str(status["pid"]), _clock(status["time_ns"]), runs, VIRTUAL, file))
    rows.extend(_rows_in_containers())
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        print("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())


def _rows_in_containers() -> Iterator[tuple[str, str, str, str, str, str]]:
    found = _records()
    if found:
        from qbed.substrates.containers.session import paper_time_ns, running

        for record in found:
            what = "a cell of `qbed run`" if record.kind == "cell" else running(record)
            yield record.name, "docker", _clock(paper_time_ns(record)), what, "containerlab", record.file


def _records() -> list[Record]:
    from qbed.substrates.containers.labs import records

    return records()


def _record(lab: str) -> Record | None:
    """The record of a lab in containers by its name, or by the file or folder that it was brought up from."""
    path = Path(lab)
    file = str(_file(path).resolve()) if path.exists() else None
    found = _records()
    return next((one for one in found if one.name == lab), None) or next(
        (one for one in found if one.file == file), None
    )


def _file(lab: Path) -> Path:
    return lab / "lab.yml" if lab.is_dir() else lab


def _find(lab: str) -> Session:
    """The session of a lab by its name, or by the file or folder that it was brought up from."""
    path = Path(lab)
    if path.exists() and not session(lab).is_up():
        file = str(_file(path).resolve())
        for one in sessions():
            if (one.folder / LAB).read_text() == file:
                return one
        raise SessionError(f"the lab of {path} is not up; `qbed ps` lists what is up")
    if not lab or "/" in lab or lab.startswith("."):
        raise SessionError(f"there is no lab {lab}; `qbed ps` lists what is up")
    return session(lab)


def _clock(ns: int) -> str:
    """The lab's time, since its epoch."""
    return f"{ns / 1e9:.9f} s"
