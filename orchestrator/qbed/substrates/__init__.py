# SPDX-License-Identifier: Apache-2.0
"""Substrates: the ways to run a plan, and their common interface.

A substrate is a package in this folder or in a folder of the environment variable QBED_SUBSTRATES. It defines `NAME`,
the value of `--on`, and its module `substrate` has a function `substrate()`, which returns a `Substrate`. Code outside
the package depends on the substrate's clock and abilities, never on its name.
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
from typing import TYPE_CHECKING, Literal, Protocol, get_args

from qbed.base.errors import QbedError, nearest
from qbed.base.json_files import Row

if TYPE_CHECKING:
    from qbed.plan.model import LinkChange, LinkEvent, Plan

DEFAULT = "virtual"
"""The substrate that needs nothing but this project's own set-up."""

__path__.extend(filter(None, os.environ.get("QBED_SUBSTRATES", "").split(os.pathsep)))

Progress = Callable[[float], None]
"""Takes the done fraction (0 to 1) of the cell's duration."""
Clock = Literal["virtual", "wall"]
Pace = Literal["fast", "real", "manual"]
"""How virtual time advances in a lab that is up, while a command runs: as fast as it is computed, no faster than real
time, or not at all, except by `qbed advance`.
"""
PACES: tuple[Pace, ...] = get_args(Pace)
PART_TIMES = "parts.json"
"""The file in a divided cell's folder with the windows of each part, and its seconds of computing and of waiting."""


class CellError(QbedError):
    """Raised if a cell did not run to its end."""


class SubstrateError(QbedError):
    """Raised if the substrate does not work, so that every other cell would fail too."""


class DiskFullError(SubstrateError):
    """Raised if the disk is full."""


class SessionError(QbedError):
    """Raised if a lab is not up, is up already, or does not respond."""


@dataclass(frozen=True)
class Limits:
    """Limits of a cell: wall-clock time of the cell and between two progress messages, and disk space."""

    cell_s: float = 3600.0
    stall_s: float = 300.0
    space_bytes: int = 64_000_000_000


@dataclass(frozen=True)
class Finding:
    """The result of a check of this machine. `missing` breaks `qbed run`; `optional` does not."""

    name: str
    state: Literal["good", "optional", "missing"]
    text: str
    fix: str | None = None


@dataclass(frozen=True)
class MissingPart:
    """A kernel, a kernel module or a program that a plan needs and this machine does not have."""

    kind: Literal["kernel", "module", "program"]
    name: str
    text: str


@dataclass(frozen=True)
class Samples:
    """The location of a lab's or cell's samples: `parts` are folders with `taps.bin` and
    `flow_samples.bin`; `clock` describes the clock of their times.
    """

    clock: Row
    parts: list[Path]


@dataclass(frozen=True)
class Status:
    """The status of a lab that is up, for `qbed ps`: its keeper, its time since the epoch, and what runs in it.

    On the wall clock also the frames lost outside the plan's queues, and the 99th percentile of the timer lateness of
    its latest node, in real ns. None: not known yet, or not applicable. `pace` is None on the wall clock.
    """

    keeper: str
    time_ns: int
    runs: str
    frames_lost: int | None = None
    late_ns: int | None = None
    pace: Pace | None = None


@dataclass(frozen=True)
class Job:
    """A program in the background: its number, and its start since the lab's epoch."""

    number: int
    node: str
    command: str
    since_ns: int


@dataclass(frozen=True)
class Terminal:
    """The terminal of an interactive program: its size and its kind (TERM). `shell`: the program is a shell, so virtual
    time may stop while it waits for a command.
    """

    rows: int
    columns: int
    kind: str
    shell: bool = False

    def fields(self) -> Row:
        """The fields of the agent's and the keeper's command (docs/formats.md section 2)."""
        size = {"rows": self.rows, "columns": self.columns}
        return {"terminal": size, "shell": self.shell, "env": {"TERM": self.kind}}


class Execution(Protocol):
    """A program that runs on a node."""

    def events(self) -> Iterator[Row]:
        """Yield the program's events: `stdout` and `stderr` (`data`, base64), `started` (in the background, with the
        file of its `output`), and last `exit` with its `code`. Raise `SessionError` if the lab ends before.
        """

    def interrupt(self) -> None:
        """End the program. Its remaining output arrives as events."""

    def send_input(self, keys: bytes) -> None:
        """Send keys to its terminal."""

    def resize(self, terminal: Terminal) -> None:
        """Set the size of its terminal."""


class Deployment(Protocol):
    """A lab that is up, or the remains of one."""

    @property
    def name(self) -> str: ...
    @property
    def substrate(self) -> str:
        """The substrate's name, the value of `--on`."""

    @property
    def file(self) -> str:
        """The lab file that it was started from."""

    @property
    def folder(self) -> Path:
        """The folder of its `plan.json`."""

    def exec(
        self,
        node: str,
        argv: list[str],
        *,
        background: bool,
        stdin: bytes = b"",
        terminal: Terminal | None = None,
        listens: bool = False,
    ) -> AbstractContextManager[Execution]:
        """Start a program on a node, with `stdin` as its whole input or with a terminal. If it `listens`, virtual time
        does not advance for it.
        """

    def workload(self) -> None:
        """Start the lab's workload: its times count from 1 s later. `SessionError` if it was started already."""

    def jobs(self) -> list[Job]:
        """The programs that run in the background."""

    def end(self, job: int) -> None:
        """End a background program and wait for its end. `SessionError` if there is none of that number."""

    def advance(self, ns: int) -> int:
        """Advance the lab's time and return the time since its epoch. `SessionError` on the wall clock."""

    def set_pace(self, pace: Pace) -> None:
        """Set how virtual time advances while a command runs. `SessionError` on the wall clock."""

    def change_links(self, links: list[LinkChange], states: list[LinkEvent]) -> None:
        """Change the settings of link ends now, and take links down or up. `SessionError` if that fails."""

    def samples(self, plan: Plan) -> Samples:
        """Its samples so far."""

    def is_up(self) -> bool:
        """Whether the lab is up."""

    def status(self) -> Status:
        """The lab's current status."""

    def stop(self) -> None:
        """Take the lab down and wait until all of it is removed."""


@dataclass(frozen=True)
class UpReport:
    """Messages about a lab that has come up, a sentence each."""

    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


class Cell(Protocol):
    """A cell that is ready to run."""

    def run(self, limits: Limits, progress: Progress) -> None:
        """Run the cell to its end and write `out/` into its folder. Raise `CellError` or `SubstrateError`."""


class Inputs(Protocol):
    """The inputs of cells besides their plans: parts of the toolchain, programs and versions, by name."""

    def of(self, plan: Plan) -> dict[str, str]:
        """The inputs of the cell with this plan: values by name."""

    def value(self, name: str) -> str:
        """The value of an input now; empty if it does not exist."""


class Substrate(Protocol):
    """A way to run a plan."""

    @property
    def name(self) -> str:
        """The value of `--on`."""

    @property
    def clock(self) -> Clock:
        """`virtual`: runs repeat to the byte. `wall`: runs have timer lateness, and can be dilated."""

    @property
    def cells_at_once(self) -> int | None:
        """The limit on concurrent cells; None: one per core."""

    @property
    def inputs(self) -> Inputs | None:
        """The inputs of cells besides their plans; None if results do not repeat."""

    def many_cells(self) -> AbstractContextManager[None]:
        """The context of a process that runs many cells: memory of a cell that ended may serve the next."""

    def cell(self, folder: Path, plan: Plan, dilation: int = 1) -> Cell:
        """Prepare a cell in `folder`, which holds `plan.json`. Raise `QbedError` if it cannot run here."""

    def check_name_free(self, name: str) -> None:
        """Raise `SessionError` if a lab of this name is up on any substrate."""

    def up(self, plan: Plan, file: Path, dilation: int, limits: Limits) -> UpReport:
        """Bring a lab up without its workload and wait until its nodes are ready. In virtual time, a lab that exceeds
        the limits is taken down.
        """

    def deployments(self) -> list[Deployment]:
        """Every lab that is up, or that a crash left behind."""

    def find(self, name: str) -> Deployment | None:
        """The deployment of this name, if there is one."""

    def samples(self, folder: Path, plan: Plan) -> Samples:
        """The samples of a cell's folder, while it runs and afterwards."""

    def missing_parts(self, plan: Plan) -> Iterator[MissingPart]:
        """Yield what the plan needs and this machine does not have, if that is known before the run."""

    def examine(self) -> Iterator[Finding]:
        """Check this machine; each problem has a fix."""


def parse_pace(text: str) -> Pace:
    """The pace of this name. ValueError."""
    for pace in PACES:
        if text == pace:
            return pace
    raise ValueError(f"expected {', '.join(PACES[:-1])} or {PACES[-1]}, not {text}{nearest(text, PACES)}")


@cache
def _packages() -> dict[str, str]:
    """The substrates' packages by their names, the default one first."""
    found = {}
    for module in pkgutil.iter_modules(__path__):
        if module.ispkg:
            package = f"{__name__}.{module.name}"
            try:
                name = str(importlib.import_module(package).NAME)
            except Exception:  # third-party package; `substrate` reports the error
                name = module.name
            found[name] = package
    return dict(sorted(found.items(), key=lambda item: (item[0] != DEFAULT, item[0])))


def names() -> list[str]:
    """The values of `--on`."""
    return list(_packages())


def substrate(name: str) -> Substrate:
    """The substrate of a name. SubstrateError if there is none."""
    if name not in _packages():
        raise SubstrateError(f"there is no substrate {name}{nearest(name, names())}")
    try:
        _ = importlib.import_module(_packages()[name]).NAME
        found: Substrate = importlib.import_module(f"{_packages()[name]}.substrate").substrate()
    except Exception as error:  # third-party package
        raise SubstrateError(f"the substrate {name} cannot be used: {type(error).__name__}: {error}") from error
    return found


def substrates() -> list[Substrate]:
    """All substrates that can be used; broken ones are skipped, so that labs of the others can be taken down."""
    found = []
    for name in names():
        with suppress(SubstrateError):
            found.append(substrate(name))
    return found


def check_name_free_elsewhere(name: str, on: str) -> None:
    """SessionError if a lab of this name is up on another substrate than `on`."""
    for candidate in substrates():
        if candidate.name != on and (deployment := candidate.find(name)) is not None:
            raise SessionError(
                f"the lab {name} is up already, on {deployment.substrate}; `qbed down {name}` takes it down"
            )


def find_lab(lab: str) -> Deployment:
    """The lab that is up by its name, or by the file or folder that it was brought up from. SessionError: none is."""
    path = Path(lab)
    if lab and "/" not in lab and not lab.startswith("."):
        for substrate in substrates():
            if (found := substrate.find(lab)) is not None:
                return found
    if path.exists():
        file = str((path / "lab.yml" if path.is_dir() else path).resolve())
        for substrate in substrates():
            for deployment in substrate.deployments():
                if deployment.file == file:
                    return deployment
        raise SessionError(f"the lab of {path} is not up; `qbed ps` lists what is up")
    if not lab or "/" in lab or lab.startswith("."):
        raise SessionError(f"there is no lab {lab}; `qbed ps` lists what is up")
    up = [deployment.name for substrate in substrates() for deployment in substrate.deployments()]
    if hint := nearest(lab, up):
        raise SessionError(f"the lab {lab} is not up{hint}")
    raise SessionError(f"the lab {lab} is not up; `qbed up` brings it up, `qbed ps` lists what is up")
