# SPDX-License-Identifier: Apache-2.0
"""The guest's kernel is heard: what it warns of stands on the cell's console, and without a reason nothing does."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from qbed.substrates.console import kernel_warnings

from qbed_testing.cells import RunningLab

LAB = """
name: heard
topology: {star: {hosts: 2}}
links: {default: {rate: 1 Gbit/s, delay: 5 us}}
switches: {default: {scheme: droptail, buffer: 1 MB}}
workload: [{flow: {from: h1, to: h2, size: 100 KB}}]
duration: 10 ms
"""
SCHEMES = ("droptail", "ecn, threshold: 20 packets", "codel", "rpm", "abq")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_cell_is_run_without_a_complaint(run_cell: Callable[..., Any], scheme: str) -> None:
    cell = run_cell(LAB.replace("droptail", scheme))
    assert kernel_warnings(cell.folder) == []
    said = (cell.folder / "console.log").read_text()
    assert "qlink: loading out-of-tree module" in said, "warnings reach the console"


@pytest.mark.parametrize(
    "line",
    [
        "WARNING: CPU: 0 PID: 7 at net/core/dev.c:1 said_by_a_test",
        "BUG: sleeping function called from invalid context at a test",
        "watchdog: BUG: soft lockup - CPU#0 stuck for 22s",
        "kernel BUG at mm/slub.c:448!",
        "Oops: 0002 [#1] SMP",
    ],
)
def test_what_the_kernel_complains_of_is_found(
    running_lab: Callable[[str], AbstractContextManager[RunningLab]], tmp_path: Path, line: str
) -> None:
    with running_lab(LAB) as lab:
        for said in (line, "a test: no WARNING: here"):
            assert lab.run("h1", "sh", "-c", f"echo '<4>{said}' > /dev/kmsg")[0] == 0
    (found,) = kernel_warnings(tmp_path / "live")
    assert re.sub(r"^\[\d+\.\d{9}\] ", "", found) == line != found, "the lab's time goes before it"
