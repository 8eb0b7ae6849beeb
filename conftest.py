# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests that boot the real guest, in tests/ and in the schemes' folders."""

from __future__ import annotations

import itertools
import os
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

import second_tries
from cells import Live, Observed, plan_of, ran

ROOT = Path(__file__).parent
os.environ.setdefault("QBED_STORE", "off")  # a test runs what it tests
signal.signal(signal.SIGINT, signal.default_int_handler)  # what we start would inherit that it is ignored, as by nohup


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Allow further tries of the tests that tests/second-tries.txt names."""
    second_tries.mark(items, second_tries.read())


@pytest.fixture
def run_cell(tmp_path: Path) -> Callable[..., Observed]:
    """run_cell(yaml, seed=1): compile and run one cell, in a folder of its own."""
    numbers = itertools.count()

    def run(text: str, seed: int = 1) -> Observed:
        return ran(tmp_path / f"cell-{next(numbers)}", text, seed)

    return run


@pytest.fixture
def live_lab(tmp_path: Path) -> Callable[..., Any]:
    """live_lab(yaml): a context in which the lab is up. `seen`: folders that it may read."""

    @contextmanager
    def up(text: str, seen: Sequence[Path] = ()) -> Iterator[Live]:
        folder = tmp_path / "live"
        plan = plan_of(folder, text)
        with boot(find_toolchain(), folder, plan, "lab", seen) as guest:
            live = Live(guest)
            live.ready()
            yield live

    return up


@pytest.fixture
def plugins(tmp_path: Path) -> None:
    """tc's plugins in the folder of `live_lab`, /mnt/tc in the guest: it may not see the cache."""
    built = subprocess.run([ROOT / "kernel/tc-plugins.sh"], check=True, capture_output=True, text=True).stdout.strip()
    shutil.copytree(built, tmp_path / "live" / "tc")
