# SPDX-License-Identifier: Apache-2.0
"""A lab file reads files of its folder; a path out of the folder needs --trust or the user's confirmation."""

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
    """A lab's folder, with a file of flow sizes beside it."""
    (tmp_path / "lab" / "x").mkdir(parents=True)
    (tmp_path / "sizes.txt").write_text("500 0.5\n1000 1\n")
    return tmp_path / "lab"


def write_lab(folder: Path, kind: str) -> Path:
    """Write a lab that names the file outside its folder by a kind of path."""
    outside = folder.parent / "sizes.txt"
    names = {"up": "../sizes.txt", "absolute": str(outside), "link": "link.txt", "down": "x/../../sizes.txt"}
    if kind == "link":
        (folder / "link.txt").symlink_to(folder.parent / "sizes.txt")
    (folder / "lab.yml").write_text(LAB.format(cdf=names[kind]))
    return folder / "lab.yml"


def compiled(lab: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if name != "QBED_TRUST"} | environment
    command = [*COMMAND, *options, str(lab)]
    return subprocess.run(command, env=clean, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("kind", ["up", "absolute", "link", "down"])
def test_a_path_out_of_the_folder_needs_trust(folder: Path, kind: str) -> None:
    lab = write_lab(folder, kind)
    refused = compiled(lab)
    assert refused.returncode == 2 and "use --trust to allow it" in refused.stderr, refused.stderr
    assert "lab.yml:5:" in refused.stderr and "1000" not in refused.stderr
    assert compiled(lab, "--trust").returncode == 0
    assert compiled(lab, QBED_TRUST="1").returncode == 0


@pytest.mark.parametrize(("answer", "status"), [("y\n", 0), ("\n", 2), ("n\n", 2)])
def test_a_user_at_a_terminal_is_asked(folder: Path, answer: str, status: int) -> None:
    lab = write_lab(folder, "up")
    terminal, terminal_end = pty.openpty()
    environment = {name: value for name, value in os.environ.items() if name != "QBED_TRUST"}
    with subprocess.Popen(
        [*COMMAND, str(lab)], env=environment, stdin=terminal_end, stdout=-3, stderr=terminal_end
    ) as process:
        os.close(terminal_end)
        os.write(terminal, answer.encode())
        output = b""
        try:
            while piece := os.read(terminal, 1 << 16):
                output += piece
        except OSError:  # EIO: the other end is closed
            pass
        assert process.wait(60) == status, output
    os.close(terminal)
    assert b"[y/N]" in output and b"outside. Read it?" in output


def test_a_file_in_the_labs_folder_is_read(folder: Path) -> None:
    (folder / "data").mkdir()
    (folder / "data" / "sizes.txt").write_text("500 0.5\n1000 1\n")
    (folder / "lab.yml").write_text(LAB.format(cdf="data/sizes.txt"))
    done = compiled(folder / "lab.yml")
    assert done.returncode == 0, done.stderr


def test_a_copied_lab_has_no_symlink(folder: Path) -> None:
    (folder / "lab.yml").write_text(LAB.format(cdf="sizes.txt"))
    (folder.parent / "secret").write_text("mine\n")
    (folder / "more.yml").symlink_to(folder.parent / "secret")
    command = [*COMMAND[:3], "new", "mine", "--like", "lab"]
    done = subprocess.run(command, cwd=folder.parent, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "more.yml is a link, expected a file" in done.stderr, done.stderr
    assert not (folder.parent / "mine").exists()
    (folder / "more.yml").unlink()
    assert subprocess.run(command, cwd=folder.parent, timeout=60).returncode == 0
