# SPDX-License-Identifier: Apache-2.0
"""Programs of a lab keep their vector registers, which the guest's kernel saves lazily."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SOURCE = Path(__file__).parent / "programs" / "registers.c"
LAB = """
name: registers
topology: {star: {hosts: 2}}
links: {default: {rate: 1 Gbit/s, delay: 10 us}}
switches: {default: {scheme: droptail, buffer: 64 KB}}
hosts: {default: {tcp: cubic}}
workload: [{flow: {from: h1, to: h2, size: 1 KB}}]
duration: 1 ms
"""
ITERATIONS = 1_500_000_000  # loop iterations: more than the 250 ms of CPU time after which a spinning task is preempted


@pytest.mark.parametrize("width", ["xmm", "ymm", "zmm"])
def test_threads_signals_and_children_keep_their_registers(
    running_lab: Callable[[str], Any], tmp_path: Path, width: str
) -> None:
    with running_lab(LAB) as lab:
        program = tmp_path / "live" / "registers"  # the guest sees this folder as /mnt
        flags = ["-O1", "-Wall", "-Wextra", "-Werror", "-pthread"]
        subprocess.run(["gcc", *flags, "-o", str(program), str(SOURCE)], check=True)
        status, output = lab.run("h1", "/mnt/registers", width, str(ITERATIONS))
    assert status == 0, output
    assert output in (f"{width}: kept\n", f"this CPU has no {width}\n")
