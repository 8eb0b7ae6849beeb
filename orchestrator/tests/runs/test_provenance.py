# SPDX-License-Identifier: Apache-2.0
"""The commit of a lab's folder."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from qbed.runs.provenance import commit_of


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
