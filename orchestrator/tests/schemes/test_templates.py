# SPDX-License-Identifier: Apache-2.0
"""`qbed scheme new`, `qbed controller new` and `qbed congestion new`: what they write, and the names that they refuse.

tests/e2e/test_new_scheme.py and test_new_congestion.py build and run it.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from qbed.base.locations import congestion_folder, schemes_folder
from qbed.cli import load_commands
from qbed.schemes.declaration import controllers, load_controller


@pytest.fixture
def schemes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(schemes_folder(), tmp_path / "schemes")
    monkeypatch.setenv("QBED_SCHEMES", str(tmp_path / "schemes"))
    return tmp_path / "schemes"


def new(name: str, kind: str = "scheme") -> str:
    done = CliRunner().invoke(load_commands(), [kind, "new", name], standalone_mode=False)
    return str(done.exception) if done.exception else done.output


def test_it_is_ecn_under_another_name(schemes: Path) -> None:
    assert "`scheme: my_own`" in new("my_own")
    files = sorted(str(path.relative_to(schemes / "my_own")) for path in (schemes / "my_own").rglob("*.*"))
    assert files == [
        *("README.md", "kernel/my_own_algorithm.h", "kernel/sch_my_own.c", "scheme.yml"),
        *("tests/test_my_own.py", "tests/test_my_own_algorithm.c"),
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


def test_a_controller_is_aimd_under_another_name(schemes: Path) -> None:
    assert "`controller: {name: my_own}`" in new("my_own", "controller")
    place = schemes / "my_own"
    files = sorted(str(path.relative_to(place)) for path in place.rglob("*.*"))
    assert files == [
        *("README.md", "host/my_own.h", "host/my_own.yml"),
        *("tests/my_own.rates", "tests/test_my_own_rate.c"),
    ]
    assert "aimd" not in "".join((place / file).read_text().lower() for file in files[1:])
    assert load_controller(place / "host" / "my_own.yml").title == controllers()["aimd"].title


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("timely", "there is such a controller already"),
        ("ecn", "exists already"),
        ("Mine", "expected a controller's name: up to 12 of a-z, 0-9 and `_`"),
        ("../mine", "expected a controller's name"),
    ],
)
def test_names_of_controllers_that_are_none_or_taken(schemes: Path, name: str, message: str) -> None:
    before = sorted(schemes.iterdir())
    assert message in new(name, "controller") and sorted(schemes.iterdir()) == before


@pytest.fixture
def controls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(congestion_folder(), tmp_path / "congestion", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setenv("QBED_CONGESTION", str(tmp_path / "congestion"))
    return tmp_path / "congestion"


def test_a_new_congestion_control_is_aimd_under_another_name(controls: Path) -> None:
    assert "`tcp: my_own`" in new("my_own", "congestion")
    made = controls / "my_own"
    files = {str(path.relative_to(made)): path.read_text() for path in made.rglob("*") if path.is_file()}
    assert sorted(files) == [
        *("README.md", "congestion.yml", "kernel/Kbuild", "kernel/my_own_algorithm.h", "kernel/tcp_my_own.c"),
        *("tests/test_my_own.py", "tests/test_my_own_algorithm.c"),
    ]
    left = [name for name, text in files.items() if "aimd" in text.lower() and name != "README.md"]
    assert left == [] and '.name = "my_own"' in files["kernel/tcp_my_own.c"]
    assert files["kernel/Kbuild"].endswith("obj-m := tcp_my_own.o\n")
    before = files["congestion.yml"]
    again = new("my_own", "congestion")
    assert "already; choose another name" in again and (made / "congestion.yml").read_text() == before


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cubic", "there is such a congestion control already"),
        ("dctcp_ect1", "there is such a congestion control already"),
        ("ecn", "there is a kernel module of this name already"),
        ("qlink", "there is a kernel module of this name already"),
        ("Mine", "expected a congestion control's name: up to 15 of a-z, 0-9 and `_`, a letter first"),
        ("../mine", "expected a congestion control's name"),
        ("m" * 16, "expected a congestion control's name"),
    ],
)
def test_names_of_congestion_controls_that_are_none_or_taken(controls: Path, name: str, message: str) -> None:
    before = sorted(controls.iterdir())
    assert message in new(name, "congestion") and sorted(controls.iterdir()) == before
