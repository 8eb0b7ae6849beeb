# SPDX-License-Identifier: Apache-2.0
"""An interactive lab sees the folder where somebody works with it, though it is in /tmp, and draws the same numbers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

LAB = """\
name: seen
topology: {star: {hosts: 2}}
links: {default: {rate: 1 Gbit/s, delay: 5 us}}
duration: 10 ms
"""
PROGRAM = """\
#!/bin/sh
# Files in /tmp, as iperf3 makes them; then what the kernel draws.
: >/tmp/scratch && mkdir /tmp/more && head -c 32 /dev/urandom | od -An -tx1
"""


def qbed(folder: Path, state: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"XDG_RUNTIME_DIR": str(state)}
    command = [sys.executable, "-m", "qbed", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def drawn(folder: Path, state: Path, program: Path) -> str:
    """What the program prints in the lab of a folder, brought up from there."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "lab.yml").write_text(LAB)
    (folder / "program").write_text(PROGRAM)
    (folder / "program").chmod(0o755)
    up = qbed(folder, state, "up", ".")
    assert up.returncode == 0, up.stderr
    try:
        done = qbed(folder, state, "exec", "seen", "h1", "--", str(program))
        assert done.returncode == 0, done.stderr
        other = qbed(folder, state, "exec", "seen", "h1", "--", str(state.parent / "elsewhere"))
        assert other.returncode == 1 and "the lab seen sees" in other.stderr
        refused = qbed(folder, state, "exec", "seen", "h1", "--", "touch", str(folder / "new"))
        assert refused.returncode != 0 and not (folder / "new").exists(), "the lab may write there"
        return done.stdout
    finally:
        assert qbed(folder, state, "down", "--all").returncode == 0


def test_programs_in_tmp_run_and_change_nothing(tmp_path: Path) -> None:
    if Path("/tmp") not in tmp_path.parents:
        pytest.skip("pytest's folders are not in /tmp here")
    state = tmp_path / "state"
    state.mkdir()
    (tmp_path / "elsewhere").touch()
    near, far = tmp_path / "near", tmp_path / "a" / "b" / "c" / "far"
    found = [drawn(folder, state, folder / "program") for folder in (near, far, near)]
    assert len(set(found)) == 1 and len(found[0].split()) == 32, found
