# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C while modules are imported, while workers run, and while results are written."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

import qbed as package

from qbed_testing.untrusted_lab import qbed, write_lab

PACKAGE = f"{Path(package.__file__).parent}/"
MOMENTS = int(os.environ.get("QBED_MOMENTS", "6"))


def interrupt_after(folder: Path, command: list[str], after_s: float) -> subprocess.CompletedProcess[str]:
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
def test_an_interrupt_prints_one_line_and_no_traceback(tmp_path: Path, command: str, step_s: float) -> None:
    write_lab(tmp_path / "lab")
    statuses = []
    for number in range(MOMENTS):
        done = interrupt_after(tmp_path, command.split(), 0.1 + number * step_s * 6 / MOMENTS)
        # A traceback of Python's start-up has no line of the package.
        has_traceback = "Traceback" in done.stderr and PACKAGE in done.stderr
        assert not has_traceback and "Traceback" not in done.stdout, (number, done.stderr)
        assert "is no run folder" not in done.stderr.replace("nosuch is no run folder", ""), (number, done.stderr)
        # While Python starts or exits, the signal kills it.
        assert done.returncode in (0, 1, 2, 130, -signal.SIGINT), (number, done.returncode, done.stderr)
        statuses.append(done.returncode)
    # `cells nosuch` ends soon after its imports, which defer interrupts.
    if command != "cells nosuch":
        assert set(statuses) & {130, -signal.SIGINT}, f"no interrupt came before the end: {statuses}"
    if command.startswith("run"):
        done = qbed(tmp_path, *command.split())
        assert done.returncode == 0 and "2 of 2 cells complete" in done.stdout + done.stderr, done.stderr


INTERRUPTED = """
import os, signal, time
from qbed.base.processes import raise_on
raise_on(signal.SIGINT, KeyboardInterrupt)
def interrupt():
    os.kill(os.getpid(), signal.SIGINT)
try:
    {}
    time.sleep(30)
except KeyboardInterrupt:
    print(complete)
"""


@pytest.mark.parametrize(
    "statement",
    [
        "from module import complete",  # an interrupted import of DuckDB crashed at exit
        "complete = not type('Last', (), {'__del__': lambda self: interrupt()})()",  # Python ignores it in __del__
    ],
)
def test_an_interrupt_during_an_import_is_deferred(tmp_path: Path, statement: str) -> None:
    (tmp_path / "module.py").write_text(
        "import time, __main__\n__main__.interrupt()\ntime.sleep(0.1)\ncomplete = False\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED.format(statement)], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "False\n", done.stderr
