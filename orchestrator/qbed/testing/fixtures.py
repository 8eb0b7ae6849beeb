# SPDX-License-Identifier: Apache-2.0
"""The pytest fixture `run_cell`. A conftest.py loads it:

pytest_plugins = ["qbed.testing.fixtures"]
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from qbed.base import terminal
from qbed.substrates.rebuild import build_changed
from qbed.testing.cells import CellOutput, run_lab

os.environ.setdefault("QBED_STORE", "off")  # a test runs its cells instead of reading them from the user's store


@pytest.fixture(scope="session")
def toolchain_is_built() -> None:
    """Build the kernel modules that changed, as `qbed run` does."""
    build_changed(terminal.print_status)


@pytest.fixture
def run_cell(tmp_path: Path, toolchain_is_built: None, monkeypatch: pytest.MonkeyPatch) -> Callable[..., CellOutput]:
    """run_cell(yaml, seed=1): compile a lab and run it as one cell in a new folder.

    The lab is trusted: it may name files by absolute paths, such as a P4 program.
    """
    monkeypatch.setenv("QBED_TRUST", "1")
    numbers = itertools.count()

    def run(text: str, seed: int = 1) -> CellOutput:
        return run_lab(tmp_path / f"cell-{next(numbers)}", text, seed)

    return run
