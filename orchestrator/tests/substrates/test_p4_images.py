# SPDX-License-Identifier: Apache-2.0
"""Images of P4 programs: compiled once in a process, by a checked compiler, and refused with one message."""

import hashlib
from pathlib import Path

import pytest

from qbed.network.load import load_lab
from qbed.plan.compile import compile_lab
from qbed.plan.model import Plan
from qbed.substrates import CellError
from qbed.substrates.p4_images import COMPILER, write_images
from qbed.substrates.toolchain import Manifest, Toolchain, ToolchainError

LAB = """\
name: two-programs
topology: {dumbbell: {left: 1, right: 1}}
links: {default: {rate: 100 Mbit/s, delay: 1 ms}}
switches:
  default: {scheme: droptail, buffer: 100 packets, kind: bmv2}
  s1: {scheme: ecn, threshold: 10 packets}
workload: [{flows: {pairs: [[h1, h2]], size: 1 MB}}]
duration: 1 s
"""


def toolchain(folder: Path, script: str, checksum: str = "") -> Toolchain:
    """A toolchain with a shell script as its compiler."""
    compiler = folder / COMPILER
    compiler.write_text(f"#!/bin/sh\necho run >> '{folder}/runs'\n{script}\n")
    compiler.chmod(0o755)
    recorded = checksum or hashlib.sha256(compiler.read_bytes()).hexdigest()
    return Toolchain(folder, Manifest(), {COMPILER: recorded})


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    path = tmp_path / "lab.yml"
    path.write_text(LAB)
    return compile_lab(load_lab(path))


def switch_of(plan: Plan, program: str) -> int:
    return next(i for i, node in enumerate(plan.nodes) if node.pipeline and node.pipeline.program == program)


def test_a_process_compiles_a_program_once_and_only_those_of_its_nodes(tmp_path: Path, plan: Plan) -> None:
    tools = toolchain(tmp_path, "head -c 9")
    assert [program.name for program in plan.p4] == ["droptail", "ecn"]
    for name in ("a", "b"):
        write_images(tools, plan, [switch_of(plan, "ecn")], tmp_path / name)
        images = {path.name: path.read_bytes() for path in (tmp_path / name / "guest" / "p4").iterdir()}
        assert images == {"1.image": plan.p4[1].bmv2.encode()[:9]}
    assert (tmp_path / "runs").read_text() == "run\n"
    write_images(tools, plan, range(len(plan.nodes)), tmp_path / "c")
    assert sorted(path.name for path in (tmp_path / "c" / "guest" / "p4").iterdir()) == ["0.image", "1.image"]


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("cat >/dev/null; echo 'actions[3]: no header x' >&2; exit 1", "program ecn: actions[3]: no header x"),
        ("kill -SEGV $$", "program ecn: p4image ended with status -11"),
    ],
)
def test_a_program_that_does_not_compile_is_named(tmp_path: Path, plan: Plan, script: str, message: str) -> None:
    with pytest.raises(CellError) as refused:
        write_images(toolchain(tmp_path, script), plan, [switch_of(plan, "ecn")], tmp_path)
    assert str(refused.value) == message


def test_a_damaged_or_missing_compiler_does_not_run(tmp_path: Path, plan: Plan) -> None:
    with pytest.raises(ToolchainError, match=f"{COMPILER} is not what was built"):
        write_images(toolchain(tmp_path, "cat", checksum="0" * 64), plan, range(len(plan.nodes)), tmp_path)
    assert not (tmp_path / "runs").exists()
    unlisted = Toolchain(tmp_path, Manifest(), {})
    with pytest.raises(ToolchainError, match=f"{COMPILER} is not one of the toolchain's files"):
        write_images(unlisted, plan, range(len(plan.nodes)), tmp_path)
    missing = toolchain(tmp_path, "cat")
    (tmp_path / COMPILER).unlink()
    with pytest.raises(ToolchainError, match=f"{COMPILER} is missing"):
        write_images(missing, plan, range(len(plan.nodes)), tmp_path)
