# SPDX-License-Identifier: Apache-2.0
"""The common parts of all benchmarks: pinned runs side by side, the smallest of several, ratios, goals, JSON.

These machines are noisy: what is compared is run in turn (A B A B ...) in one call, pinned to one core, and the
smallest time of each counts, since noise only ever adds. CPU time stands beside wall time, for machines that are busy.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from qbed.base.errors import QbedError
from qbed.network.load import load_lab
from qbed.plan.compile import compile_lab
from qbed.plan.model import Plan
from qbed.substrates import Limits
from qbed.substrates.toolchain import Toolchain
from qbed.substrates.virtual.guest import boot
from qbed.substrates.virtual.substrate import VirtualSubstrate
from qbed.telemetry.console import console_tail
from qbed.telemetry.records import Counters, read_counters

RESULTS = Path(__file__).parent / "results"
LIMITS = Limits(cell_s=1800, stall_s=600)


@dataclass(frozen=True)
class Figure:
    """One measured number; `goal` says what it should be at most (`<=`) or at least (`>=`)."""

    name: str
    value: float
    unit: str
    goal: float | None = None
    sense: str = "<="

    @property
    def met(self) -> bool | None:
        if self.goal is None:
            return None
        return self.value <= self.goal if self.sense == "<=" else self.value >= self.goal


@dataclass(frozen=True)
class Cost:
    """The cost of one run: seconds of wall clock and of CPU, its children included."""

    wall_s: float
    cpu_s: float


@contextmanager
def pinned(core: int) -> Iterator[None]:
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


@contextmanager
def allowed(count: int) -> Iterator[None]:
    """Limit this process to its last cores."""
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, cores()[-count:])
        yield
    finally:
        os.sched_setaffinity(0, before)


def cores() -> list[int]:
    """The cores that this process may use; the last is the one to measure on, the first is for everybody else."""
    return sorted(os.sched_getaffinity(0))


def outputs(program: Path, rounds: int) -> Iterator[dict[str, float]]:
    """The objects that a program prints, each in a line of JSON, when it is run `rounds` times on one core."""
    with pinned(cores()[-1]):
        for _ in range(rounds):
            output = subprocess.run([program], stdout=subprocess.PIPE, text=True, check=True).stdout
            yield from map(json.loads, output.splitlines())


def measured(action: Callable[[], object]) -> Cost:
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    action()
    wall, after = time.monotonic() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    return Cost(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def smallest(costs: list[Cost]) -> Cost:
    return Cost(min(cost.wall_s for cost in costs), min(cost.cpu_s for cost in costs))


def side_by_side(rounds: int, *actions: Callable[[], object], warm: bool = True) -> list[Cost]:
    """The smallest cost of each action over `rounds`, run in turn on one core.

    `warm`: after one round that does not count.
    """
    costs: list[list[Cost]] = [[] for _ in actions]
    with pinned(cores()[-1]):
        for number in range(rounds + warm):
            for action, action_costs in zip(actions, costs, strict=True):
                cost = measured(action)
                if number >= warm:
                    action_costs.append(cost)
    return [smallest(action_costs) for action_costs in costs]


class Cell:
    """A compiled lab in a scratch folder, to be run any number of times."""

    def __init__(self, text: str, seed: int = 1) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="qbed-bench-"))
        (self.folder / "lab.yml").write_text(text)
        self.plan: Plan = compile_lab(load_lab(self.folder / "lab.yml", {}), seed)
        (self.folder / "plan.json").write_text(self.plan.dumps())

    def run(self) -> None:
        shutil.rmtree(self.folder / "out", ignore_errors=True)
        VirtualSubstrate().cell(self.folder, self.plan).run(LIMITS, lambda fraction: None)

    @property
    def out(self) -> Path:
        return self.folder / "out"

    def counters(self) -> Counters:
        return read_counters(self.out / "counters.json")

    def packet_hops(self) -> int:
        """Frames transmitted by all link ends."""
        return sum(end.sent for pair in self.counters().links for end in (pair.a, pair.b))

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def run_program(toolchain: Toolchain, cell: Cell, *argv: str) -> None:
    """Boot the lab, run a program on h1 and power off."""
    with boot(toolchain, cell.folder, cell.plan, "lab", [Path(argv[0]).parent]) as guest:
        while True:
            messages = guest.wait(600)
            if messages is None:
                raise QbedError("\n".join(["the guest ended:", *console_tail(cell.folder / "console.log")]))
            for message in messages:
                if message["event"] == "ready":
                    guest.send({"command": "exec", "id": 1, "node": "h1", "argv": argv, "env": {}, "cwd": "/"})
                elif message["event"] == "exit":
                    assert message["code"] == 0, message
                    guest.send({"command": "stop"})
                    while guest.wait(60) is not None:
                        pass
                    return
                assert message["event"] not in ("stderr", "error"), message


def write(bench: str, figures: list[Figure]) -> None:
    """Print the figures and write `bench/results/NAME.json`."""
    write_result(bench, figures=[{**asdict(figure), "met": figure.met} for figure in figures])
    for figure in figures:
        goal = ""
        if figure.goal is not None:
            goal = f"   goal {figure.sense} {figure.goal:g}: {'met' if figure.met else 'NOT met'}"
        print(f"  {figure.name:58} {figure.value:12.4g} {figure.unit}{goal}", flush=True)


def write_result(bench: str, **content: object) -> None:
    """Write `bench/results/NAME.json` with the machine."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{bench}.json"
    path.with_suffix(".new").write_text(json.dumps({"bench": bench, **content, "machine": machine()}, indent=2))
    path.with_suffix(".new").rename(path)


def machine() -> dict[str, object]:
    described = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":")[1].strip() for line in described if "model name" in line), "?")
    return {"cpu": model, "cores": len(cores()), "load": os.getloadavg()[0], "kernel": os.uname().release}


def build(source: Path, target: Path, *flags: str) -> Path:
    """Compile a C or C++ peer once."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.exists() or target.stat().st_mtime < source.stat().st_mtime:
        compiler = "g++" if source.suffix == ".cc" else "gcc"
        subprocess.run([compiler, "-O2", "-o", str(target), str(source), *flags], check=True)
    return target
