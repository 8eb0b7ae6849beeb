# SPDX-License-Identifier: Apache-2.0
"""Warnings of the guest's kernel are found on the console; a normal cell has none."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from qbed.telemetry.console import kernel_warnings

from qbed_testing.running import RunningLab

LAB = """
name: warnings
topology: {star: {hosts: 2}}
links: {default: {rate: 1 Gbit/s, delay: 5 us}}
switches: {default: {scheme: droptail, buffer: 1 MB}}
workload: [{flow: {from: h1, to: h2, size: 100 KB}}]
duration: 10 ms
"""
SCHEMES = ("droptail", "ecn, threshold: 20 packets", "codel", "rpm", "abq")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_cell_runs_without_a_kernel_warning(run_cell: Callable[..., Any], scheme: str) -> None:
    cell = run_cell(LAB.replace("droptail", scheme))
    assert kernel_warnings(cell.folder) == []
    console = (cell.folder / "console.log").read_text()
    assert "qlink: loading out-of-tree module" in console, "warnings reach the console"


@pytest.mark.parametrize(
    "line",
    [
        "WARNING: CPU: 0 PID: 7 at net/core/dev.c:1 printed_by_a_test",
        "BUG: sleeping function called from invalid context at a test",
        "watchdog: BUG: soft lockup - CPU#0 stuck for 22s",
        "kernel BUG at mm/slub.c:448!",
        "Oops: 0002 [#1] SMP",
    ],
)
def test_a_kernel_warning_is_found(
    running_lab: Callable[[str], AbstractContextManager[RunningLab]], tmp_path: Path, line: str
) -> None:
    with running_lab(LAB) as lab:
        for text in (line, "a test: no WARNING: here"):
            assert lab.run("h1", "sh", "-c", f"echo '<4>{text}' > /dev/kmsg")[0] == 0
    (found,) = kernel_warnings(tmp_path / "live")
    assert re.sub(r"^\[\d+\.\d{9}\] ", "", found) == line != found, "the line starts with the lab time"
