# SPDX-License-Identifier: Apache-2.0
"""Some of the cases of failing_calls.py, which alone runs all of them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CASES = 12


def test_a_failing_call_gives_a_message_or_the_same_results(tmp_path: Path) -> None:
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    program, counts = Path(__file__).with_name("failing_calls.py"), tmp_path / "counts.json"
    done = subprocess.run(
        [sys.executable, program, "--cases", str(CASES), "--seed", "1", "--json", counts],
        capture_output=True, text=True, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr[-5000:]
    found = json.loads(counts.read_text())
    assert found["cases"] == CASES
    assert found["cases of all"] > 100, "the library counts the run's calls"
    assert found["messages"] > 0, "some calls fail"
