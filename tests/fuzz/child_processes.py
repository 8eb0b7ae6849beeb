# SPDX-License-Identifier: Apache-2.0
"""Run cases in a child process with limits of time and memory.

The child writes its current case to shared memory, so the parent can report the case that killed it or that hangs.
"""

from __future__ import annotations

import mmap
import os
import pickle
import resource
import signal
import struct
import sys
import tempfile
import time
import traceback
import zlib
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from fuzz.cases import Case
from fuzz.targets import Target

HANG_S = 30.0
"""Limit of CPU time for a case. A job checks 72 combinations of a lab of 193 nodes in 10 s."""
BLOCK_S = 600.0
"""Wall-clock time after the deadline in which a case ends, on a busy machine, too."""
MEMORY = 1 << 30
MEMORY_FOLDER = next((place for place in ("/dev/shm",) if os.access(place, os.W_OK)), None)
"""Folder of the cases: a file in memory costs less than one on a disk."""
KINDS = ("refused", "accepted", "tracebacks", "hangs", "over 1 GB")
_SHARED_BYTES = 1 << 26
_HEAD = struct.Struct("<dQ4Q")
Tries = Callable[[Callable[[Case], None]], None]
"""A function that calls its argument with each case."""


@dataclass
class Outcomes:
    """The number of cases per outcome, and the failing cases."""

    counted: Counter[str] = field(default_factory=Counter)
    found: dict[str, tuple[Case, str]] = field(default_factory=dict)
    """A case and its output for each distinct finding."""

    @property
    def total(self) -> int:
        return self.counted.total()

    @property
    def failures(self) -> int:
        return sum(self.counted[kind] for kind in KINDS[2:])

    def add(self, kind: str, case: Case, text: str) -> None:
        self.counted[kind] += 1
        last = [line for line in text.splitlines() if line.strip().startswith("File ")][-1:] or [
            f"{zlib.crc32(repr(case).encode()):08x}"
        ]
        self.found.setdefault(f"{kind}: {last[0].strip()}", (case, text))


def _cpu_time(child: int) -> float:
    """A child's CPU time in seconds."""
    fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class _SharedState:
    """A child's current case with its start in CPU time, and the child's counts, in shared memory."""

    def __init__(self) -> None:
        self.memory = mmap.mmap(-1, _SHARED_BYTES)

    def begin(self, case: Case, counted: Counter[str]) -> None:
        data = pickle.dumps(case)
        self.memory[_HEAD.size : _HEAD.size + len(data)] = data
        self.write(time.process_time(), len(data), counted)

    def write(self, since: float, length: int, counted: Counter[str]) -> None:
        counts = [counted[kind] for kind in KINDS[:2]]
        self.memory[: _HEAD.size] = _HEAD.pack(since, length, *counts, 0, 0)

    def read(self) -> tuple[float, Case, Counter[str]]:
        since, length, *counts = _HEAD.unpack(self.memory[: _HEAD.size])
        case: Case = pickle.loads(self.memory[_HEAD.size : _HEAD.size + length]) if length else {}
        return since, case, Counter(dict(zip(KINDS[:2], counts, strict=False)))


def limit_memory() -> None:
    """Limit the address space to 1 GB more than now."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * mmap.PAGESIZE + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def try_all(tries: Tries, target: Target, outcomes: Outcomes, deadline: float) -> None:
    """Run cases in a child until they end or the deadline passes."""
    state = _SharedState()
    child, out = _fork(tries, target, state)
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        since, case, counted = state.read()
        if pid:
            break
        if since and _cpu_time(child) - since > HANG_S:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            outcomes.add("hangs", case, f"more than {HANG_S} s")
            break
        if time.monotonic() > deadline + (BLOCK_S if since else 6 * HANG_S):  # it ends by itself unless it blocks
            if since:
                outcomes.add("hangs", case, "it blocks")
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            break
        time.sleep(0.02)
    if pid and status:
        exit_code = os.waitstatus_to_exitcode(status)
        outcomes.add(
            "over 1 GB" if exit_code == -signal.SIGABRT else "tracebacks", case, f"the child died: {exit_code}"
        )
    outcomes.counted += counted
    with os.fdopen(out, "rb") as file:
        file.seek(0)
        while True:
            try:
                outcomes.add(*pickle.load(file))
            except EOFError:
                break


def _fork(tries: Tries, target: Target, state: _SharedState) -> tuple[int, int]:
    out = os.memfd_create("findings")
    child = os.fork()
    if child:
        return child, out
    status = 1
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        limit_memory()
        _run_child(tries, target, state, out)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def _run_child(tries: Tries, target: Target, state: _SharedState, out: int) -> None:
    counted: Counter[str] = Counter()
    known: set[str] = set()
    home = Path(tempfile.mkdtemp(prefix="qbed-fuzz-", dir=MEMORY_FOLDER))

    def run_case(case: Case) -> None:
        for name, text in case.items():
            (home / name).write_text(text, encoding="utf-8", errors="surrogatepass")
        state.begin(case, counted)
        try:
            counted[target(home)] += 1
        except MemoryError:
            os.write(out, pickle.dumps(("over 1 GB", case, "".join(traceback.format_exc(limit=-6)))))
        except Exception:
            text = traceback.format_exc(limit=-12)
            os.write(out, pickle.dumps(("tracebacks", case if text not in known else {}, text)))
            known.add(text)
        state.write(0.0, 0, counted)

    try:
        tries(run_case)
    finally:
        state.write(0.0, 0, counted)
        for file in home.iterdir():
            file.unlink()
        home.rmdir()


def each(cases: Iterable[Case]) -> Tries:
    """Wrap a sequence of cases as `Tries`."""

    def tries(run_case: Callable[[Case], None]) -> None:
        for case in cases:
            run_case(case)

    return tries


def print_row(name: str, outcomes: Outcomes, seconds: float) -> None:
    """Print a row of the table."""
    numbers = "  ".join(f"{outcomes.counted[kind]:>{max(8, len(kind))}}" for kind in KINDS)
    print(f"{name:<10}  {outcomes.total:>8}  {numbers}  {seconds:>8.0f}", flush=True)


def print_header() -> None:
    """Print the table's header."""
    print(
        f"{'fuzzer':<10}  {'tried':>8}  " + "  ".join(f"{kind:>8}" for kind in KINDS) + f"  {'seconds':>8}", flush=True
    )
    sys.stdout.flush()
