# SPDX-License-Identifier: Apache-2.0
"""Tests with the real Containerlab and a real Docker engine; they skip only where a machine cannot have them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from qbed.errors import QbedError
from qbed.substrates.containers.containerlab import find
from qbed.substrates.containers.engine import Engine

from qbed_testing.container_labs import qbed


def missing() -> str | None:
    """What this machine lacks for labs in containers, or None."""
    if os.geteuid() != 0:
        return "labs in containers need root"
    try:
        find()
        Engine().check()
    except QbedError as error:
        return str(error)
    return None


MISSING = missing()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if MISSING is not None and here in item.path.parents:
            item.add_marker(pytest.mark.skip(reason=f"skipped: {MISSING}"))


@pytest.fixture(scope="session", autouse=True)
def clean_machine(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Takes down what tests left that were killed with their whole session: qbed has their records."""
    for session in tmp_path_factory.getbasetemp().parent.iterdir():
        if MISSING is not None or session.is_symlink() or _is_alive(session):
            continue
        for folder in sorted({record.parents[3] for record in session.glob("*/state/qbed/*/containers.json")}):
            done = qbed(folder, "down", "--all")
            assert done.returncode == 0, done.stderr


def _is_alive(session: Path) -> bool:
    """Whether the pytest of this folder still runs: it holds its process id in a file."""
    try:
        os.kill(int((session / ".lock").read_text()), 0)
    except (OSError, ValueError):
        return False
    return True


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Sessions of this test alone; at its end nothing of its labs is left."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "state"))
    yield tmp_path / "state" / "qbed"
