# SPDX-License-Identifier: Apache-2.0
"""P4 programs of schemes and labs: what was compiled is of the sources that stand here, and says so when it is not."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from qbed.base.locations import checkout

ROOT = checkout()
assert ROOT is not None
FOLDERS = ("schemes/*/p4", "labs/*", "crates/*/tests/programs")
COMPILED = sorted(path.relative_to(ROOT) for folder in FOLDERS for path in ROOT.glob(f"{folder}/*.json"))


def check(root: Path) -> str:
    """What tools/p4 has to object; "" if nothing."""
    done = subprocess.run([root / "tools" / "p4", "--check"], stderr=subprocess.PIPE, text=True)
    assert bool(done.returncode) == bool(done.stderr)
    return done.stderr


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    assert ROOT is not None
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "tools" / "p4", tmp_path / "tools")
    (tmp_path / "orchestrator").symlink_to(ROOT / "orchestrator")
    shutil.copytree(ROOT / "p4", tmp_path / "p4")
    for folder in {path.parent for path in COMPILED}:
        shutil.copytree(ROOT / folder, tmp_path / folder)
    assert check(tmp_path) == ""
    return tmp_path


def test_every_program_is_compiled_as_it_stands() -> None:
    assert ROOT is not None
    assert Path("schemes/stamp/p4/stamp.json") in COMPILED
    assert check(ROOT) == ""


def append(name: str) -> Callable[[Path], None]:
    def change(root: Path) -> None:
        with (root / name).open("a") as file:
            file.write("\n")

    return change


def write(name: str) -> Callable[[Path], None]:
    def change(root: Path) -> None:
        (root / name).parent.mkdir(parents=True)
        (root / name).write_text("")

    return change


def remove(name: str) -> Callable[[Path], None]:
    return lambda root: (root / name).unlink()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (append("schemes/ecn/p4/ecn.p4"), "ecn: its sources changed after it was compiled"),
        (append("p4/step_marking.p4"), "ecn: its sources changed after it was compiled"),
        (append("schemes/ecn/p4/ecn.json"), "ecn: what was compiled is not what p4/lock.json has"),
        (remove("schemes/ecn/p4/ecn.p4info.txtpb"), "ecn: what was compiled is not what p4/lock.json has"),
        (remove("schemes/ecn/p4/ecn.p4"), "schemes/ecn/p4/ecn.json: it has no source"),
        (remove("p4/lock.json"), "ecn: not compiled yet"),
        (
            append("crates/p4switch/tests/programs/mix.p4"),
            "crates/p4switch/tests/programs/mix: its sources changed after it was compiled",
        ),
        (write("labs/mine/mine.p4"), "labs/mine/mine: not compiled yet"),
        (write("labs/mine/mine.json"), "labs/mine/mine.json: it has no source"),
    ],
)
def test_what_does_not_belong_together_is_named(copy: Path, change: Callable[[Path], None], message: str) -> None:
    change(copy)
    assert message in check(copy).splitlines()


def test_a_change_touches_the_programs_that_include_it(copy: Path) -> None:
    append("p4/step_marking.p4")(copy)
    changed = {line.partition(":")[0] for line in check(copy).splitlines() if "sources changed" in line}
    assert changed == {"abq", "ecn"}


@pytest.mark.parametrize("path", COMPILED, ids=str)
def test_a_compiled_program_has_no_places_of_the_machine_that_compiled_it(path: Path) -> None:
    assert ROOT is not None
    text = (ROOT / path).read_text()
    assert json.loads(text)["program"] == f"{path.stem}.p4"
    assert "source_info" not in text
    assert str(ROOT) not in text and "/tmp/" not in text


def test_packets_for_the_programs_are_as_they_were_written() -> None:
    assert ROOT is not None
    done = subprocess.run(
        [sys.executable, ROOT / "tests" / "p4" / "stf.py", "--check"], stdout=subprocess.PIPE, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_without_a_compiler_nothing_is_compiled_with_a_message(copy: Path) -> None:
    done = subprocess.run(
        [copy / "tools" / "p4"], env={"PATH": "/usr/bin:/bin", "P4C": "/none"}, stdout=subprocess.PIPE, text=True
    )
    assert done.returncode == 0
    assert done.stdout.count("\n") == 1 and "is not installed" in done.stdout
    assert check(copy) == ""
