# SPDX-License-Identifier: Apache-2.0
"""A lab has files of its own folder read, and others only where somebody trusts it."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

LAB = """\
name: sizes
topology: {{star: {{hosts: 2}}}}
links: {{default: {{rate: 1 Gbit/s, delay: 5 us}}}}
workload:
  - arrivals: {{from: h1, to: h2, size: {{cdf: {cdf}}}, load: 0.1}}
duration: 1 ms
"""
COMMAND = (sys.executable, "-m", "qbed", "compile")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A lab's folder, and beside it a file of sizes that is not the lab's."""
    (tmp_path / "theirs" / "x").mkdir(parents=True)
    (tmp_path / "sizes.txt").write_text("500 0.5\n1000 1\n")
    return tmp_path / "theirs"


def write(folder: Path, way: str) -> Path:
    """A lab that names the file in one of the ways out."""
    outside = folder.parent / "sizes.txt"
    names = {"up": "../sizes.txt", "absolute": str(outside), "link": "link.txt", "down": "x/../../sizes.txt"}
    if way == "link":
        (folder / "link.txt").symlink_to(folder.parent / "sizes.txt")
    (folder / "lab.yml").write_text(LAB.format(cdf=names[way]))
    return folder / "lab.yml"


def compiled(lab: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if name != "QBED_TRUST"} | environment
    command = [*COMMAND, *options, str(lab)]
    return subprocess.run(command, env=clean, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("way", ["up", "absolute", "link", "down"])
def test_a_path_leads_out_only_with_trust(folder: Path, way: str) -> None:
    lab = write(folder, way)
    refused = compiled(lab)
    assert refused.returncode == 2 and "use --trust to allow it" in refused.stderr, refused.stderr
    assert "lab.yml:5:" in refused.stderr and "1000" not in refused.stderr
    assert compiled(lab, "--trust").returncode == 0
    assert compiled(lab, QBED_TRUST="1").returncode == 0


@pytest.mark.parametrize(("answer", "status"), [("y\n", 0), ("\n", 2), ("n\n", 2)])
def test_somebody_at_a_terminal_is_asked(folder: Path, answer: str, status: int) -> None:
    lab = write(folder, "up")
    ours, theirs = pty.openpty()
    environment = {name: value for name, value in os.environ.items() if name != "QBED_TRUST"}
    with subprocess.Popen([*COMMAND, str(lab)], env=environment, stdin=theirs, stdout=-3, stderr=theirs) as process:
        os.close(theirs)
        os.write(ours, answer.encode())
        said = b""
        try:
            while piece := os.read(ours, 1 << 16):
                said += piece
        except OSError:  # a terminal's other end is closed
            pass
        assert process.wait(60) == status, said
    os.close(ours)
    assert b"[y/N]" in said and b"outside. Read it?" in said


def test_a_file_of_its_own_is_read(folder: Path) -> None:
    (folder / "own").mkdir()
    (folder / "own" / "sizes.txt").write_text("500 0.5\n1000 1\n")
    (folder / "lab.yml").write_text(LAB.format(cdf="own/sizes.txt"))
    done = compiled(folder / "lab.yml")
    assert done.returncode == 0, done.stderr


def test_a_lab_like_another_has_no_file_from_elsewhere(folder: Path) -> None:
    (folder / "lab.yml").write_text(LAB.format(cdf="sizes.txt"))
    (folder.parent / "secret").write_text("mine\n")
    (folder / "more.yml").symlink_to(folder.parent / "secret")
    command = [*COMMAND[:3], "new", "mine", "--like", "theirs"]
    done = subprocess.run(command, cwd=folder.parent, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "more.yml is a link, expected a file" in done.stderr, done.stderr
    assert not (folder.parent / "mine").exists()
    (folder / "more.yml").unlink()
    assert subprocess.run(command, cwd=folder.parent, timeout=60).returncode == 0
