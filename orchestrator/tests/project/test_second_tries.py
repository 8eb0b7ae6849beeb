# SPDX-License-Identifier: Apache-2.0
"""Only the tests that tests/second-tries.txt names are tried again, and none of them runs in virtual time."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from qbed.base.locations import checkout

ROOT = checkout()
assert ROOT is not None
MODULE = ROOT / "tests" / "second_tries.py"
CONFTEST = f"""
import sys
from pathlib import Path
sys.path.insert(0, {str(MODULE.parent)!r})
import second_tries

def pytest_collection_modifyitems(items):
    second_tries.mark(items, second_tries.read(Path(__file__).with_name("list.txt")))
"""
FLAKY = """
from pathlib import Path

def test_it():
    seen = Path(__file__).with_suffix(".seen")
    first = not seen.exists()
    seen.touch()
    assert not first
"""


def entries() -> list[tuple[str, int, str]]:
    spec = importlib.util.spec_from_file_location("second_tries", MODULE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: list[tuple[str, int, str]] = module.read()
    return found


def test_only_listed_tests_are_tried_again(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "list.txt").write_text("# a comment\ntest_listed.py*  1  it meets the wall clock\n")
    for name in ("test_listed.py", "test_other.py"):
        (tmp_path / name).write_text(FLAKY)
    argv = [sys.executable, "-m", "pytest", "-q", "-rR", "-p", "no:cacheprovider"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True)
    assert "RERUN test_listed.py::test_it" in done.stdout
    assert "1 failed, 1 passed, 1 rerun" in done.stdout


@pytest.mark.parametrize("line", ["test_x.py", "test_x.py 1", "test_x.py often because"])
def test_an_entry_without_a_number_or_a_reason_is_refused(tmp_path: Path, line: str) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "list.txt").write_text(f"{line}\n")
    (tmp_path / "test_it.py").write_text("def test_it():\n    pass\n")
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode and "list.txt:1: expected a pattern, a number and a reason" in done.stdout + done.stderr


def test_the_list_names_tests_that_exist_and_none_in_virtual_time() -> None:
    assert ROOT is not None
    files = [file for folder in ("tests", "orchestrator/tests") for file in (ROOT / folder).rglob("test_*.py")]
    tests = [
        f"{file.relative_to(ROOT)}::{name}"
        for file in files
        for name in re.findall(r"^def (test_\w+)", file.read_text(), re.MULTILINE)
    ]
    for pattern, _, _ in entries():
        assert any(fnmatchcase(test, pattern) for test in tests), pattern
        assert not pattern.startswith(("tests/virtual", "schemes", "tests/labs")) or "wall_clock" in pattern
