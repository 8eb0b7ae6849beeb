# SPDX-License-Identifier: Apache-2.0
"""The P4 switch in the guest's kernel: each scenario of kernel/tests/guest/p4_scenarios.py in a new guest."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from qbed.substrates.toolchain import find_toolchain

ROOT = Path(__file__).parents[2]
RUN = ROOT / "kernel" / "tests" / "guest" / "run"
SCENARIOS = (
    "same",
    "copies",
    "cut",
    "endless",
    "queued",
    "duplicated",
    "asked_badly",
    "hostile,1000",
    "reported",
    "packets_in_and_out",
    "replaced",
    "ports_come_and_go",
    "removed_while_packets_wait",
    "switches_gone",
    "controlled",
)


@pytest.fixture(scope="module")
def program_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program, its entries, packets, and the engine's output for them in user space."""
    folder = tmp_path_factory.mktemp("p4")
    cargo = f"{ROOT}/tools/cargo run --quiet --locked --package qbed-p4kernel --example guest".split()
    subprocess.run([*cargo, folder], check=True)
    (folder / "controller.json").write_text(json.dumps(controller()))
    return folder


def controller() -> dict[str, list[str]]:
    """The commands of the P4Runtime server and the controller in the guest."""
    cargo = f"{ROOT}/tools/cargo build --quiet --locked --package qbed-p4switch --message-format json".split()
    built = subprocess.run(cargo, check=True, stdout=subprocess.PIPE, text=True)
    messages = [json.loads(line) for line in built.stdout.splitlines()]
    server = next(message["executable"] for message in messages if message.get("target", {}).get("name") == "p4switch")
    programs = ROOT / "crates" / "p4runtime" / "tests" / "programs"
    address = "127.0.0.1:9559"
    script = [
        f"{ROOT}/tests/p4/guest_controller.py",
        f"{programs}/everything.p4info.txtpb",
        f"{programs}/everything.json",
    ]
    return {
        "server": [server, "serve", "--listen", address, "--cpu-port", "510"],  # p4_scenarios.py changes the last
        "controller": [sys.executable, *script, address],
    }


def run(scenario: str, program_files: Path) -> subprocess.CompletedProcess[str]:
    toolchain = find_toolchain()
    found = {"QBED_LINUX": str(toolchain.kernel), "QBED_MODULES": str(toolchain.folder / "modules")}
    environment = os.environ | found | {"QBED_P4": str(program_files)}
    return subprocess.run([RUN, scenario], env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_scenario_of_p4_switches(scenario: str, program_files: Path) -> None:
    done = run(scenario, program_files)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("program", "hops"), [("droptail", 0), ("stamp", 1), ("abq", 0)])
@pytest.mark.parametrize("captured", [0, 1, 2])
def test_packets_have_valid_checksums(program: str, hops: int, captured: int, tmp_path: Path) -> None:
    cargo = f"{ROOT}/tools/cargo run --quiet --locked --package qbed-p4kernel --example routed".split()
    subprocess.run([*cargo, ROOT / "schemes" / program / "p4" / f"{program}.json", tmp_path], check=True)
    done = run(f"checksums,{captured},{hops}", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_fault_of_the_engine_panics_with_program_and_line(program_files: Path) -> None:
    """The panic names the program and the source line. orchestrator/tests/runs/test_run.py tests the cell's error."""
    done = run("faulty", program_files)
    assert done.returncode != 0 and "still here" not in done.stdout
    place = r"\S+\.rs:\d+"
    assert re.search(rf"Kernel panic - not syncing: P4: commands: {place}: memory allocation of \d+ bytes", done.stdout)
