# SPDX-License-Identifier: Apache-2.0
"""Programs keep their registers, receive signals and can be traced, in each mode of user code execution."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from qbed.substrates import toolchain_files
from qbed.substrates.toolchain import Toolchain, find_toolchain, toolchain_in
from qbed.substrates.virtual.guest import boot
from qbed.testing import write_plan

from qbed_testing.running import RunningLab

PROGRAMS = Path(__file__).parent / "programs"
LAB = """
name: programs
topology: {star: {hosts: 2}}
links: {default: {rate: 1 Gbit/s, delay: 10 us}}
switches: {default: {scheme: droptail, buffer: 64 KB}}
hosts: {default: {tcp: cubic}}
duration: 1 s
"""

LINES = (
    "sh -c 'date +%s.%N; {}/threads exactly && date +%s.%N'",
    "sh -c 'for i in 1 2 3; do date +%s.%N; ls -l /proc/self; done'",
    "ping -c 5 -i 0.01 h2",
    "sh -c '{}/processes && date +%s.%N'",
)


@pytest.fixture(scope="module")
def built() -> Iterator[Path]:
    """The compiled programs in a folder that the guest can read: not under /tmp or /run."""
    with tempfile.TemporaryDirectory(prefix="qbed-programs-", dir="/var/tmp") as folder:
        Path(folder).chmod(0o755)
        for source in PROGRAMS.glob("*.c"):
            target = Path(folder) / source.stem
            subprocess.run(["gcc", "-O2", "-Wall", "-Werror", "-pthread", "-o", target, source], check=True)
        yield Path(folder)


@pytest.mark.parametrize("name", ["threads", "signals", "processes", "tracer"])
def test_a_program_keeps_its_state(running_lab: Any, built: Path, name: str) -> None:
    with running_lab(LAB, [built]) as lab:
        status, output = lab.run("h1", str(built / name))
    assert (status, output) == (0, "")


def test_strace_follows_every_task(running_lab: Any, built: Path) -> None:
    with running_lab(LAB, [built]) as lab:
        status, output = lab.run("h1", "strace", "-f", "-e", "trace=vfork,execve,exit_group", str(built / "processes"))
    assert status == 0, output[-2000:]
    assert output.count("execve(") >= 3 * 25 * 2
    assert output.count("+++ exited with 70 +++") == 3 * 25


def with_seccomp_mode(toolchain: Toolchain, folder: Path, mode: str) -> Toolchain:
    """A copy of the toolchain with a kernel that always runs with `seccomp=MODE`."""
    shutil.copytree(toolchain.folder, folder, symlinks=True)
    (folder / "linux").unlink()
    (folder / "linux").write_text(
        f"""#!/bin/bash
for argument; do [[ $argument == seccomp=* ]] || arguments+=("$argument"); done
exec {shlex.quote(str(toolchain.kernel))} seccomp={mode} "${{arguments[@]}}"
"""
    )
    (folder / "linux").chmod(0o755)
    toolchain_files.record(folder)
    return toolchain_in(folder)


def test_results_are_equal_in_all_seccomp_modes(built: Path, tmp_path: Path) -> None:
    """Notifications or signals of seccomp and ptrace give equal bytes and times (6.12 has ptrace only)."""
    toolchain = find_toolchain()
    found = {}
    for mode in ("auto", "signal", "off"):
        folder = tmp_path / mode
        plan = write_plan(folder, LAB)
        with boot(
            with_seccomp_mode(toolchain, tmp_path / f"toolchain-{mode}", mode), folder, plan, "lab", [built]
        ) as guest:
            lab = RunningLab(guest)
            lab.wait_until_ready()
            outputs = [lab.run("h1", *shlex.split(line.format(built))) for line in LINES]
        found[mode] = outputs
    assert all(status == 0 for status, _ in found["auto"]), found["auto"]
    assert found["auto"] == found["signal"] == found["off"]
