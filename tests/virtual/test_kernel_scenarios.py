# SPDX-License-Identifier: Apache-2.0
"""Kernel modules in a guest without the agent: each scenario of kernel/tests/guest in a new guest.

rate_scenarios.py tests the transport, border_scenarios.py a container's border, scenarios.py links, taps and queues.
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
    "border,0",
    "border,1",
)


def run_scenario(scenario: str) -> subprocess.CompletedProcess[str]:
    toolchain = find_toolchain()
    found = {"QBED_LINUX": str(toolchain.kernel), "QBED_MODULES": str(toolchain.folder / "modules")}
    return subprocess.run([RUN, scenario], env=os.environ | found, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_scenario_of_kernel_modules(scenario: str) -> None:
    done = run_scenario(scenario)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_warning_of_the_kernel_fails_a_scenario() -> None:
    done = run_scenario("warned")
    assert (done.returncode, "PASS" in done.stdout) == (1, True), done.stdout + done.stderr
    assert done.stdout.endswith("FAIL: a warning of the kernel\n")
