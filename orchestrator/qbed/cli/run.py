# SPDX-License-Identifier: Apache-2.0
"""`qbed run` and `qbed report`: a campaign from its matrix to the report."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from qbed import terminal
from qbed.lab.library import find
from qbed.language.reach import trust
from qbed.language.source import scalar
from qbed.language.units import parse_size
from qbed.substrates import DEFAULT, names, substrate

if TYPE_CHECKING:  # loading these takes longer than most commands
    from rich.console import Console

    from qbed.live.courier import Address, Delivery
    from qbed.runs.experiment import Conclusion, Experiment
    from qbed.runs.worker import Outcome

MOST_DAMAGED = 10
Dilate = Annotated[
    str, typer.Option("--dilate", metavar="N", help="In containers: how much slower than the clock; `auto` finds out.")
]
Influx = Annotated[
    str | None,
    typer.Option(
        "--influx", metavar="URL", envvar="QBED_INFLUX",
        help="Samples go there while cells run: http://HOST:8086/DATABASE; the token is in QBED_INFLUX_TOKEN.",
    ),
]  # fmt: skip
Ndjson = Annotated[Path | None, typer.Option("--ndjson", metavar="FILE", help="Samples go to this file as they come.")]
Trust = Annotated[
    bool, typer.Option("--trust", callback=trust, help="The files are one's own: they may name files elsewhere.")
]
StallTimeout = Annotated[float, typer.Option(min=1, help="Seconds of wall clock in which virtual time must move.")]
CellSpace = Annotated[str, typer.Option("--cell-space", metavar="SIZE", help="What one cell may write, in files.")]
LabFolder = Annotated[
    Path,
    typer.Argument(metavar="LAB", help="The lab's folder, its campaign file, or a name of `qbed labs`.", callback=find),
]


def register(app: typer.Typer) -> None:
    app.command()(run)
    app.command()(report)


def run(
    lab: LabFolder,
    profile: Annotated[str | None, typer.Option(help="A profile of the campaign, such as `quick` or `paper`.")] = None,
    out: Annotated[Path | None, typer.Option(help="The run folder; a run that it holds already is continued.")] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Cells at once; as many as there are cores without it.")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="FIELD=VALUE", help="A field of the lab, in every cell.")
    ] = None,
    seeds: Annotated[str | None, typer.Option(help="Seeds, such as `1,2,5` or `1..10`.")] = None,
    cell_timeout: Annotated[float, typer.Option(min=1, help="Seconds of wall clock for one cell.")] = 3600.0,
    stall_timeout: StallTimeout = 300.0,
    cell_space: CellSpace = "64 GB",
    fresh: Annotated[
        bool, typer.Option("--fresh", help="If the run folder holds another run, throw that away and run anew.")
    ] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep what the guests wrote (plans, tap streams).")] = False,
    images: Annotated[bool, typer.Option(help="Draw the figures as PNG, too.")] = True,
    locked: Annotated[
        bool, typer.Option("--locked", help="Fail if a cell does something else than the campaign's lock says.")
    ] = False,
    lock: Annotated[bool, typer.Option("--lock", help="Write what the cells do into the campaign's lock.")] = False,
    store: Annotated[
        bool, typer.Option(help="Take cells that are finished anywhere from the store (`qbed store`).")
    ] = True,
    on: Annotated[
        str, typer.Option("--on", help="`virtual`, `containerlab`, or `virtual,containerlab` to compare the two.")
    ] = DEFAULT,
    dilate: Dilate = "auto",
    influx: Influx = None,
    ndjson: Ndjson = None,
    own: Trust = False,
) -> None:
    """Run a campaign's cells, judge its claims and write the report.

    Exit status: 0, all as expected; 1, a cell failed or is invalid, a claim did not come out, a cell is not as the
    campaign's lock says, or (on two substrates) a metric's gap is wider than the campaign's `gap:` tolerates; 2, a
    mistake in the files.
    """
    from qbed.runs.executor.local import LocalExecutor
    from qbed.runs.experiment import Wishes, conduct, prepare
    from qbed.substrates import Limits
    from qbed.substrates.rebuild import build_changed

    build_changed(terminal.tell)
    asked, dilation = parse_substrates(on), parse_dilation(dilate)
    if (lock or locked) and (lock == locked or asked != [DEFAULT] or set_ or seeds):
        raise typer.BadParameter(
            "a lock is of the campaign as it is, in virtual time: without --set, --seeds and --on",
            param_hint="--lock" if lock else "--locked",
        )
    several = len(asked) > 1
    if several and ndjson:
        raise typer.BadParameter("a file is of one run: without a second substrate", param_hint="--ndjson")
    wishes = Wishes(
        profile, out, parse_seeds(seeds) if seeds else None, parse_settings(set_ or []), keep,
        Limits(cell_timeout, stall_timeout, parse_space(cell_space)), dilation=dilation, several=several,
        store=store, lock="write" if lock else "compare" if locked else None, sinks=sinks(influx, ndjson),
    )  # fmt: skip

    def conclude(name: str) -> tuple[Experiment, Conclusion]:
        experiment = prepare(lab, replace(wishes, on=name))
        terminal.warn(experiment.warnings)
        cores = sorted(os.sched_getaffinity(0))
        workers = min(jobs or len(cores), substrate(name).cells_at_once or 1 << 20)
        screen = _Screen(len(experiment.task.matrix), f"{name} cells" if several else "cells")
        with screen.bar:
            mine = [cores[i % len(cores)] for i in range(workers)]
            outcome = conduct(experiment, LocalExecutor(mine), screen, images=images, fresh=fresh)
        _tell(outcome, screen.console)
        return experiment, outcome

    concluded = [conclude(name) for name in asked]
    bad = any(outcome.bad for _, outcome in concluded)
    if several:
        bad = _tell_gap([experiment for experiment, _ in concluded]) or bad
    if bad:
        raise typer.Exit(1)


def _tell_gap(experiments: list[Experiment]) -> bool:
    """Compare two runs of a campaign; whether a band is broken."""
    from qbed.claims.gap import compare, write_gap

    virtual, other = sorted(experiments, key=lambda experiment: substrate(experiment.task.on).clock != "virtual")
    gap = compare(virtual.task.out, other.task.out, virtual.campaign.gap)
    for row in gap.broken:
        where = f" ({row.setting})" if row.setting else ""
        seen = f"{row.virtual} on {gap.reference}, {row.other} on {gap.substrate}; tolerated {row.band}"
        terminal.tell(f"gap: {row.metric}{where}: {seen}; {row.cause}")
    terminal.say(write_gap(virtual.task.out.parent, gap))
    return bool(gap.broken)


def report(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    images: Annotated[bool, typer.Option(help="Draw the figures as PNG, too.")] = True,
    own: Trust = False,
) -> None:
    """Write a run's report again, from its Parquet files."""
    from qbed.report import make_report

    made = make_report(folder, images=images)
    terminal.warn(made.problems)
    terminal.say(made.page)


def parse_settings(texts: list[str]) -> dict[str, object]:
    """`FIELD=VALUE` texts; values are read as the lab file would read them."""
    settings: dict[str, object] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"expected FIELD=VALUE, got `{text}`", param_hint="--set")
        settings[name.strip()] = scalar(value)
    return settings


def parse_substrates(text: str, *, single: bool = False) -> list[str]:
    """The name of a substrate, or two with a comma."""
    asked = list(dict.fromkeys(part.strip() for part in text.split(",")))
    if any(name not in names() for name in asked) or len(asked) > (1 if single else 2):
        known, more = " or ".join(f"`{name}`" for name in names()), "" if single else ", or two with a comma"
        raise typer.BadParameter(f"expected {known}{more}, got `{text}`", param_hint="--on")
    return asked


def parse_dilation(text: str) -> int | None:
    """A whole number from 1; None: `auto`."""
    if text == "auto":
        return None
    if not text.isdecimal() or not 1 <= int(text) <= 1_000_000:
        raise typer.BadParameter(f"expected a whole number from 1, or `auto`, got `{text}`", param_hint="--dilate")
    return int(text)


def parse_space(text: str) -> int:
    """A size, in bytes."""
    try:
        return parse_size(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--cell-space") from None


def sinks(influx: str | None, ndjson: Path | None) -> list[Address]:
    """Where samples are to go. `SinkError` if that is no such place."""
    from qbed.live.courier import Address

    asked = [Address("influx", influx)] if influx else []
    return [*asked, *([Address("ndjson", str(ndjson.absolute()))] if ndjson else [])]


def parse_seeds(text: str) -> list[int]:
    """`1,2,5` or `1..10`."""
    from qbed.campaign.matrix import MOST_CELLS

    seeds: list[int] = []
    try:
        for part in text.split(","):
            first, dots, last = part.partition("..")
            found = range(int(first), int(last if dots else first) + 1)
            if len(seeds) + found.stop - found.start > MOST_CELLS:
                raise typer.BadParameter(f"`{text}` is more than {MOST_CELLS} seeds", param_hint="--seeds")
            seeds.extend(found)
    except ValueError:
        raise typer.BadParameter(
            f"expected seeds such as `1,2,5` or `1..10`, got `{text}`", param_hint="--seeds"
        ) from None
    if not seeds:
        raise typer.BadParameter(f"`{text}` holds no seed", param_hint="--seeds")
    return seeds


class _Screen:
    """Shows how the run goes: a bar on a terminal, a line for each bad cell anywhere."""

    def __init__(self, cells: int, name: str) -> None:
        self.console = terminal.console(error=True)
        self.bar = Progress(
            TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(),
            TimeElapsedColumn(), TimeRemainingColumn(), console=self.console, disable=not self.console.is_terminal,
        )  # fmt: skip
        self._cells: TaskID = self.bar.add_task(name, total=cells)
        self._skipped = 0
        self._reasons: set[str] = set()

    def skipped(self, cells: int) -> None:
        self._skipped = cells
        if cells:
            self.console.print(f"{cells} cells are finished already")

    def damaged(self, what: list[str]) -> None:
        for text in what[:MOST_DAMAGED]:
            self.console.print(f"{text}: done now", style="yellow", soft_wrap=True)
        if len(what) > MOST_DAMAGED:
            self.console.print(f"... and {len(what) - MOST_DAMAGED} files more", style="yellow")

    def waiting(self) -> None:
        self.console.print("another `qbed run` is writing to this folder: waiting for it")

    def discarded(self, why: str) -> None:
        self.console.print(f"the folder held another run ({why} differ): it was thrown away", soft_wrap=True)

    def progress(self, finished: int, running: float) -> None:
        self.bar.update(self._cells, completed=self._skipped + finished + running)

    def outcome(self, outcome: Outcome) -> None:
        if outcome.status == "complete":
            return
        text = outcome.error or ""
        reason = text.partition("\n")[0].partition("; its console")[0]
        shown = text if reason not in self._reasons else f"{reason}, as before"
        self._reasons.add(reason)
        line = terminal.shorten(f"cell {outcome.cell} {outcome.status}: {shown}")
        self.console.print(line, style="red", soft_wrap=True)

    def phase(self, name: str) -> None:
        self.bar.update(self._cells, description=name)

    def delivered(self, what: Delivery | str) -> None:
        whole = not isinstance(what, str) and not what.left
        text = what if isinstance(what, str) else f"telemetry: {what.said()}"
        self.console.print(terminal.shorten(text), style=None if whole else "red", soft_wrap=True)


def _number(value: object) -> str:
    if isinstance(value, list):
        return " | ".join(map(_number, value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _tell(outcome: Conclusion, console: Console) -> None:
    table = Table(box=None, pad_edge=False, show_header=False)
    for verdict in outcome.verdicts:
        style = "dim" if verdict.verdict == "not asked" else "green" if verdict.as_expected else "bold red"
        expected = ", as expected" if verdict.verdict == verdict.expect == "refuted" else ""
        numbers = ", ".join(f"{name} {_number(value)}" for name, value in verdict.measured.items())
        said = terminal.shorten(verdict.reason or numbers)
        table.add_row(Text(verdict.verdict + expected, style), verdict.name, said)
    if outcome.verdicts:
        console.print(table)
    for text in outcome.differences[:MOST_DAMAGED]:
        console.print(text, style="red", soft_wrap=True)
    if len(outcome.differences) > MOST_DAMAGED:
        console.print(f"... and {len(outcome.differences) - MOST_DAMAGED} cells more", style="red")
    for problem in outcome.problems:
        console.print(terminal.shorten(f"warning: {problem}"), style="yellow")
    totals = outcome.totals
    bad = "".join(
        f", {count} {name}" for name, count in (("failed", totals.failed), ("invalid", totals.invalid)) if count
    )
    stored = f" ({totals.stored} from the store)" if totals.stored else ""
    console.print(f"{totals.complete} of {totals.cells} cells complete{stored}{bad}, in {outcome.wall_s:.1f} s")
    terminal.say(outcome.report)
