# SPDX-License-Identifier: Apache-2.0
"""`qbed up`, `exec`, `advance`, `down`, `ps`, `kill`: a lab to try things in. Virtual time stands still between
commands; in containers it is the wall clock's.
"""

from __future__ import annotations

import base64
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from qbed.base import terminal
from qbed.base.errors import QbedError
from qbed.cli import keyboard
from qbed.cli.run import (
    CellSpace,
    StallTimeout,
    Trust,
    parse_dilation,
    parse_settings,
    parse_space,
    parse_substrates,
)
from qbed.config.units import parse_duration
from qbed.lab.library import find
from qbed.substrates import (
    DEFAULT,
    Deployment,
    Execution,
    Limits,
    Pace,
    SessionError,
    find_lab,
    parse_pace,
    substrate,
    substrates,
)

LabName = Annotated[str, typer.Argument(metavar="LAB", help="The lab's name, its folder or its file.")]


def register(app: typer.Typer) -> None:
    app.command()(up)
    app.command("exec", context_settings={"ignore_unknown_options": True})(execute)
    app.command()(advance)
    app.command()(pace)
    app.command()(down)
    app.command()(ps)
    app.command()(kill)


def up(
    lab: Annotated[
        Path,
        typer.Argument(metavar="LAB", help="A lab's folder, its lab.yml, or a name of `qbed labs`.", callback=find),
    ],
    seed: Annotated[int | None, typer.Option(min=0, help="Seed instead of the lab's.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", metavar="FIELD=VALUE", help="A field of the lab.")] = None,
    on: Annotated[str, typer.Option("--on", help="`virtual`, or `containerlab`: in containers, on the wall clock.")] = (
        DEFAULT
    ),
    stall_timeout: StallTimeout = 300.0,
    cell_space: CellSpace = "64 GB",
    dilate: Annotated[
        str | None,
        typer.Option(
            "--dilate",
            metavar="N",
            help="Slowdown in containers; `auto` determines the smallest with exact results. Without it the lab runs"
            " in real time, and links are no faster than this machine forwards.",
        ),
    ] = None,
    name_: Annotated[
        str | None, typer.Option("--name", help="Name of the running lab; two of one lab need two names.")
    ] = None,
    workload: Annotated[bool, typer.Option("--workload", help="Start the workload 1 s after the lab is up.")] = False,
    pace: Annotated[str, typer.Option("--pace", help="`fast`, `real` or `manual`, as `qbed pace`.")] = "fast",
    trust: Trust = False,
) -> None:
    """Bring up a lab: its nodes, links and queues, and with --workload its workload."""
    from qbed.network.load import load_lab
    from qbed.plan.compile import compile_lab
    from qbed.substrates.rebuild import build_changed

    wanted = _parse_pace(pace, "--pace")
    build_changed(terminal.print_status)
    file = lab / "lab.yml" if lab.is_dir() else lab
    (name,) = parse_substrates(on, single=True)
    settings = parse_settings(set_ or []) | ({"name": name_} if name_ is not None else {})
    resolved = load_lab(file, settings)
    plan = compile_lab(resolved, seed)
    where = substrate(name)
    if wanted != "fast" and where.clock == "wall":
        raise typer.BadParameter(f"time passes by itself on `{name}`", param_hint="--pace")
    where.check_name_free(plan.lab)
    requested = parse_dilation(dilate) if dilate is not None else 1
    dilation, warnings = 1, list[str]()
    if where.clock == "wall":
        from qbed.runs.calibrate import calibrated  # what judges its cells takes long to import
        from qbed.runs.forwarding import capped_rates, overloaded_links
        from qbed.runs.rule_of_thumb import short_time_scales

        if dilate is None:
            rates, warnings = capped_rates(where, resolved, plan)
            plan = compile_lab(load_lab(file, settings | rates), seed) if rates else plan
        else:
            dilation = requested or calibrated(where, plan)
            warnings += overloaded_links(where, plan, dilation)
        warnings += short_time_scales(where, plan, dilation)
        terminal.print_status(f"{plan.lab} comes up: a second of the lab takes {dilation} s")
    brought = where.up(plan, file, dilation, Limits(stall_s=stall_timeout, space_bytes=parse_space(cell_space)))
    for note in brought.notes:
        terminal.print_status(note)
    terminal.warn([*brought.warnings, *warnings])
    if wanted != "fast":
        find_lab(plan.lab).set_pace(wanted)
    if workload:
        find_lab(plan.lab).workload()
    names = [node.name for node in plan.nodes]
    shown = " ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
    terminal.print_line(f"{plan.lab} is up: {shown}")
    terminal.print_line(f"try: qbed exec {plan.lab} {names[0]} -- ip addr")


def execute(
    lab: LabName,
    node: Annotated[str, typer.Argument(help="The node.")],
    command: Annotated[list[str], typer.Argument(help="The command, after `--`.")],
    background: Annotated[bool, typer.Option("--background", "-d", help="Run it in the background.")] = False,
    stdin: Annotated[
        bool, typer.Option("--stdin", "-i", help="Pass standard input to it, which is read to its end first.")
    ] = False,
    at_terminal: Annotated[
        bool, typer.Option("--tty", "-t", help="Connect this terminal to it: for an editor, top, vtysh.")
    ] = False,
    listens: Annotated[
        bool, typer.Option("--listen", "-l", help="Do not advance virtual time for it: for tcpdump, a server.")
    ] = False,
) -> None:
    """Run a command of this machine on a node; its exit status is the command's.

    A background command, or one that listens, runs only while another one does, or during `qbed advance`: virtual
    time stands still otherwise.

    /mnt is the lab's folder on this machine, `$XDG_RUNTIME_DIR/qbed/LAB/cell` or the same below `~/.local/state`, to
    pass files by; in containers each node has its own there, `nodes/NODE` (on the machine's kernel it sees it as
    /qbed).
    """
    if listens and (background or at_terminal):
        raise typer.BadParameter("-l is for neither -d nor -t", param_hint="-l")
    if at_terminal:
        if background or stdin:
            raise typer.BadParameter("a terminal is for neither -d nor -i", param_hint="-t")
        if not keyboard.is_interactive():
            raise typer.BadParameter("there is no terminal here; -i gives it what comes by a pipe", param_hint="-t")
        raise typer.Exit(at_keyboard(find_lab(lab), node, command))
    given = sys.stdin.buffer.read() if stdin else b""
    raise typer.Exit(run_command(find_lab(lab), node, command, background=background, stdin=given, listens=listens))


def at_keyboard(lab: Deployment, node: str, command: list[str], *, shell: bool = False) -> int:
    """Run a command on a node in this terminal and return its exit status. Ctrl-C is sent to it like any key."""
    terminal = keyboard.terminal(shell=shell)
    with (
        lab.exec(node, command, background=False, terminal=terminal) as execution,
        keyboard.forward_terminal(execution, terminal),
    ):
        return _follow(execution)


def run_command(
    lab: Deployment,
    node: str,
    command: list[str],
    *,
    background: bool = False,
    stdin: bytes = b"",
    listens: bool = False,
) -> int:
    """Run a command on a node and pass its output on. Return its exit status. Ctrl-C interrupts it."""
    with lab.exec(node, command, background=background, stdin=stdin, listens=listens) as execution:
        try:
            return _follow(execution)
        except KeyboardInterrupt:
            execution.interrupt()
            return _after_interrupt(execution)


def _follow(execution: Execution) -> int:
    """Pass on what a command says; returns its exit status."""
    for answer in execution.events():
        match answer.get("event"):
            case "stdout" | "stderr" as stream:
                terminal.pass_on(base64.b64decode(answer["data"]), error=stream == "stderr")
            case "started":
                terminal.print_line(f"started, output in {answer['output']}")
                return 0
            case "exit":
                return int(answer["code"])
    return 1


def _after_interrupt(execution: Execution) -> int:
    """The command has been interrupted: show its last words, but a second Ctrl-C leaves at once."""
    try:
        _follow(execution)
    except KeyboardInterrupt:
        terminal.print_status("\nleft; the keeper ends the command")
    return 130


def advance(
    lab: LabName,
    duration: Annotated[str, typer.Argument(help="A duration such as `10 ms`.")],
) -> None:
    """Advance virtual time, and print the time since the lab's epoch."""
    try:
        ns = parse_duration(duration)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="DURATION") from None
    terminal.print_line(f"virtual time: {clock_text(find_lab(lab).advance(ns))}")


def pace(
    lab: LabName,
    wanted: Annotated[
        str | None, typer.Argument(metavar="[fast|real|manual]", help="The new pace; without it, print the pace.")
    ] = None,
) -> None:
    """Set how virtual time advances in a lab that is up, while a command runs.

    fast: as fast as it is computed, the default. real: no faster than real time. manual: only by `qbed advance`, and
    by 200 us for the start of a command and for a key.
    """
    found = find_lab(lab)
    if wanted is not None:
        found.set_pace(_parse_pace(wanted, "PACE"))
    terminal.print_line(f"{found.name}: {found.status().pace or 'the wall clock'}")


def _parse_pace(text: str, hint: str) -> Pace:
    try:
        return parse_pace(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=hint) from None


def down(
    lab: Annotated[str | None, typer.Argument(metavar="LAB", help="The lab's name, its folder or its file.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Take down all labs.")] = False,
) -> None:
    """Take a lab down."""
    if (lab is None) != every:
        raise typer.BadParameter("expected a lab or --all")
    wrong: list[str] = []
    for running_lab in _deployments() if lab is None else [find_lab(lab)]:
        try:
            running_lab.stop()
        except QbedError as error:  # what cannot be taken down does not keep the others up
            wrong.append(f"{running_lab.name}: {error}")
        else:
            terminal.print_line(f"{running_lab.name} is down")
    if wrong:
        raise SessionError("\n".join(wrong))


def _deployments() -> list[Deployment]:
    return [deployment for substrate in substrates() for deployment in substrate.deployments()]


def ps(
    lab: Annotated[
        str | None, typer.Argument(metavar="[LAB]", help="The lab whose background programs are listed.")
    ] = (None),
) -> None:
    """List the labs that are up, or a lab's programs in the background, which `qbed kill` ends.

    Times are since the lab's epoch, as all times of its samples and results. PACE is that of `qbed pace`. In
    containers, LOST counts frames that
    were lost outside the lab's queues (`qbed samples` says where), and LATE is how late the deadlines of its latest
    node ran, as 99th percentile: packets leave in bursts where that is much.
    """
    if lab is not None:
        jobs = find_lab(lab).jobs()
        _table(
            [("JOB", "NODE", "SINCE", "COMMAND")]
            + [(str(j.number), j.node, clock_text(j.since_ns), j.command) for j in jobs]
        )
        return
    rows = [("LAB", "KEEPER", "TIME", "RUNS", "LOST", "LATE", "PACE", "ON", "FILE")]
    for deployment in _deployments():
        status = deployment.status()
        lost = "-" if status.frames_lost is None else str(status.frames_lost)
        late = "-" if status.late_ns is None else f"{status.late_ns / 1e6:.3f} ms"
        rows.append(
            (
                deployment.name,
                status.keeper,
                clock_text(status.time_ns),
                status.runs,
                lost,
                late,
                status.pace or "-",
                deployment.substrate,
                deployment.file,
            )
        )
    _table(rows)


def kill(
    lab: LabName,
    job: Annotated[int, typer.Argument(help="Number of the program in `qbed ps LAB`.")],
) -> None:
    """End a background program: SIGINT, then SIGTERM, then SIGKILL, at intervals of 100 ms of lab time."""
    find_lab(lab).end(job)


def _table(rows: Sequence[tuple[str, ...]]) -> None:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        terminal.print_line("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())


def clock_text(ns: int) -> str:
    """The lab's time, since its epoch."""
    return f"{ns / 1e9:.9f} s"
