# SPDX-License-Identifier: Apache-2.0
"""Pytest fixtures beside those of `qbed.testing`: `running_lab` and `tc_plugins`; tests that may be run again."""

from __future__ import annotations

import gc
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from qbed.substrates.toolchain import find_toolchain
from qbed.substrates.virtual.guest import boot
from qbed.testing import write_plan

import second_tries
from qbed_testing.running import RunningLab

ROOT = Path(__file__).parents[2]
gc.set_threshold(50_000)  # as in qbed.__main__: collections at the default take a tenth of the tests' time
signal.signal(signal.SIGINT, signal.default_int_handler)  # nohup ignores SIGINT, and child processes would inherit that


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Allow reruns of the tests that tests/second-tries.txt names."""
    second_tries.mark(items, second_tries.read())


@pytest.fixture
def running_lab(tmp_path: Path) -> Callable[..., Any]:
    """running_lab(yaml, readable=()): a context in which the lab is up. Its nodes may read the folders `readable`."""

    @contextmanager
    def up(text: str, readable: Sequence[Path] = ()) -> Iterator[RunningLab]:
        folder = tmp_path / "live"
        plan = write_plan(folder, text)
        with boot(find_toolchain(), folder, plan, "lab", readable) as guest:
            lab = RunningLab(guest)
            lab.wait_until_ready()
            yield lab

    return up


@pytest.fixture
def tc_plugins(tmp_path: Path) -> None:
    """Copy tc's plugins to /mnt/tc of `running_lab`: its guest may not read the cache."""
    built = subprocess.run([ROOT / "kernel/tc-plugins.sh"], check=True, capture_output=True, text=True).stdout.strip()
    shutil.copytree(built, tmp_path / "live" / "tc")
