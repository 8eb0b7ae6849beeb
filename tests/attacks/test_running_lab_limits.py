# SPDX-License-Identifier: Apache-2.0
"""A running lab that stalls or exceeds its disk quota is taken down, and the waiting command reports the reason."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from qbed.substrates.virtual.session import session

from qbed_testing.untrusted_lab import qbed, write_lab


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Callable[..., subprocess.CompletedProcess[str]]]:
    """up(options): bring the lab up by `qbed up`; the end of the test takes it down."""
    write_lab(tmp_path / "lab")

    def bring_up(*options: str) -> subprocess.CompletedProcess[str]:
        return qbed(tmp_path, "up", "lab", *options)

    yield bring_up
    qbed(tmp_path, "down", "received")


def guests_of(folder: Path) -> list[int]:
    """The processes with their working directory in a folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (entry / "cwd").readlink().is_relative_to(folder):
                found.append(int(entry.name))
    return found


def test_a_stalled_lab_is_taken_down(up: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path) -> None:
    assert up("--stall-timeout", "2").returncode == 0
    home = session("received").home
    assert guests_of(home)
    for pid in guests_of(home):
        os.kill(pid, signal.SIGSTOP)
    done = qbed(tmp_path, "advance", "received", "1s", timeout=60)
    assert done.returncode == 1 and "no progress in 2 s of wall clock; the lab was taken down" in done.stderr, done
    deadline = time.monotonic() + 20
    while guests_of(home):
        assert time.monotonic() < deadline, guests_of(home)
        time.sleep(0.1)
    assert "received" not in qbed(tmp_path, "ps").stdout


def test_a_lab_over_its_disk_quota_is_taken_down(
    up: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    done = up("--cell-space", "lots")
    assert done.returncode == 2 and "--cell-space" in done.stderr, done.stderr
    assert up("--cell-space", "2 MB").returncode == 0
    script = "head -c 3000000 /dev/zero >/mnt/large; sleep 100000"
    done = qbed(tmp_path, "exec", "received", "h1", "--", "sh", "-c", script, timeout=60)
    assert done.returncode == 1 and "more than the 2 MB that it may (--cell-space)" in done.stderr, done
