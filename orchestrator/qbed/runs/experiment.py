# SPDX-License-Identifier: Apache-2.0
"""Run a campaign from its files to its report, as `qbed run` does."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from qbed.base.errors import LabError
from qbed.base.json_files import Row, write_json
from qbed.campaign.axes import column_name
from qbed.campaign.file import Campaign, load_campaign
from qbed.campaign.lock import Kernel, Lock, LockError
from qbed.campaign.matrix import Matrix, build_matrix, fingerprint
from qbed.claims.compare import judge_run
from qbed.claims.verdict import Verdict
from qbed.claims.views import connect
from qbed.config.reach import ReachError, beneath
from qbed.config.source import Source, read, read_lab_text
from qbed.live.flush_timeout import FLUSH_S
from qbed.network.load import load_cell, of_folder, read_lab
from qbed.plan.compile import compile_lab
from qbed.report.parameter_table import ParameterTable
from qbed.runs.calibrate import calibrated
from qbed.runs.choice import Choice, Shard
from qbed.runs.executor import Executor, OutcomeLog, RunStoppedError, Totals, Watcher
from qbed.runs.preflight import run_preflight
from qbed.runs.provenance import commit_of, meta
from qbed.runs.rule_of_thumb import short_time_scales
from qbed.runs.shards import check_shards, gather
from qbed.runs.worker import Task
from qbed.storage.cell_store import default_store
from qbed.storage.checksums import record_checksums
from qbed.storage.identity import CELL_FORM, StoreError, ran_on
from qbed.storage.run_folder import CLAIMS, PARAMETERS, RunFolder
from qbed.substrates import DEFAULT, DiskFullError, Limits, Substrate, substrate
from qbed.substrates.rebuild import shorten_names
from qbed.substrates.toolchain import find_toolchain
from qbed.telemetry.tables import VERSION, traces_of

if TYPE_CHECKING:  # a run without sinks need not load these
    from qbed.live.exporter import Delivery
    from qbed.live.sinks.address import Address

SMALLEST_FREE_BYTES = 64 << 20
FailOn = Literal["claims", "verdicts", "errors"]
"""The conditions of a failed run: unexpected claims and failed cells (`claims`), or only failed cells (`errors`)."""


class Screen(Watcher, Protocol):
    """Receives the progress of a run."""

    def skipped(self, cells: int) -> None:
        """`cells` cells were finished by an earlier run."""

    def damaged(self, files: list[str]) -> None:
        """These files of finished cells are damaged; the cells are run again."""

    def total(self, cells: int) -> None:
        """The run has `cells` cells, as far as is known."""

    def waiting(self) -> None:
        """Another run has locked the folder; this one waits for it."""

    def discarded(self, difference: str) -> None:
        """Another run in the folder was discarded; `difference` is the part that differs."""

    def obsolete(self, text: str) -> None:
        """Finished cells loaded a file that has changed and are run again; `text` is a message."""

    def phase(self, name: str) -> None:
        """The run enters this phase."""

    def flushing(self, text: str) -> None:
        """The run has ended and waits for points to be sent; `text` is a line of progress."""

    def delivered(self, result: Delivery | str) -> None:
        """The delivery of the run's points to one sink, or the reason of its failure."""


@dataclass(frozen=True)
class Experiment:
    """A campaign, checked and ready to run."""

    campaign: Campaign
    profile: str | None
    task: Task
    identity: Row
    file: Path
    lock: Literal["write", "compare"] | None = None
    shard: Shard | None = None
    sinks: list[Address] = field(default_factory=list)
    flush_timeout_s: float = FLUSH_S
    warnings: list[str] = field(default_factory=list)
    parameters: ParameterTable = field(default_factory=ParameterTable)
    commit: str | None = None
    """The commit of the campaign's repository before the first cell."""


@dataclass
class RunResult:
    """The result of a run."""

    totals: Totals
    verdicts: list[Verdict]
    report: Path | None
    """The report; None for a shard."""
    wall_s: float
    problems: list[str] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)
    """Differences between the cells and the campaign's lock."""
    images: str = ""
    """The numbers of images that were rendered and kept, in words."""

    def failed(self, on: FailOn = "claims") -> bool:
        """Whether the run failed; a difference to the lock is always a failure.

        `claims`: the results exclude the expected verdict of a claim (`qbed.claims.intervals`). `verdicts`: a verdict
        is another than expected; an undecided one, too.
        """
        wrong = [
            verdict
            for verdict in self.verdicts
            if verdict.contradicted or (on == "verdicts" and not verdict.as_expected)
        ]
        unexpected = on != "errors" and bool(wrong)
        return unexpected or bool(self.differences) or self.totals.failed + self.totals.invalid > 0


@dataclass(frozen=True)
class RunOptions:
    """The options of a run that are not in the campaign's files.

    `dilation`: that of a substrate on the wall clock; None: the smallest at which this machine keeps up. `several`: the
    campaign runs on several substrates, each in a separate folder within `out`. `store`: use cells of the store.
    `lock`: write the campaign's lock or compare with it. `shard`: run only this part of the cells, without claims.
    `sinks`: exporters of samples during the run. `flush_timeout_s`: how long the end of the run waits for them.
    """

    profile: str | None = None
    out: Path | None = None
    seeds: list[int] | None = None
    settings: Mapping[str, object] | None = None
    keep: bool = False
    limits: Limits = field(default_factory=Limits)
    on: str = DEFAULT
    dilation: int | None = None
    several: bool = False
    store: bool = True
    lock: Literal["write", "compare"] | None = None
    shard: Shard | None = None
    sinks: list[Address] = field(default_factory=list)
    flush_timeout_s: float = FLUSH_S


def prepare(
    path: Path,
    options: RunOptions,
    parsed: tuple[Campaign, Source] | None = None,
    progress: Callable[[str], None] | None = None,
) -> Experiment:
    """Check what can be checked before the first cell runs; raises `LabError`, `ToolchainError` or `MatrixError`.

    `parsed`: a campaign without a file; `path` is then the lab file. `progress`: called with a line of progress.
    """
    for sink in options.sinks:
        sink.make()  # refuse an invalid sink before the run
    if options.store:
        default_store()  # refuse an invalid QBED_STORE before the run
    campaign, source, lab = (*parsed, path) if parsed is not None else find_campaign(path)
    profile, on = options.profile, substrate(options.on)
    matrix = build_matrix(campaign, profile, seeds=options.seeds, settings=options.settings)
    checked = run_preflight(lab, matrix, campaign, source, profile, on, progress)
    identity = {
        "version": VERSION,
        "cells": CELL_FORM,
        "name": checked.name,
        "profile": profile,
        "question": campaign.question,
        "lab_file": str(lab),
        "lab_sha256": hashlib.sha256(read_lab_text(lab).encode()).hexdigest(),
        "plans": checked.plans,
        "matrix": json.loads(json.dumps(matrix.describe(), default=str)),
        "toolchain": find_toolchain().manifest.model_dump(),
        "inputs": checked.inputs,
        "views": [{"name": view, "sql": sql} for view, sql in campaign.views.items()],
        "claims": [claim.model_dump() for claim in campaign.claims],
        "figures": [figure.model_dump() for figure in campaign.figures],
    }
    if compared := campaign.profile(profile).compare:
        identity["compare"] = column_name(*compared)
    out = options.out or default_folder(identity, options)
    out = out / on.name if options.several else out
    dilation, warnings = _dilation(on, options.dilation, lab, matrix, out)
    identity["substrate"] = {"name": on.name, "dilation": dilation}
    work = (out.resolve(), options.limits, options.keep, on.name, dilation, options.store)
    task = Task(*work, lab=lab.resolve(), matrix=matrix, parts=checked.parts)
    return Experiment(
        campaign,
        profile,
        task,
        identity,
        Path(source.file),
        options.lock,
        options.shard,
        options.sinks,
        options.flush_timeout_s,
        [*checked.warnings, *warnings],
        checked.parameters,
        commit_of(Path(source.file).parent),
    )


def default_folder(identity: Row, options: RunOptions) -> Path:
    """The run folder without --out; it differs for another plan or matrix, and for other inputs of the sample plans."""
    inputs = "inputs" if identity.get("inputs") else "toolchain"
    mark = fingerprint({key: identity[key] for key in ("plans", "matrix", inputs, "version")})[:8]
    out = Path("runs") / f"{identity['name']}-{options.profile or 'all'}-{mark}"
    return out if options.on == DEFAULT or options.several else out.with_name(f"{out.name}-{options.on}")


def _dilation(on: Substrate, requested: int | None, lab: Path, matrix: Matrix, out: Path) -> tuple[int, list[str]]:
    """The requested dilation, else that of the run in the folder, else the result of a calibration; and warnings."""
    if on.clock == "virtual":
        return 1, []
    cell = matrix.cell(0)
    plan = compile_lab(load_cell(read_lab(lab), dict(cell.settings)), cell.seed)
    dilation = requested
    if dilation is None:
        with suppress(StoreError):
            known = ran_on(out)
            dilation = known.dilation if known.name == on.name else None
    if dilation is None:
        dilation = calibrated(on, plan)
    return dilation, list(short_time_scales(on, plan, dilation))


def find_campaign(path: Path) -> tuple[Campaign, Source, Path]:
    """The campaign of a folder or file, its source and the lab file; a lab alone is a campaign of one cell."""
    file = of_folder(path, "campaign.yml") if path.is_dir() else path
    lab = of_folder(path) if path.is_dir() and not file.exists() else path
    if lab.is_file() and _is_lab(lab):
        question = f"What does the lab {lab.resolve().parent.name} do?"
        return Campaign(question=question), Source(str(lab), lab.parent), lab
    if not file.exists():
        raise LabError([f"{path}: there is no {file.name}" if path.is_dir() else f"{path}: there is no such file"])
    campaign, source = load_campaign(file)
    try:
        lab = beneath(file.parent, campaign.lab)
    except ReachError as error:
        raise LabError([source.message(("lab",), str(error))]) from None
    try:
        exists = lab.exists() and not lab.is_dir()
    except OSError:  # a name that is too long
        exists = False
    if not exists:
        raise LabError([source.message(("lab",), f"expected a lab file, got `{campaign.lab}`")])
    return campaign, source, lab


def _is_lab(file: Path) -> bool:
    """Whether a file is a lab and not a campaign; for an unreadable file False, and its reader reports the error."""
    if file.name == "lab.yml":
        return True
    try:
        found = read(file).values
    except LabError:
        return False
    return isinstance(found, dict) and "topology" in found


def run_campaign(
    experiment: Experiment,
    executor: Executor,
    screen: Screen,
    *,
    images: bool = True,
    fresh: bool = False,
    shards: Sequence[RunFolder] = (),
) -> RunResult:
    """Run the unfinished cells, merge their tables, judge the claims and write the report.

    `fresh`: discard another run in the folder. `shards`: take the cells from these run folders, and run none.
    """
    begun = time.monotonic()
    task = experiment.task
    store, inputs = RunFolder(task.out), substrate(task.on).inputs
    current = None if inputs is None else cache(inputs.value)  # many cells have the same inputs
    check_shards(shards, experiment.identity, current)
    with store.lock(screen.waiting):
        if shutil.disk_usage(task.out).free < SMALLEST_FREE_BYTES:
            raise DiskFullError(f"the disk is full: {task.out} has less than {SMALLEST_FREE_BYTES >> 20} MB left")
        different = store.claim(experiment.identity, fresh=fresh, current=current)
        if different is not None:
            screen.discarded(different)
        if current is not None and (obsolete := store.remove_obsolete(current)):
            screen.obsolete(_obsolete_cells(obsolete))
        write_json(task.out / PARAMETERS, experiment.parameters.model_dump(exclude_none=True))
        choice = Choice(task.matrix, store, experiment.shard)
        totals = Totals(len(choice), 0)
        try:
            with _exporting(experiment, screen, executor.cores[: len(choice)], len(choice)):
                if shards:
                    gather(store, shards, choice)
                    totals.cells = totals.skipped = len(choice)
                else:
                    _run_all(executor, experiment, store, choice, totals, screen)
                if task.store and (cell_store := default_store()):
                    cell_store.shrink()
                if experiment.shard is not None:
                    return _conclude_shard(experiment, choice, totals, begun)
                screen.phase("merging")
                store.merge(choice, task.matrix.columns, task.matrix.numbers, task.max_samples)
                conclusion = _conclude(experiment, choice, totals, begun, screen, images)
                screen.phase("telemetry" if experiment.sinks else "report")
                return conclusion
        except OSError as error:
            if shutil.disk_usage(task.out).free < SMALLEST_FREE_BYTES:
                raise DiskFullError(
                    f"the disk is full: {task.out}; the finished cells are kept: {error.strerror}"
                ) from error
            raise


def _exporting(
    experiment: Experiment, screen: Screen, cores: Sequence[int], cells: int
) -> AbstractContextManager[None]:
    """Export the points of the run while the context lasts, if it has sinks."""
    if not experiment.sinks:
        return nullcontext()
    from qbed.live.exporter_process import exporting

    out, flush_s = experiment.task.out, experiment.flush_timeout_s
    return exporting(out, experiment.sinks, screen.delivered, cores, cells, flush_s=flush_s, flushing=screen.flushing)


def _obsolete_cells(found: Mapping[int, list[str]]) -> str:
    """A message about cells that are run again, by the names of the inputs that changed."""
    names = shorten_names(sorted({name for names in found.values() for name in names}))
    cells = "1 finished cell is" if len(found) == 1 else f"{len(found)} finished cells are"
    return f"{names} changed: {cells} run again"


def _run_all(
    executor: Executor, experiment: Experiment, store: RunFolder, choice: Choice, totals: Totals, screen: Screen
) -> None:
    """Run the chosen cells that are not finished, and further ones until the choice needs no more."""
    chosen = list(choice)
    while chosen:
        to_run, damaged = store.survey(chosen)
        totals.cells = len(choice)
        totals.skipped += len(chosen) - len(to_run)
        screen.total(totals.cells)
        screen.damaged([str(error) for error in damaged])
        if to_run:
            screen.skipped(totals.skipped)
            _run(executor, experiment.task, to_run, totals, screen)
        chosen = choice.more()
    screen.skipped(totals.skipped)


def _run(executor: Executor, task: Task, cells: list[int], totals: Totals, screen: Screen) -> None:
    before = totals.ended
    with OutcomeLog(task, totals, screen) as log:
        try:
            executor.run(task, cells, log)
        except KeyboardInterrupt:
            left = len(cells) - (totals.ended - before)
            raise RunStoppedError(
                f"stopped; finished cells are kept in {task.out}, {left} are left: the same command goes on from there"
            ) from None


def _conclude(
    experiment: Experiment, choice: Choice, totals: Totals, begun: float, screen: Screen, images: bool
) -> RunResult:
    from qbed.report import describe_images, make_report

    out = experiment.task.out
    screen.phase("claims")
    verdicts = judge_run(out, experiment.campaign, experiment.profile, choice.lacking())
    connection = connect(out)
    counted = dict(connection.execute("SELECT status, count(*) FROM all_cells GROUP BY 1").fetchall())
    connection.close()
    _count(totals, counted)
    write_json(out / CLAIMS, [verdict.model_dump() for verdict in verdicts])
    record_checksums(out, [CLAIMS], more=True)
    write_json(out / "meta.json", meta(experiment.task, experiment.commit, time.monotonic() - begun))
    screen.phase("report")
    made = make_report(out, images=images, advance=screen.phase)
    differences = _locked(experiment, totals, traces_of(out))
    drawn = describe_images(made)
    return RunResult(totals, verdicts, made.page, time.monotonic() - begun, made.problems, differences, drawn)


def _conclude_shard(experiment: Experiment, choice: Choice, totals: Totals, begun: float) -> RunResult:
    """The result of a shard, without merge and claims: `qbed merge` does both for all shards."""
    store, counted = RunFolder(experiment.task.out), Counter[str]()
    traces: dict[int, str | None] = {}
    for number in choice:
        row = store.record(number) or {"status": "failed"}
        counted[row["status"]] += 1
        traces[number] = row.get("trace_sha256")
    _count(totals, counted)
    differences = _locked(experiment, totals, traces.items())
    return RunResult(totals, [], None, time.monotonic() - begun, [], differences)


def _count(totals: Totals, counted: Mapping[str, int]) -> None:
    for status in ("complete", "failed", "invalid"):
        setattr(totals, status, counted.get(status, 0))


def _locked(experiment: Experiment, totals: Totals, found: Iterable[tuple[int, str | None]]) -> list[str]:
    """Compare the run with the campaign's lock, or write the lock."""
    if experiment.lock is None:
        return []
    matrix, toolchain = experiment.task.matrix, experiment.identity["toolchain"]
    kernel = Kernel(toolchain["kernel_series"], toolchain["kernel_version"])
    traces = {str(matrix.cell(number)): trace for number, trace in found}
    lock = Lock.of(experiment.file)
    if experiment.lock == "compare":
        return list(lock.differences(experiment.profile, kernel, traces, part=experiment.shard is not None))
    complete = {cell: trace for cell, trace in traces.items() if trace is not None}
    if len(complete) < totals.cells:
        raise LockError(f"{lock.path} is unchanged: {totals.cells - len(complete)} cells have no trace")
    lock.record(experiment.profile, kernel, complete)
    return []
