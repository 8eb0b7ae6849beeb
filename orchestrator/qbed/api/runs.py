# SPDX-License-Identifier: Apache-2.0
"""Campaigns in code, and their results: frames, claims, figures."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from qbed.api.labs import Lab
from qbed.base import terminal
from qbed.base.errors import QbedError, nearest
from qbed.base.json_files import Row, read_json
from qbed.campaign.axes import Value
from qbed.campaign.file import Campaign, campaign_of
from qbed.claims.verdict import Verdict
from qbed.config.source import Source, parse
from qbed.lab.library import find
from qbed.storage.run_folder import CLAIMS, RunFolder
from qbed.substrates import DEFAULT, substrate
from qbed.substrates.rebuild import build_changed

if TYPE_CHECKING:
    from collections.abc import Iterator

    import plotly.graph_objects as go
    import pyarrow as pa

    from qbed.claims.diff import RecordDifference
    from qbed.claims.sql import Connection
    from qbed.live.exporter import Delivery
    from qbed.report import Images
    from qbed.runs.executor import Executor
    from qbed.runs.experiment import Experiment, RunOptions
    from qbed.runs.worker import Outcome

_CAMPAIGN_FIELDS = ("axes", "views", "claims", "figures", "question")
_OPTIONS = ("settings", "keep", "store", "limits", "on", "dilation", "shard", "sinks", "flush_timeout_s")


@dataclass(frozen=True)
class Run:
    """A run folder, of a run that has ended or still runs."""

    folder: Path

    @cached_property
    def identity(self) -> Row:
        """The content of campaign.json."""
        return RunFolder(self.folder).identity()

    @property
    def axes(self) -> dict[str, list[Value]]:
        """The matrix: the values of each axis."""
        return {axis["name"]: axis["values"] for axis in self.identity["matrix"]["axes"]}

    @property
    def tables(self) -> list[str]:
        """The tables that the run has, by name."""
        return list(RunFolder(self.folder).tables())

    @property
    def claims(self) -> dict[str, Verdict]:
        """Verdicts and measured numbers of the campaign's claims, by name."""
        return {item["name"]: Verdict.model_validate(item) for item in read_json(self.folder / CLAIMS)}

    @property
    def holds(self) -> bool:
        """Whether all cells are complete and the results exclude no claim's expected verdict."""
        (bad,) = self.sql("SELECT count(*) AS bad FROM all_cells WHERE status <> 'complete'").column("bad").to_pylist()
        return bad == 0 and not any(verdict.contradicted for verdict in self.claims.values())

    def sql(self, select: str) -> pa.Table:
        """Run a SELECT over the run's tables and its campaign's views, as claims do; returns a pyarrow.Table."""
        import duckdb

        from qbed.claims.sql import arrow, one_line

        with self._connected() as connection:
            try:
                return arrow(connection, select)
            except duckdb.Error as error:
                raise QbedError(f"the SQL fails: {one_line(error)}") from None

    def table(self, name: str) -> pa.Table:
        """A table or view of the campaign as a pyarrow.Table. Each row has the axis values of its cell."""
        known = [*self.tables, "all_cells", *(view["name"] for view in self.identity.get("views", ()))]
        if name not in known:
            raise QbedError(f"{self.folder} has no table `{name}`{nearest(name, known)}")
        return self.sql(f'SELECT * FROM "{name}"')

    def frame(self, source: str) -> Any:
        """A table by its name, or the result of a SELECT, as a polars.DataFrame. Requires polars."""
        try:
            import polars
        except ImportError:
            raise QbedError(
                "polars is not installed: `pip install polars`; `table` and `sql` return pyarrow tables"
            ) from None
        return polars.from_arrow(self.sql(source) if " " in source.strip() else self.table(source))

    @cached_property
    def figures(self) -> dict[str, go.Figure]:
        """Plotly figures of the campaign, or the default ones, by name. A figure that cannot be drawn is missing."""
        from qbed.report import draw

        return {drawing.name: drawing.figure for drawing in draw(self.folder) if drawing.figure is not None}

    def report(self, images: bool | Images = True) -> Path:
        """Write the report and its figures again; returns the path of the page."""
        from qbed.report import make_report

        return make_report(self.folder, images=images).page

    def cells(self) -> Iterator[Row]:
        """The cells that have ended, in the form of `qbed cells --json`, also during the run."""
        from qbed.storage.listing import Listing

        return Listing(self.folder).rows()

    def differences(self, other: Run) -> Iterator[tuple[str, RecordDifference | None]]:
        """The cells whose records differ in another run, by name, each with its first differing record, as `qbed diff`
        prints it. The record is None if it was not observed.
        """
        from qbed.claims.diff import Difference

        with Difference(self.folder, other.folder) as difference:
            for name, numbers, same in difference.cells():
                if not same:
                    yield name, difference.first_difference(numbers)

    def verify(self) -> list[str]:
        """Messages about damaged files, one line each."""
        return [str(damage) for damage in RunFolder(self.folder).verify()]

    @contextmanager
    def _connected(self) -> Iterator[Connection]:
        from qbed.claims.views import connect

        with connect(self.folder) as connection:
            yield connection


def open(folder: str | Path) -> Run:
    """Open a run folder; `StoreError` if it is none."""
    found = Run(Path(folder))
    _ = found.identity
    return found


def run(
    lab: Lab | str | Path,
    *,
    profile: str | None = None,
    out: str | Path | None = None,
    seeds: Sequence[int] | None = None,
    jobs: int | None = None,
    fresh: bool = False,
    images: bool = True,
    progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> Run:
    """Run a campaign, judge its claims and write its report; returns the run. As `qbed run` does, finished cells are
    not run again.

    `lab`: a campaign by its folder, file or name, or a lab, with the fields of a campaign file in code: `axes`,
    `views`, `claims`, `figures`, `question`. `seeds` replaces the axis `seed`. `jobs`: number of concurrent cells.
    `executor`: replaces the cores of this machine. `progress(ended, all)` is called after each cell. `lock`: `write`
    or `compare` the traces of a campaign's cells (`LockError` if one differs from the lock). `options`: the other
    fields of `RunOptions`: `settings`, `keep`, `store`, `limits`, `on`, `dilation`, `shard`, `sinks`,
    `flush_timeout_s`.
    """
    from qbed.campaign.lock import LockError
    from qbed.runs.experiment import run_campaign

    build_changed(terminal.print_status)
    executor = options.pop("executor", None) or _local(jobs, options.get("on", DEFAULT))
    lock = options.pop("lock", None)
    if lock and (isinstance(lab, Lab) or options.keys() & {"settings", "on", "shard"} or seeds is not None):
        raise QbedError("a lock is of a campaign's file as it is: without settings, seeds, shard and on")
    experiment = replace(prepared("run", lab, options, profile=profile, out=out, seeds=seeds), lock=lock)
    result = run_campaign(experiment, executor, _Watch(progress), images=images, fresh=fresh)
    if result.differences:
        raise LockError("\n".join(result.differences))
    return Run(experiment.task.out)


def merge(
    lab: Lab | str | Path,
    shards: Sequence[Run | str | Path],
    *,
    profile: str | None = None,
    out: str | Path | None = None,
    seeds: Sequence[int] | None = None,
    images: bool = True,
    **options: Any,
) -> Run:
    """Merge the shards of a campaign (`run(..., shard=(1, 3))`) into one run, as `qbed merge` does. No cell is run.

    The other arguments are those with which the shards were run.
    """
    from qbed.runs.executor.local import LocalExecutor
    from qbed.runs.experiment import run_campaign

    experiment = prepared("merge", lab, options | {"store": False}, profile=profile, out=out, seeds=seeds)
    folders = [RunFolder(shard.folder if isinstance(shard, Run) else Path(shard)) for shard in shards]
    run_campaign(experiment, LocalExecutor([]), _Watch(None), images=images, shards=folders)
    return Run(experiment.task.out)


def _local(jobs: int | None, on: str) -> Executor:
    """This machine's cores."""
    from qbed.runs.executor.local import LocalExecutor

    cores = sorted(os.sched_getaffinity(0))
    workers = min(jobs or len(cores), substrate(on).cells_at_once or 1 << 20)
    return LocalExecutor([cores[i % len(cores)] for i in range(workers)])


def run_options(
    caller: str,
    keywords: Mapping[str, Any],
    *,
    profile: str | None,
    out: str | Path | None,
    seeds: Sequence[int] | None,
    more: Sequence[str] = (),
) -> RunOptions:
    """The run options of a caller's keywords. `more`: other keywords of the caller, for the error message."""
    from qbed.runs.experiment import RunOptions

    known = [*more, *_OPTIONS]
    for name in sorted(keywords.keys() - set(_OPTIONS)):
        raise TypeError(f"{caller}() has no `{name}`{nearest(name, known)}")
    return RunOptions(profile, None if out is None else Path(out), None if seeds is None else list(seeds), **keywords)


def prepared(
    caller: str,
    lab: Lab | str | Path,
    keywords: Mapping[str, Any],
    *,
    profile: str | None = None,
    out: str | Path | None = None,
    seeds: Sequence[int] | None = None,
) -> Experiment:
    """The experiment of a caller's keywords, checked and ready to run."""
    from qbed.runs.experiment import prepare

    fields = {name: value for name, value in keywords.items() if name in _CAMPAIGN_FIELDS}
    rest = {name: value for name, value in keywords.items() if name not in fields}
    options = run_options(caller, rest, profile=profile, out=out, seeds=seeds, more=_CAMPAIGN_FIELDS)
    if not isinstance(lab, Lab) and not fields:
        return prepare(find(Path(lab)), options)
    if not isinstance(lab, Lab):
        raise TypeError("a campaign of a file has its own axes and claims: expected a lab, `qbed.load(...)`")
    settings = {**lab.settings, **(options.settings or {})}
    return prepare(lab.file, replace(options, settings=settings), _campaign(lab, fields))


def _campaign(lab: Lab, fields: Mapping[str, object]) -> tuple[Campaign, Source]:
    """A campaign in code, parsed as a campaign file, with the same error messages."""
    content = {"question": f"What does the lab {lab.resolved.lab.name} do?", **fields}
    text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
    return campaign_of(parse(text, file="campaign", folder=lab.file.parent))


class _Watch:
    """Reports the number of ended cells to a callback."""

    def __init__(self, progress: Callable[[int, int], None] | None) -> None:
        self._report = progress or (lambda ended, cells: None)
        self._cells = self._skipped = self._ended = 0

    def total(self, cells: int) -> None:
        self._cells = cells

    def skipped(self, cells: int) -> None:
        self._skipped = cells  # called again at the end of a run
        self._report(self._skipped + self._ended, self._cells)

    def outcome(self, outcome: Outcome) -> None:
        self._ended += 1
        self._report(self._skipped + self._ended, self._cells)

    def progress(self, ended: int, running: float) -> None: ...
    def damaged(self, files: list[str]) -> None: ...
    def waiting(self) -> None: ...
    def discarded(self, difference: str) -> None: ...
    def obsolete(self, text: str) -> None: ...
    def phase(self, name: str) -> None: ...
    def flushing(self, text: str) -> None: ...
    def delivered(self, result: Delivery | str) -> None: ...
