# SPDX-License-Identifier: Apache-2.0
"""The commit of a lab's folder, and the times of a run's parts."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from qbed.runs.executor import WALL_TIMES
from qbed.runs.provenance import commit_of, part_times, wall_times


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=test", "-c", "user.email=test@localhost", "-c", "commit.gpgsign=false"]
    command = ["git", "-C", str(folder), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_a_lab_in_a_repository_has_its_commit(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    folder = tmp_path / "labs"
    folder.mkdir()
    (folder / "lab.yml").write_text("name: a\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "labs: add a lab")
    git(tmp_path, "tag", "-a", "v1", "-m", "a release")
    commit = git(tmp_path, "rev-parse", "HEAD")[:12]
    assert commit_of(folder) == commit
    (folder / "untracked").write_text("")
    assert commit_of(folder) == commit
    (folder / "lab.yml").write_text("name: b\n")
    assert commit_of(folder) == commit


def test_a_repository_runs_no_program(tmp_path: Path) -> None:
    """Its configuration may come from anybody."""
    git(tmp_path, "init", "-q")
    (tmp_path / ".gitattributes").write_text("* filter=trap\n")
    (tmp_path / "lab.yml").write_text("name: a\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "labs: add a lab")
    for name in ("core.fsmonitor", "filter.trap.clean", "filter.trap.process"):
        git(tmp_path, "config", name, f"touch {tmp_path}/trapped; false")
    (tmp_path / "lab.yml").write_text("name: b\n")
    assert commit_of(tmp_path) is not None
    assert not (tmp_path / "trapped").exists()


def test_a_lab_elsewhere_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert commit_of(tmp_path) is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert commit_of(tmp_path) is None


def test_the_times_of_parts_are_sums_over_cells(tmp_path: Path) -> None:
    (tmp_path / "cells").mkdir()
    times = tmp_path / "cells" / WALL_TIMES
    times.write_text(
        '{"cell": 0, "wall_s": 3.0, "parts": [[2.5, 0.5], [2.0, 1.0]]}\n'
        '{"cell": 1, "wall_s": 2.0}\n'
        '{"cell": 2, "wall_s": 4.0, "parts": [[3.0, 1.0], [4.0, 0.0]]}\n'
        '{"cell": 3, "wal'
    )
    assert part_times(tmp_path) == "part 0 computed 5.5 s and waited 1.5 s; part 1 computed 6.0 s and waited 1.0 s"
    assert wall_times(tmp_path) == {0: 3.0, 1: 2.0, 2: 4.0}
    times.write_text('{"cell": 1, "wall_s": 2.0}\n')
    assert part_times(tmp_path) == ""
