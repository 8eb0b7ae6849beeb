# SPDX-License-Identifier: Apache-2.0
"""`qbed scheme new`: what it writes, and the names that it refuses. tests/e2e/test_new_scheme.py builds and runs it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from qbed.base.locations import schemes_folder
from qbed.cli import load_commands


@pytest.fixture
def schemes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(schemes_folder(), tmp_path / "schemes")
    monkeypatch.setenv("QBED_SCHEMES", str(tmp_path / "schemes"))
    return tmp_path / "schemes"


def new(name: str) -> str:
    done = CliRunner().invoke(load_commands(), ["scheme", "new", name], standalone_mode=False)
    return str(done.exception) if done.exception else done.output


def test_it_is_ecn_under_another_name(schemes: Path) -> None:
    assert "`scheme: my_own`" in new("my_own")
    files = sorted(str(path.relative_to(schemes / "my_own")) for path in (schemes / "my_own").rglob("*.*"))
    assert files == [
        *("README.md", "kernel/my_own_algorithm.h", "kernel/sch_my_own.c", "scheme.yml"),
        "tests/test_my_own_algorithm.c",
    ]
    rule = (schemes / "my_own" / "kernel" / "my_own_algorithm.h").read_text()
    queue = (schemes / "my_own" / "kernel" / "sch_my_own.c").read_text()
    assert "MY_OWN_MARK" in rule and "ecn_" not in rule.replace("my_own_", "").lower()
    assert "INET_ECN_set_ce" in queue and "net/inet_ecn.h" in queue and '.id = "my_own"' in queue


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ecn", "such a qdisc already"),
        ("fq_codel", "such a qdisc already"),
        ("stamp", "such a qdisc already"),
        ("Mine", "expected a scheme's name: up to 12 of a-z, 0-9 and `_`"),
        ("../mine", "expected a scheme's name"),
        ("m" * 13, "expected a scheme's name"),
    ],
)
def test_names_that_are_none_or_taken(schemes: Path, name: str, message: str) -> None:
    before = sorted(schemes.iterdir())
    assert message in new(name) and sorted(schemes.iterdir()) == before


def test_nothing_is_overwritten(schemes: Path) -> None:
    new("mine")
    assert "such a qdisc already" in new("mine") or "exists already" in new("mine")
