# SPDX-License-Identifier: Apache-2.0
"""`qbed run`: a campaign from its matrix to the report."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qbed.base import terminal
from qbed.cli import remote
from qbed.cli.screen import Failing, FailOn, Junit, Screen, Summary, print_result, write_ci_files
from qbed.config.reach import trust
from qbed.config.source import scalar
from qbed.config.units import parse_size
from qbed.lab.library import find
from qbed.service import SERVER
from qbed.substrates import DEFAULT, names, substrate

if TYPE_CHECKING:  # loading these takes longer than most commands
    from qbed.runs.executor import Executor
    from qbed.runs.experiment import Experiment, RunOptions, RunResult

Dilate = Annotated[str, typer.Option("--dilate", metavar="N", help="Slowdown in containers; `auto` determines it.")]
Influx = Annotated[
    str | None,
    typer.Option(
        "--influx", metavar="URL", envvar="QBED_INFLUX",
        help="InfluxDB for samples: http://HOST:8086/DATABASE, with the token in QBED_INFLUX_TOKEN.",
    ),
]  # fmt: skip
Otlp = Annotated[
    str | None,
    typer.Option(
        "--otlp", metavar="URL", envvar="QBED_OTLP",
        help="OpenTelemetry receiver for samples: http://HOST:4318, with headers in OTEL_EXPORTER_OTLP_HEADERS.",
    ),
]  # fmt: skip
Ndjson = Annotated[Path | None, typer.Option("--ndjson", metavar="FILE", help="File for samples.")]
Trust = Annotated[
    bool, typer.Option("--trust", callback=trust, help="Trust the files: they may name files outside their folder.")
]
StallTimeout = Annotated[float, typer.Option(min=1, help="Seconds of wall clock in which virtual time must advance.")]
CellSpace = Annotated[str, typer.Option("--cell-space", metavar="SIZE", help="Limit on the files that a cell writes.")]
LabFolder = Annotated[
    Path,
    typer.Argument(
        metavar="LAB",
        help="A lab's folder, its campaign.yml, a lab.yml alone, or a name of `qbed labs`.",
        callback=find,
    ),
]


def register(app: typer.Typer) -> None:
    app.command()(run)


def run(
    lab: LabFolder,
    profile: Annotated[str | None, typer.Option(help="A profile of the campaign, such as `quick` or `paper`.")] = None,
    out: Annotated[Path | None, typer.Option(help="The run folder. An unfinished run in it is continued.")] = None,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", "-j", min=1, metavar="N", help="Number of concurrent cells (default: number of cores)."),
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="FIELD=VALUE", help="A field of the lab, in every cell.")
    ] = None,
    seeds: Annotated[str | None, typer.Option(help="Seeds, such as `1,2,5` or `1..10`.")] = None,
    cell_timeout: Annotated[float, typer.Option(min=1, help="Seconds of wall clock for one cell.")] = 3600.0,
    stall_timeout: StallTimeout = 300.0,
    cell_space: CellSpace = "64 GB",
    fresh: Annotated[bool, typer.Option("--fresh", help="Discard another run in the run folder.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the guests' files (plans, tap streams).")] = False,
    images: Annotated[bool, typer.Option(help="Draw the figures as files, too.")] = True,
    locked: Annotated[
        bool, typer.Option("--locked", help="Fail if a cell's trace differs from the campaign's lock.")
    ] = False,
    lock: Annotated[bool, typer.Option("--lock", help="Write the cells' traces into the campaign's lock.")] = False,
    store: Annotated[bool, typer.Option(help="Take finished cells from the store (`qbed store`).")] = True,
    on: Annotated[
        str, typer.Option("--on", help="`virtual`, `containerlab`, or `virtual,containerlab` to compare the two.")
    ] = DEFAULT,
    dilate: Dilate = "auto",
    influx: Influx = None,
    otlp: Otlp = None,
    ndjson: Ndjson = None,
    flush_timeout: Annotated[
        str,
        typer.Option(
            metavar="TIME",
            envvar="QBED_FLUSH_TIMEOUT",
            help="How long the end of the run waits for unsent points; `qbed samples --send` sends them later.",
        ),
    ] = "30s",
    trust: Trust = False,
    shard: Annotated[
        str | None, typer.Option(metavar="I/N", help="Run one of N parts of the cells; `qbed merge` combines them.")
    ] = None,
    scheduler: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Run the cells on the workers of this Dask scheduler.")
    ] = None,
    slurm: Annotated[bool, typer.Option("--slurm", help="Run the cells as array jobs of Slurm.")] = False,
    junit: Junit = None,
    summary: Summary = None,
    fail_on: Failing = FailOn.claims,
) -> None:
    """Run a campaign's cells, judge its claims and write the report.

    Exit status: 0, all as expected; 1, a cell failed or is invalid, a claim has an unexpected verdict, a trace differs
    from the campaign's lock, or (on two substrates) a metric's gap exceeds the campaign's `gap:`; 2, the files are
    invalid.
    """
    from qbed.live.flush_timeout import parse_flush_timeout
    from qbed.live.sinks.address import addresses_of
    from qbed.runs.executor.local import LocalExecutor
    from qbed.runs.experiment import RunOptions, prepare, run_campaign
    from qbed.substrates import Limits
    from qbed.substrates.rebuild import build_changed

    served = bool(os.environ.get(SERVER))
    if not served:
        build_changed(terminal.print_status)
    substrates, dilation = parse_substrates(on), parse_dilation(dilate)
    if (lock or locked) and (lock == locked or substrates != [DEFAULT] or set_ or seeds):
        raise typer.BadParameter(
            "a lock is of the campaign as it is, in virtual time: without --set, --seeds and --on",
            param_hint="--lock" if lock else "--locked",
        )
    several = len(substrates) > 1
    if several and ndjson:
        raise typer.BadParameter("a file is of one run: without a second substrate", param_hint="--ndjson")
    shard_part = parse_shard(shard) if shard else None
    if shard_part and (lock or several):
        raise typer.BadParameter(
            "a part of the cells is no campaign: without --lock, on one substrate", param_hint="--shard"
        )
    options = RunOptions(
        profile, out, parse_seeds(seeds) if seeds else None, parse_settings(set_ or []), keep,
        Limits(cell_timeout, stall_timeout, parse_space(cell_space)), dilation=dilation, several=several,
        store=store, lock="write" if lock else "compare" if locked else None, shard=shard_part,
        sinks=addresses_of(influx, otlp, ndjson), flush_timeout_s=parse_flush_timeout(flush_timeout),
    )  # fmt: skip

    executor_option = _remote_executor(scheduler, slurm)
    if served:
        plain_options = not (executor_option or junit or summary or fail_on is FailOn.errors)
        return _on_server(lab, options, plain_options=plain_options, images=images, fresh=fresh)

    def conclude(name: str) -> tuple[Experiment, RunResult]:
        experiment = prepare(lab, replace(options, on=name), progress=terminal.print_status)
        terminal.warn(experiment.warnings)
        cores = sorted(os.sched_getaffinity(0))
        workers = min(jobs or len(cores), substrate(name).cells_at_once or 1 << 20)
        screen = Screen(len(experiment.task.matrix), f"{name} cells" if several else "cells")
        with screen.bar:
            executor = executor_option or LocalExecutor([cores[i % len(cores)] for i in range(workers)])
            outcome = run_campaign(experiment, executor, screen, images=images, fresh=fresh)
        print_result(outcome, screen.console, experiment.warnings)
        return experiment, outcome

    concluded = [conclude(name) for name in substrates]
    gaps = _report_gap([experiment for experiment, _ in concluded]) if several else []
    write_ci_files(concluded, gaps, junit, summary)
    if any(outcome.failed(fail_on.value) for _, outcome in concluded) or (gaps and fail_on is not FailOn.errors):
        raise typer.Exit(1)


def _on_server(lab: Path, options: RunOptions, *, plain_options: bool, images: bool, fresh: bool) -> None:
    if not plain_options:
        raise typer.BadParameter(
            "not with --server: the settings of the service choose the executor, and it writes no files for CI",
            param_hint="--scheduler, --slurm, --junit, --summary, --fail-on",
        )
    remote.run(lab, options, Screen, print_result, images=images, fresh=fresh)


def _remote_executor(scheduler: str | None, slurm: bool) -> Executor | None:
    """The executor, if the cells run on other machines."""
    if scheduler is None and not slurm:
        return None
    from qbed.runs.executor.command import CommandExecutor
    from qbed.runs.executor.dask import DaskEngine
    from qbed.runs.executor.slurm import SlurmEngine

    if scheduler and slurm:
        raise typer.BadParameter("expected one of --scheduler and --slurm", param_hint="--slurm")
    if scheduler:
        return CommandExecutor(DaskEngine(scheduler))
    return CommandExecutor(SlurmEngine()) if slurm else None


def _report_gap(experiments: list[Experiment]) -> list[str]:
    """Compare two runs of a campaign; returns a message for each broken band."""
    from qbed.claims.gap import compare, write_gap

    virtual, other = sorted(experiments, key=lambda experiment: substrate(experiment.task.on).clock != "virtual")
    gap = compare(virtual.task.out, other.task.out, virtual.campaign.gap)
    texts = []
    for row in gap.broken:
        setting = f" ({row.setting})" if row.setting else ""
        values = f"{row.virtual} on {gap.reference}, {row.other} on {gap.substrate}; tolerated {row.band}"
        texts.append(f"gap: {row.metric}{setting}: {values}; {row.cause}")
        terminal.print_status(texts[-1])
    terminal.print_line(write_gap(virtual.task.out.parent, gap))
    return texts


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
    substrates = list(dict.fromkeys(name.strip() for name in text.split(",")))
    if any(name not in names() for name in substrates) or len(substrates) > (1 if single else 2):
        known, more = " or ".join(f"`{name}`" for name in names()), "" if single else ", or two with a comma"
        raise typer.BadParameter(f"expected {known}{more}, got `{text}`", param_hint="--on")
    return substrates


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


def parse_shard(text: str) -> tuple[int, int]:
    """`2/3`: the second part of three."""
    number, slash, count = text.partition("/")
    if not (slash and number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count) <= 1_000_000):
        raise typer.BadParameter(f"expected a part such as `2/3`, got `{text}`", param_hint="--shard")
    return int(number), int(count)


def parse_seeds(text: str) -> list[int]:
    """`1,2,5` or `1..10`."""
    from qbed.campaign.matrix import MAX_CELLS

    seeds: list[int] = []
    try:
        for part in text.split(","):
            first, dots, last = part.partition("..")
            found = range(int(first), int(last if dots else first) + 1)
            if len(seeds) + found.stop - found.start > MAX_CELLS:
                raise typer.BadParameter(f"`{text}` is more than {MAX_CELLS} seeds", param_hint="--seeds")
            seeds.extend(found)
    except ValueError:
        raise typer.BadParameter(
            f"expected seeds such as `1,2,5` or `1..10`, got `{text}`", param_hint="--seeds"
        ) from None
    if not seeds:
        raise typer.BadParameter(f"`{text}` holds no seed", param_hint="--seeds")
    return seeds
