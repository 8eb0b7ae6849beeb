# SPDX-License-Identifier: Apache-2.0
"""`qbed init` in an empty folder: its campaign, its tests and the commands of its workflow run, and an edit reaches the
guest's kernel.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
import yaml

from qbed.base.cache import cache_folder


def call(root: Path, *arguments: str, module: str = "qbed", **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a Python module in the repository."""
    variables = {name: value for name, value in os.environ.items() if name != "QBED_REPOSITORY"}
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(command, cwd=root, env=variables | environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A new repository, after a run of its campaign that wrote the lock."""
    folder = tmp_path_factory.mktemp("own")
    before = {path.name for path in (cache_folder() / "repository").glob("*")}
    done = call(folder, "init")
    assert done.returncode == 0 and "`qbed run first`" in done.stdout, done.stderr
    done = call(folder, "run", "first", "--lock", "--out", "runs/first", "--no-images")
    assert done.returncode == 0, done.stdout + done.stderr
    yield folder
    for path in (cache_folder() / "repository").glob("????????????????"):
        if path.name not in before:
            subprocess.run(["rm", "-rf", path], check=True)


def traces(root: Path, run: str) -> dict[str, set[str]]:
    """Traces by the axis `variant`."""
    rows = duckdb.sql(f"SELECT variant, list(trace_sha256) FROM '{root}/runs/{run}/cells.parquet' GROUP BY ALL")
    return {variant: set(found) for variant, found in rows.fetchall()}


def test_its_claims_hold(root: Path) -> None:
    verdicts = re.findall(r'"verdict": "(\w+)"', (root / "runs" / "first" / "claims.json").read_text())
    assert verdicts == ["holds", "holds", "holds"]
    found = traces(root, "first")
    assert len(set.union(*found.values())) == 20 and found.keys() == {"droptail", "marking", "program", "gentle"}


def test_its_tests_pass(root: Path) -> None:
    done = call(root, "-q", "-p", "no:cacheprovider", module="pytest")
    assert done.returncode == 0 and "11 passed" in done.stdout, done.stdout


def test_the_commands_of_its_workflow_run(root: Path) -> None:
    workflow = yaml.safe_load((root / ".github" / "workflows" / "labs.yml").read_text())
    (run,) = (step["run"] for step in workflow["jobs"]["first"]["steps"] if step.get("name") == "run")
    words = run.replace('"$GITHUB_STEP_SUMMARY"', "summary.md").split()
    assert words[0] == ".venv/bin/qbed"
    done = call(root, *(word.replace("runs/first", "runs/locked") for word in words[1:]), "--no-images")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (
        "<testsuite" in (root / "campaign.xml").read_text()
        and "marks-replace-losses" in (root / "summary.md").read_text()
    )
    assert traces(root, "locked") == traces(root, "first")


def test_an_edit_is_built_and_only_its_cells_are_others(root: Path) -> None:
    header = root / "schemes" / "my_ecn" / "kernel" / "my_ecn_algorithm.h"
    text = header.read_text()
    edited = text.replace("vars->queue_packets > params->threshold_packets", "vars->queue_packets > 3")
    assert edited != text
    header.write_text(edited)
    shutil.copytree(root / "runs" / "first", root / "runs" / "edited")
    done = call(root, "run", "first", "--out", "runs/edited", "--no-images")
    assert f"building the kernel modules of {root}" in done.stderr, done.stderr
    assert "modules/sch_my_ecn.ko changed: 5 finished cells are run again" in done.stderr, done.stderr
    first, now = traces(root, "first"), traces(root, "edited")
    assert {name for name in first if first[name] == now[name]} == {"droptail", "program", "gentle"}
    assert not first["marking"] & now["marking"]
    locked = call(root, "run", "first", "--locked", "--out", "runs/different", "--no-images")
    assert locked.returncode == 1 and "qbed diff" in locked.stdout + locked.stderr
    header.write_text(edited.replace("queue_packets > 3", "queue_packet > 3"))
    broken = call(root, "run", "first", "--out", "runs/broken", "--no-images")
    assert broken.returncode != 0 and "Traceback" not in broken.stderr
    assert re.search(r"^schemes/my_ecn/kernel/my_ecn_algorithm\.h:\d+:\d+: error:", broken.stderr, re.M)
    header.write_text(text)


def test_a_changed_program_is_refused_without_a_compiler(root: Path) -> None:
    """A clone gives files new times, which the lock makes irrelevant. With p4c, orchestrator/tests/p4 has the test."""
    program = root / "labs" / "first" / "my_young.p4"
    text = program.read_text()
    os.utime(program)
    assert call(root, "compile", "first", "--set", "switches.s1.program=./my_young.p4", P4C="/none").returncode == 0
    program.write_text(text.replace("before < young", "before <= young"))
    refused = call(root, "run", "first", "--out", "runs/changed", P4C="/none")
    program.write_text(text)
    assert refused.returncode != 0 and "Traceback" not in refused.stderr
    assert f"{program} changed after my_young.json was compiled" in refused.stderr
    assert "`qbed p4 compile" in refused.stderr and "where p4c-bm2-ss is installed" in refused.stderr


def test_new_folders_are_in_the_repository(root: Path) -> None:
    done = call(root / "labs", "congestion", "new", "other")
    assert done.returncode == 0 and (root / "congestion" / "other" / "congestion.yml").is_file(), done.stderr
    refused = call(root, "compile", "first", "--set", "hosts.default.tcp=othr")
    assert refused.returncode != 0 and "did you mean `other`?" in refused.stderr
    subprocess.run(["rm", "-r", root / "congestion" / "other"], check=True)


RATE_LAB = """\
name: rate
topology: {star: {hosts: 2}}
links: {default: {rate: 1 Gbit/s, delay: 5 us}}
switches: {default: {scheme: my_ecn}}
hosts: {default: {controller: {name: CONTROLLER}}}
workload: [{flow: {from: h1, to: h2, size: 1 MB, transport: rate}}]
duration: 50 ms
"""


def test_a_controller_of_the_repository_is_in_the_guest(root: Path) -> None:
    """A copy of a controller sends as the original does."""
    done = call(root, "controller", "new", "slow")
    assert done.returncode == 0 and (root / "schemes" / "slow" / "host" / "slow.h").is_file(), done.stderr
    times = []
    for name in ("aimd", "slow"):
        (root / "rate.yml").write_text(RATE_LAB.replace("CONTROLLER", name))
        done = call(root, "run", "rate.yml", "--out", f"runs/{name}", "--no-images")
        assert done.returncode == 0, done.stderr
        times.append(duckdb.sql(f"SELECT fct_ns FROM '{root}/runs/{name}/flows.parquet'").fetchall())
    assert times[0] == times[1] and times[0][0][0] > 8_000_000
    subprocess.run(["rm", "-r", root / "schemes" / "slow", root / "rate.yml"], check=True)


TC_LAB = """\
name: init-tc
topology: {star: {hosts: 2}}
links: {default: {rate: 1 Gbit/s, delay: 5 us}}
switches: {default: {scheme: my_ecn, buffer: 40 packets, threshold: 10 packets}}
workload: []
duration: 1 s
"""


@pytest.mark.skipif(shutil.which("tc") is None, reason="tc is not installed")
def test_tc_has_the_options_of_its_scheme_on_nodes(root: Path) -> None:
    (root / "tc.yml").write_text(TC_LAB)
    up = call(root, "up", "tc.yml")
    assert up.returncode == 0, up.stderr
    try:
        shown = call(root, "exec", "init-tc", "s1", "--", "tc", "qdisc", "show", "dev", "eth0")
        assert "qdisc my_ecn" in shown.stdout and "limit 40p threshold 10p" in shown.stdout, shown.stdout + shown.stderr
        words = ("tc", "qdisc", "replace", "dev", "eth0", "root", "my_ecn", "limit", "20p", "threshold", "5p")
        assert call(root, "exec", "init-tc", "s1", "--", *words).returncode == 0
        shown = call(root, "exec", "init-tc", "s1", "--", "tc", "qdisc", "show", "dev", "eth0")
        assert "limit 20p threshold 5p" in shown.stdout
    finally:
        call(root, "down", "init-tc")
        (root / "tc.yml").unlink()


def test_nothing_is_overwritten(root: Path, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    again = call(root, "init")
    assert again.returncode != 0 and again.stderr.endswith("nothing is written; choose another folder\n")
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before
    (tmp_path / "README.md").write_text("mine\n")
    done = call(tmp_path, "init")
    assert done.returncode == 0 and "README.md exists already and is kept" in done.stdout
    assert (tmp_path / "README.md").read_text() == "mine\n"
