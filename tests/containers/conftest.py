# SPDX-License-Identifier: Apache-2.0
"""Fixtures for tests with Containerlab and a Docker engine; the tests are skipped on machines without them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from qbed.base.errors import QbedError
from qbed.substrates.containers.containerlab import find
from qbed.substrates.containers.engine import Engine

from qbed_testing.container_labs import qbed


def missing_requirement() -> str | None:
    """The reason why labs in containers cannot run on this machine, or None."""
    if os.geteuid() != 0:
        return "labs in containers need root"
    try:
        find()
        Engine().check()
    except QbedError as error:
        return str(error)
    return None


MISSING = missing_requirement()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    folder = Path(__file__).parent
    for item in items:
        if MISSING is not None and folder in item.path.parents:
            item.add_marker(pytest.mark.skip(reason=f"skipped: {MISSING}"))


@pytest.fixture(scope="session", autouse=True)
def clean_machine(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Take down the labs of killed test sessions, by the records that qbed keeps of them."""
    for session in tmp_path_factory.getbasetemp().parent.iterdir():
        if MISSING is not None or session.is_symlink() or _is_alive(session):
            continue
        for folder in sorted({record.parents[3] for record in session.glob("*/state/qbed/*/containers.json")}):
            done = qbed(folder, "down", "--all")
            assert done.returncode == 0, done.stderr


def _is_alive(session: Path) -> bool:
    """Whether the pytest session of this folder still runs, by the process id in its lock file."""
    try:
        os.kill(int((session / ".lock").read_text()), 0)
    except (OSError, ValueError):
        return False
    return True


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of `qbed up` sessions, which no other test uses."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "state"))
    yield tmp_path / "state" / "qbed"
