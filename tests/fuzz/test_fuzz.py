# SPDX-License-Identifier: Apache-2.0
"""A short run of each fuzzer: the corpus and a few new cases of a fixed seed. `make fuzz` runs them for hours."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).with_name("run.py")


@pytest.mark.parametrize(
    ("name", "examples"),
    [("labs", 200), ("campaigns", 60), ("sql", 100), ("inspect", 20), ("import", 100), ("service", 20)],
)
def test_fuzzing_finds_nothing(name: str, examples: int, tmp_path: Path) -> None:
    command = [sys.executable, str(RUN), name, "--examples", str(examples), "--seconds", "300", "--seed", "1"]
    command += ["--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    found = "\n".join(path.read_text() for path in tmp_path.glob("*/*.txt"))
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-2000:]}\n{found[-5000:]}"
    tried = int(done.stdout.splitlines()[-1].split()[1])
    assert tried > 5, done.stdout


def test_a_fuzzer_reports_each_kind_of_failure(tmp_path: Path) -> None:
    """A traceback, a hang, excess memory and a killed child are findings, and their cases are kept."""
    code = """
import signal, sys, time
sys.path.insert(0, sys.argv[1])
from fuzz import child_processes
child_processes.HANG_S = 1.0
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
outcomes = child_processes.Outcomes()
for what in ("", "fine", "raise", "memory", "hang", "die"):
    child_processes.try_all(child_processes.each([{"what": what}]), target, outcomes, time.monotonic() + 60)
print(*(outcomes.counted[kind] for kind in child_processes.KINDS))
print(sorted(case["what"] for case, _ in outcomes.found.values()))
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(RUN.parents[1])], capture_output=True, text=True, timeout=120
    )
    assert done.stdout.splitlines() == ["1 1 2 1 1", "['die', 'hang', 'memory', 'raise']"], done.stderr
