# SPDX-License-Identifier: Apache-2.0
"""The commands of docs/tutorial.md work in their order and print what the page shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e
ROOT = Path(__file__).parents[2]


def test_the_tutorials_commands(tmp_path: Path) -> None:
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "docs" / "tutorial.md").read_text(), re.S)
    assert len(blocks) == 5
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "XDG_RUNTIME_DIR": str(tmp_path / "state")}
    outputs = []
    for block in blocks:
        command = ["bash", "-euc", block]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{block}\n{done.stdout}{done.stderr}"
        outputs.append(done.stdout + done.stderr)
    assert re.search(r"s1:eth2 │ s2 +│ switch │ droptail", outputs[0])
    assert "3 received" in outputs[1]
    times = [float(time) for time in re.findall(r"time=([0-9.]+) ms", outputs[1])]
    assert len(times) == 3 and all(0.06 <= time < 0.08 for time in times[1:])
    assert "ecn-is-short" in outputs[2] and "6 of 6 cells complete" in outputs[2]
    rows = [line.split() for line in outputs[3].splitlines() if line.startswith(("droptail", "ecn"))]
    assert "1 MB" in outputs[3]
    assert [row[1:3] for row in rows] == [["64", "KB"], ["256", "KB"], ["1", "MB"]] * 2
    figures = tmp_path / "result" / "figures" / "paper"
    assert sorted(path.name for path in figures.iterdir()) == ["longest.pdf", "occupancy.pdf"]
    assert (figures / "longest.pdf").read_bytes().startswith(b"%PDF")
