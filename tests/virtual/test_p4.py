# SPDX-License-Identifier: Apache-2.0
"""The P4 switch in the guest's kernel: kernel/tests/guest/p4_scenarios.py, a boot each."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from qbed.substrates.toolchain import find_toolchain

ROOT = Path(__file__).parents[2]
RUN = ROOT / "kernel" / "tests" / "guest" / "run"
SCENARIOS = (
    "same",
    "copies",
    "endless",
    "queued",
    "duplicated",
    "asked_badly",
    "hostile,1000",
    "reported",
    "replaced",
    "ports_come_and_go",
    "switches_gone",
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program, its entries, packets, and what the engine makes of them in user space."""
    folder = tmp_path_factory.mktemp("p4")
    cargo = f"{ROOT}/tools/cargo run --quiet --locked --package qbed-p4kernel --example guest".split()
    subprocess.run([*cargo, folder], check=True)
    return folder


def run(scenario: str, made: Path) -> subprocess.CompletedProcess[str]:
    toolchain = find_toolchain()
    found = {"QBED_LINUX": str(toolchain.kernel), "QBED_MODULES": str(toolchain.folder / "modules")}
    environment = os.environ | found | {"QBED_P4": str(made)}
    return subprocess.run([RUN, scenario], env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario(scenario: str, made: Path) -> None:
    done = run(scenario, made)
    assert done.returncode == 0, done.stdout + done.stderr
