# SPDX-License-Identifier: Apache-2.0
"""The fuzzers in short: all of the corpus, and new cases, the same in every run. `make fuzz` runs them for hours."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).with_name("run.py")


@pytest.mark.parametrize(
    ("name", "examples"), [("labs", 200), ("campaigns", 60), ("sql", 100), ("inspect", 20), ("service", 20)]
)
def test_nothing_is_found(name: str, examples: int, tmp_path: Path) -> None:
    command = [sys.executable, str(RUN), name, "--examples", str(examples), "--seconds", "300", "--seed", "1"]
    command += ["--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    found = "\n".join(path.read_text() for path in tmp_path.glob("*/*.txt"))
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-2000:]}\n{found[-5000:]}"
    tried = int(done.stdout.splitlines()[-1].split()[1])
    assert tried > 5, done.stdout


def test_the_fuzzers_find_what_is_wrong(tmp_path: Path) -> None:
    """A traceback, a hang, too much memory, and a child that dies are found, and the case is kept."""
    code = """
import signal, sys, time
sys.path.insert(0, sys.argv[1])
import children
children.HANG_S = 1.0
def target(folder):
    what = (folder / "what").read_text()
    if what == "hang":
        while True: pass
    if what == "raise":
        raise KeyError(what)
    if what == "memory":
        [0] * (1 << 28)
    if what == "die":
        signal.raise_signal(signal.SIGSEGV)
    return "accepted" if what else "refused"
books = children.Books()
for what in ("", "fine", "raise", "memory", "hang", "die"):
    children.try_all(children.each([{"what": what}]), target, books, time.monotonic() + 60)
print(*(books.counted[kind] for kind in children.KINDS))
print(sorted(case["what"] for case, _ in books.found.values()))
"""
    done = subprocess.run([sys.executable, "-c", code, str(RUN.parent)], capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines() == ["1 1 2 1 1", "['die', 'hang', 'memory', 'raise']"], done.stderr
