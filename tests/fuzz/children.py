# SPDX-License-Identifier: Apache-2.0
"""Cases are tried in a child with limits of time and memory; the parent keeps the books.

What a child is at stands in memory that both have, so the parent knows which case a child died of, or hangs at.
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

from cases import Case
from targets import Target

HANG_S = 10.0
MEMORY = 1 << 30
KINDS = ("refused", "accepted", "tracebacks", "hangs", "over 1 GB")
_BOARD = 1 << 26
_HEAD = struct.Struct("<dQ4Q")
Tries = Callable[[Callable[[Case], None]], None]
"""Tries cases: calls what it is given with one after the other."""


@dataclass
class Books:
    """What came of the cases, and those that nobody may ever see again."""

    counted: Counter[str] = field(default_factory=Counter)
    found: dict[str, tuple[Case, str]] = field(default_factory=dict)
    """By what is the same about them: a case, and what it said."""

    @property
    def tried(self) -> int:
        return self.counted.total()

    @property
    def bad(self) -> int:
        return sum(self.counted[kind] for kind in KINDS[2:])

    def add(self, kind: str, case: Case, text: str) -> None:
        self.counted[kind] += 1
        last = [line for line in text.splitlines() if line.strip().startswith("File ")][-1:] or [
            f"{zlib.crc32(repr(case).encode()):08x}"
        ]
        self.found.setdefault(f"{kind}: {last[0].strip()}", (case, text))


def _busy(child: int) -> float:
    """Seconds of processor time: this machine may have other things to do, too."""
    fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class _Board:
    """Since when a child is at which case, and what it has counted."""

    def __init__(self) -> None:
        self.memory = mmap.mmap(-1, _BOARD)

    def begin(self, case: Case, counted: Counter[str]) -> None:
        data = pickle.dumps(case)
        self.memory[_HEAD.size : _HEAD.size + len(data)] = data
        self.note(time.process_time(), len(data), counted)

    def note(self, since: float, length: int, counted: Counter[str]) -> None:
        counts = [counted[kind] for kind in KINDS[:2]]
        self.memory[: _HEAD.size] = _HEAD.pack(since, length, *counts, 0, 0)

    def read(self) -> tuple[float, Case, Counter[str]]:
        since, length, *counts = _HEAD.unpack(self.memory[: _HEAD.size])
        case: Case = pickle.loads(self.memory[_HEAD.size : _HEAD.size + length]) if length else {}
        return since, case, Counter(dict(zip(KINDS[:2], counts, strict=False)))


def limit() -> None:
    """1 GB more than there is."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * mmap.PAGESIZE + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def try_all(tries: Tries, target: Target, books: Books, until: float) -> None:
    """Try cases in a child, to their end or until then."""
    board = _Board()
    child, out = _fork(tries, target, board)
    while True:
        ended = os.waitpid(child, os.WNOHANG)
        since, case, counted = board.read()
        if ended[0]:
            break
        if since and _busy(child) - since > HANG_S:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            books.add("hangs", case, f"more than {HANG_S} s")
            break
        if time.monotonic() > until + 6 * HANG_S:  # the child ends by itself, unless it waits for something
            if since:
                books.add("hangs", case, "it waits")
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            break
        time.sleep(0.02)
    if ended[0] and ended[1]:
        status = os.waitstatus_to_exitcode(ended[1])
        books.add("over 1 GB" if status == -signal.SIGABRT else "tracebacks", case, f"the child died: {status}")
    books.counted += counted
    with os.fdopen(out, "rb") as file:
        file.seek(0)
        while True:
            try:
                books.add(*pickle.load(file))
            except EOFError:
                break


def _fork(tries: Tries, target: Target, board: _Board) -> tuple[int, int]:
    out = os.memfd_create("findings")
    child = os.fork()
    if child:
        return child, out
    status = 1
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        limit()
        _be_child(tries, target, board, out)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def _be_child(tries: Tries, target: Target, board: _Board, out: int) -> None:
    counted: Counter[str] = Counter()
    known: set[str] = set()
    home = Path(tempfile.mkdtemp(prefix="qbed-fuzz-"))

    def one(case: Case) -> None:
        for name, text in case.items():
            (home / name).write_text(text, encoding="utf-8", errors="surrogatepass")
        board.begin(case, counted)
        try:
            counted[target(home)] += 1
        except MemoryError:
            os.write(out, pickle.dumps(("over 1 GB", case, "".join(traceback.format_exc(limit=-6)))))
        except Exception:
            text = traceback.format_exc(limit=-12)
            os.write(out, pickle.dumps(("tracebacks", case if text not in known else {}, text)))
            known.add(text)
        board.note(0.0, 0, counted)

    try:
        tries(one)
    finally:
        board.note(0.0, 0, counted)
        for file in home.iterdir():
            file.unlink()
        home.rmdir()


def each(cases: Iterable[Case]) -> Tries:
    """Tries these."""

    def tries(one: Callable[[Case], None]) -> None:
        for case in cases:
            one(case)

    return tries


def say(name: str, books: Books, seconds: float) -> None:
    """A line of the table."""
    numbers = "  ".join(f"{books.counted[kind]:>{max(8, len(kind))}}" for kind in KINDS)
    print(f"{name:<10}  {books.tried:>8}  {numbers}  {seconds:>8.0f}", flush=True)


def head() -> None:
    """The table's head."""
    print(
        f"{'fuzzer':<10}  {'tried':>8}  " + "  ".join(f"{kind:>8}" for kind in KINDS) + f"  {'seconds':>8}", flush=True
    )
    sys.stdout.flush()
