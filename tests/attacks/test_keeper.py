# SPDX-License-Identifier: Apache-2.0
"""A lab that is up and stands still, or fills the disk, is taken down by its keeper, and whoever waits hears why."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from received import qbed, write_lab

from qbed.substrates.virtual.session import session


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Callable[..., subprocess.CompletedProcess[str]]]:
    """up(options): the lab is up by `qbed up`, and is taken down at the end."""
    write_lab(tmp_path / "lab")

    def bring(*options: str) -> subprocess.CompletedProcess[str]:
        return qbed(tmp_path, "up", "lab", *options)

    yield bring
    qbed(tmp_path, "down", "received")


def guests_of(folder: Path) -> list[int]:
    """The processes that are in a folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (entry / "cwd").readlink().is_relative_to(folder):
                found.append(int(entry.name))
    return found


def test_a_lab_that_is_up_and_stands_still_is_taken_down(
    up: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    assert up("--stall-timeout", "2").returncode == 0
    home = session("received").home
    assert guests_of(home)
    for pid in guests_of(home):
        os.kill(pid, signal.SIGSTOP)
    done = qbed(tmp_path, "advance", "received", "1s", timeout=60)
    assert done.returncode == 1 and "no progress in 2 s of wall clock; the lab was taken down" in done.stderr, done
    until = time.monotonic() + 20
    while guests_of(home):
        assert time.monotonic() < until, guests_of(home)
        time.sleep(0.1)
    assert "received" not in qbed(tmp_path, "ps").stdout


def test_a_lab_that_is_up_and_writes_too_much_is_taken_down(
    up: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    done = up("--cell-space", "lots")
    assert done.returncode == 2 and "--cell-space" in done.stderr, done.stderr
    assert up("--cell-space", "2 MB").returncode == 0
    write = "head -c 3000000 /dev/zero >/mnt/large; sleep 100000"
    done = qbed(tmp_path, "exec", "received", "h1", "--", "sh", "-c", write, timeout=60)
    assert done.returncode == 1 and "more than the 2 MB that it may (--cell-space)" in done.stderr, done
