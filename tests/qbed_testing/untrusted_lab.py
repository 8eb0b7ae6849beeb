# SPDX-License-Identifier: Apache-2.0
"""A small untrusted lab, its run folder, and qbed's command line: for tests of attacks."""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
from pathlib import Path

from qbed.cli import main

LAB = """\
name: received
topology: {star: {hosts: 2}}
links: {default: {rate: 1 Gbit/s, delay: 5 us}}
switches: {default: {scheme: droptail, buffer: 64 KB}}
workload:
  - flow: {from: h1, to: h2, size: 100 KB, label: LABEL}
duration: 5 ms
"""
CAMPAIGN = """\
question: Who reads along?
axes: {seed: [1], hosts.default.tcp: [cubic, reno]}
claims:
  - {name: honest, paper: It ends., sql: "SELECT count(*) = 2 AS holds FROM flows"}
"""


def qbed(folder: Path, *arguments: str, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    """Run a `qbed` command in `folder`."""
    command = [sys.executable, "-m", "qbed", *arguments]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=timeout, errors="backslashreplace"
    )


def call_main(*arguments: str) -> tuple[int, str, str]:
    """Run a `qbed` command in this process, and return its exit status, standard output and standard error."""
    out, errors = io.StringIO(), io.StringIO()
    before, sys.argv = sys.argv, ["qbed", *arguments]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            main()
    except SystemExit as end:
        return int(end.code or 0), out.getvalue(), errors.getvalue()
    finally:
        sys.argv = before
    raise AssertionError("main() returned instead of exiting")


def write_lab(folder: Path, label: str = "bulk", campaign: str = CAMPAIGN) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "lab.yml").write_text(LAB.replace("LABEL", label))
    (folder / "campaign.yml").write_text(campaign)
    return folder


def make_run(folder: Path) -> Path:
    """Run the lab, and return the run folder."""
    write_lab(folder / "lab")
    done = qbed(folder, "run", "lab", "--out", "run", "--no-images")
    assert done.returncode == 0, done.stderr
    return folder / "run"
