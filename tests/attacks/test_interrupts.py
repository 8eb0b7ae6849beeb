# SPDX-License-Identifier: Apache-2.0
"""A Ctrl-C at any moment: while modules are imported, in the workers, while results are written."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from received import qbed, write_lab

import qbed as package

OURS = f"{Path(package.__file__).parent}/"
MOMENTS = int(os.environ.get("QBED_MOMENTS", "6"))


def interrupted(folder: Path, command: list[str], after_s: float) -> subprocess.CompletedProcess[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "qbed", *command],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    time.sleep(after_s)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGINT)
    out, errors = process.communicate(timeout=60)
    return subprocess.CompletedProcess(command, process.returncode, out, errors)


@pytest.mark.parametrize(
    ("command", "step_s"), [("run lab --out run --no-images", 0.25), ("inspect lab", 0.08), ("cells nosuch", 0.08)]
)
def test_an_interrupt_at_any_moment_is_a_line_and_no_traceback(tmp_path: Path, command: str, step_s: float) -> None:
    write_lab(tmp_path / "lab")
    ended = []
    for number in range(MOMENTS):
        done = interrupted(tmp_path, command.split(), 0.1 + number * step_s * 6 / MOMENTS)
        # Before anything of ours runs, what is said is Python's own.
        told = "Traceback" in done.stderr and OURS in done.stderr
        assert not told and "Traceback" not in done.stdout, (number, done.stderr)
        assert "is no run folder" not in done.stderr.replace("nosuch is no run folder", ""), (number, done.stderr)
        # As Python begins and ends, the signal itself ends it.
        assert done.returncode in (0, 1, 2, 130, -signal.SIGINT), (number, done.returncode, done.stderr)
        ended.append(done.returncode)
    # The last is hardly more than its imports, whose end an interrupt waits for: it may come after all is over.
    if command != "cells nosuch":
        assert set(ended) & {130, -signal.SIGINT}, f"no interrupt came before the end: {ended}"
    if command.startswith("run"):
        done = qbed(tmp_path, *command.split())
        assert done.returncode == 0 and "2 of 2 cells complete" in done.stdout + done.stderr, done.stderr


LISTENS = """
import os, signal, time
from qbed.base.processes import raise_on
raise_on(signal.SIGINT, KeyboardInterrupt)
def interrupt():
    os.kill(os.getpid(), signal.SIGINT)
try:
    {}
    time.sleep(30)
except KeyboardInterrupt:
    print(whole)
"""


@pytest.mark.parametrize(
    "statement",
    [
        "from module import whole",  # DuckDB's extension, given up half way, crashed as the process ended
        "whole = not type('Last', (), {'__del__': lambda self: interrupt()})()",  # Python swallows what it raises
    ],
)
def test_an_interrupt_comes_late_but_comes(tmp_path: Path, statement: str) -> None:
    (tmp_path / "module.py").write_text("import time, __main__\n__main__.interrupt()\ntime.sleep(0.1)\nwhole = False\n")
    done = subprocess.run(
        [sys.executable, "-c", LISTENS.format(statement)], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "False\n", done.stderr
