# SPDX-License-Identifier: Apache-2.0
"""Substrates: the ways to bring a plan to life, and the interface by which everything else speaks to them.

A substrate is a package in this folder (or in one that the environment's QBED_SUBSTRATES names). It says its `NAME`,
what `--on` calls it, and its module `substrate` has the function `substrate()`, which returns a `Substrate`. Nobody
outside the package asks which one it is: they ask for its clock, and for what it can do.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from qbed.errors import QbedError, nearest

if TYPE_CHECKING:
    from qbed.plan.model import Plan

DEFAULT = "virtual"
"""The substrate that needs nothing but this project's own set-up."""

__path__.extend(filter(None, os.environ.get("QBED_SUBSTRATES", "").split(os.pathsep)))

Progress = Callable[[float], None]
"""Takes the done fraction (0 to 1) of the cell's duration."""
Clock = Literal["virtual", "wall"]


class CellError(QbedError):
    """A cell that did not run to its end; the message says why."""


class SubstrateError(QbedError):
    """The substrate itself does not work: no other cell would fare better."""


class DiskFullError(SubstrateError):
    """Nothing more can be written."""


class SessionError(QbedError):
    """A lab is not up, or is up already, or does not answer."""


@dataclass(frozen=True)
class Limits:
    """Wall-clock limits, in seconds: for a whole cell, and for the virtual clock to move by one progress message; and
    what the cell may write.
    """

    cell_s: float = 3600.0
    stall_s: float = 300.0
    space_bytes: int = 64_000_000_000


@dataclass(frozen=True)
class Finding:
    """What a check of this machine saw. `missing` breaks `qbed run`; `optional` does not."""

    name: str
    state: Literal["good", "optional", "missing"]
    text: str
    mend: str | None = None


@dataclass(frozen=True)
class Lack:
    """What a plan needs and this machine does not have, in words. `of`: the module or program."""

    kind: Literal["module", "program"]
    of: str
    text: str


@dataclass(frozen=True)
class Samples:
    """Where the samples of a lab or cell grow: `parts` are folders with `taps.bin`, `tcpinfo.ndjson` and
    `rates.ndjson`; `clock` says what clock their times are of.
    """

    clock: dict[str, Any]
    parts: list[Path]


@dataclass(frozen=True)
class Status:
    """How a lab that is up fares, for `qbed ps`: who keeps it, its time since its epoch, and what runs in it.

    On the wall clock also: the frames that it lost outside the plan's queues, and the 99th percentile of how late the
    deadlines of its latest node ran, in real ns. None: not known yet, or there is no such thing.
    """

    keeper: str
    time_ns: int
    runs: str
    frames_lost: int | None = None
    late_ns: int | None = None


@dataclass(frozen=True)
class Job:
    """A program in the background: its number, and when it was started, since the lab's epoch."""

    number: int
    node: str
    command: str
    since_ns: int


@dataclass(frozen=True)
class Terminal:
    """What a program that somebody types to has: its size, and what kind it is (TERM). `shell`: the program is one, and
    while it waits for a command no time need pass.
    """

    rows: int
    columns: int
    kind: str
    shell: bool = False

    def fields(self) -> dict[str, Any]:
        """As agent and keeper take it (docs/formats.md section 2)."""
        size = {"rows": self.rows, "columns": self.columns}
        return {"terminal": size, "shell": self.shell, "env": {"TERM": self.kind}}


class Execution(Protocol):
    """A program that runs on a node."""

    def answers(self) -> Iterator[dict[str, Any]]:
        """What comes of it: `stdout` and `stderr` (`data`, base64), `started` (in the background, `output` says where
        it prints), at last `exit` with its `code`. `SessionError` if the lab ends before.
        """

    def interrupt(self) -> None:
        """Nobody wants it any more; what it says last comes as answers."""

    def type_in(self, keys: bytes) -> None:
        """Type at its terminal."""

    def resize(self, terminal: Terminal) -> None:
        """Its terminal has another size now."""


class Deployment(Protocol):
    """A lab that is up, or whatever is left of one."""

    @property
    def name(self) -> str: ...
    @property
    def substrate(self) -> str:
        """What `--on` calls the substrate."""

    @property
    def file(self) -> str:
        """The lab file that it was brought up from."""

    @property
    def folder(self) -> Path:
        """Where its `plan.json` is."""

    def exec(
        self, node: str, argv: list[str], *, background: bool, stdin: bytes = b"", terminal: Terminal | None = None
    ) -> AbstractContextManager[Execution]:
        """Start a program on a node; `stdin`: all that it can read, or it has a terminal."""

    def workload(self) -> None:
        """Start the lab's own workload: its times count from 1 s later. `SessionError` if it was started already."""

    def jobs(self) -> list[Job]:
        """The programs that run in the background."""

    def end(self, job: int) -> None:
        """End one of them; returns when it has ended. `SessionError`: there is none of that number."""

    def advance(self, ns: int) -> int:
        """Let its time pass; returns the time since its epoch. `SessionError` where time passes by itself."""

    def samples(self, plan: Plan) -> Samples:
        """Its samples so far."""

    def is_up(self) -> bool:
        """Whether it is still there."""

    def status(self) -> Status:
        """How it fares."""

    def stop(self) -> None:
        """Take it down; returns when nothing of it is left."""


@dataclass(frozen=True)
class Brought:
    """What the user is told of a lab that has come up: `notes` and `warnings`, a sentence each."""

    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


class Cell(Protocol):
    """A cell that is ready to run."""

    def run(self, limits: Limits, progress: Progress) -> None:
        """Run it to the end of its duration: its folder holds `out/` then, and nothing of it is left. `CellError`,
        `SubstrateError`.
        """


class Substrate(Protocol):
    """One way to bring a plan to life."""

    @property
    def name(self) -> str:
        """What `--on` calls it."""

    @property
    def clock(self) -> Clock:
        """`virtual`: equal runs are equal files. `wall`: they are judged by how late they were, and can be dilated."""

    @property
    def cells_at_once(self) -> int | None:
        """None: as many as there are cores, each cell on its own."""

    @property
    def provenance(self) -> dict[str, Any] | None:
        """What a cell's results follow from besides its plan; None: from the moment, too."""

    def cell(self, folder: Path, plan: Plan, dilation: int = 1) -> Cell:
        """Put into `folder`, which holds `plan.json`, what the cell needs besides; raises `QbedError` if it cannot run
        here.
        """

    def refuse_second(self, name: str) -> None:
        """`SessionError` if a lab of this name is up, here or on another substrate."""

    def up(self, plan: Plan, file: Path, dilation: int, limits: Limits) -> Brought:
        """Bring a lab up, without its workload: returns when its nodes are ready. In virtual time it is taken down
        when it goes beyond the limits.
        """

    def deployments(self) -> list[Deployment]:
        """Every lab that is up, or that a crash left behind."""

    def find(self, name: str) -> Deployment | None:
        """The lab of a name, if it is among them."""

    def samples(self, folder: Path, plan: Plan) -> Samples:
        """The samples of a cell's folder, while it runs and afterwards."""

    def lacks(self, plan: Plan) -> Iterator[Lack]:
        """What the plan needs that is not here, as far as that can be known beforehand."""

    def examine(self) -> Iterator[Finding]:
        """Whether this machine can run it, and how to mend it if not."""


@cache
def _packages() -> dict[str, str]:
    """The substrates' packages by their names, the default one first."""
    found = {}
    for module in pkgutil.iter_modules(__path__):
        if module.ispkg:
            package = f"{__name__}.{module.name}"
            try:
                name = str(importlib.import_module(package).NAME)
            except Exception:  # of a package that may be anybody's; `substrate` says what is wrong with it
                name = module.name
            found[name] = package
    return dict(sorted(found.items(), key=lambda item: (item[0] != DEFAULT, item[0])))


def names() -> list[str]:
    """What `--on` knows."""
    return list(_packages())


def substrate(name: str) -> Substrate:
    """The substrate of a name. SubstrateError if there is none."""
    if name not in _packages():
        raise SubstrateError(f"there is no substrate {name}{nearest(name, names())}")
    try:
        _ = importlib.import_module(_packages()[name]).NAME
        found: Substrate = importlib.import_module(f"{_packages()[name]}.substrate").substrate()
    except Exception as error:  # of a package that may be anybody's
        raise SubstrateError(f"the substrate {name} cannot be used: {type(error).__name__}: {error}") from error
    return found


def substrates() -> list[Substrate]:
    """All that can be used: one that is broken does not keep the labs of the others up."""
    found = []
    for name in names():
        with suppress(SubstrateError):
            found.append(substrate(name))
    return found


def refuse_elsewhere(name: str, on: str) -> None:
    """SessionError if a lab of this name is up on another substrate than `on`."""
    for other in substrates():
        if other.name != on and (there := other.find(name)) is not None:
            raise SessionError(f"the lab {name} is up already, on {there.substrate}; `qbed down {name}` takes it down")


def find_lab(lab: str) -> Deployment:
    """The lab that is up by its name, or by the file or folder that it was brought up from. SessionError: none is."""
    path = Path(lab)
    if lab and "/" not in lab and not lab.startswith("."):
        for one in substrates():
            if (found := one.find(lab)) is not None:
                return found
    if path.exists():
        file = str((path / "lab.yml" if path.is_dir() else path).resolve())
        for one in substrates():
            for there in one.deployments():
                if there.file == file:
                    return there
        raise SessionError(f"the lab of {path} is not up; `qbed ps` lists what is up")
    if not lab or "/" in lab or lab.startswith("."):
        raise SessionError(f"there is no lab {lab}; `qbed ps` lists what is up")
    up = [there.name for one in substrates() for there in one.deployments()]
    if hint := nearest(lab, up):
        raise SessionError(f"the lab {lab} is not up{hint}")
    raise SessionError(f"the lab {lab} is not up; `qbed up` brings it up, `qbed ps` lists what is up")
