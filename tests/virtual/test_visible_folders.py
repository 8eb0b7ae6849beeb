# SPDX-License-Identifier: Apache-2.0
"""A running lab can read the folder of its commands, even in /tmp, and its random numbers do not depend on it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

LAB = """\
name: visible
topology: {star: {hosts: 2}}
links: {default: {rate: 1 Gbit/s, delay: 5 us}}
duration: 10 ms
"""
PROGRAM = """\
#!/bin/sh
# Files in /tmp, as iperf3 creates them, and random numbers of the kernel.
: >/tmp/scratch && mkdir /tmp/more && head -c 32 /dev/urandom | od -An -tx1
"""


def qbed(folder: Path, state: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"XDG_RUNTIME_DIR": str(state)}
    command = [sys.executable, "-m", "qbed", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def random_numbers(folder: Path, state: Path, program: Path) -> str:
    """Bring up the lab of a folder there, run the program, and return its output."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "lab.yml").write_text(LAB)
    (folder / "program").write_text(PROGRAM)
    (folder / "program").chmod(0o755)
    up = qbed(folder, state, "up", ".")
    assert up.returncode == 0, up.stderr
    try:
        done = qbed(folder, state, "exec", "visible", "h1", "--", str(program))
        assert done.returncode == 0, done.stderr
        other = qbed(folder, state, "exec", "visible", "h1", "--", str(state.parent / "elsewhere"))
        assert other.returncode == 1 and "the lab visible sees" in other.stderr
        refused = qbed(folder, state, "exec", "visible", "h1", "--", "touch", str(folder / "new"))
        assert refused.returncode != 0 and not (folder / "new").exists(), "the lab may write to the folder"
        return done.stdout
    finally:
        assert qbed(folder, state, "down", "--all").returncode == 0


def test_programs_in_tmp_run_with_equal_random_numbers(tmp_path: Path) -> None:
    if Path("/tmp") not in tmp_path.parents:
        pytest.skip("pytest's folders are not in /tmp")
    state = tmp_path / "state"
    state.mkdir()
    (tmp_path / "elsewhere").touch()
    short, long = tmp_path / "short", tmp_path / "a" / "b" / "c" / "long"
    found = [random_numbers(folder, state, folder / "program") for folder in (short, long, short)]
    assert len(set(found)) == 1 and len(found[0].split()) == 32, found
