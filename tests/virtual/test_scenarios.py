# SPDX-License-Identifier: Apache-2.0
"""The guest's kernel, alone, a boot each: its transport (kernel/tests/guest/rate_scenarios.py), and links, taps and
queues (scenarios.py).
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from qbed.substrates.toolchain import find_toolchain

RUN = Path(__file__).parents[2] / "kernel" / "tests" / "guest" / "run"
SCENARIOS = (
    "rtt",
    "rate",
    "upheaval",
    "many,20,20,40,1",
    "tcp,10,1",
    *(f"drops,{kind}" for kind in range(9)),
    "paced",
    "shared",
    *(f"repaired,{kind}" for kind in range(5)),
    "blackout",
    "stopped_while_repairing",
    "tail",
    "header_on_the_wire",
    "answered",
    "feedback",
    "crowd,1500",
    "gone",
    "looped",
    "malformed,1000",
)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario(scenario: str) -> None:
    toolchain = find_toolchain()
    found = {"QBED_LINUX": str(toolchain.kernel), "QBED_MODULES": str(toolchain.folder / "modules")}
    done = subprocess.run([RUN, scenario], env=os.environ | found, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
