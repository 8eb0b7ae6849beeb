# SPDX-License-Identifier: Apache-2.0
"""A kernel with patches in one campaign with its series; the kernel's objects are built once a machine (make
test-kernels).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

import qbed
from qbed.base.cache import cache_folder
from qbed.base.locations import labs_folder, setup_folder

LAB = """\
name: patched
topology: {star: {hosts: 3}}
links: {default: {rate: 1 Gbit/s, delay: 50 us}}
switches: {default: {scheme: ecn, buffer: 50 packets, threshold: 20 packets}}
hosts: {default: {tcp: cubic, ecn: "on"}}
workload:
  - flows: {pairs: [[h1, h3], [h2, h3]], size: 2 MB}
duration: 100 ms
"""
CAMPAIGN = """\
question: Does a smaller decrease of CUBIC's window lengthen the queue?
axes: {kernel: [6.12, ./my-patches]}
"""
PATCH = """\
--- a/net/ipv4/tcp_cubic.c
+++ b/net/ipv4/tcp_cubic.c
@@ -50 +50 @@
-static int beta __read_mostly = 717;	/* = 717/1024 (BICTCP_BETA_SCALE) */
+static int beta __read_mostly = %d;	/* = 717/1024 (BICTCP_BETA_SCALE) */
"""


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "qbed", *arguments]
    environment = os.environ | {"QBED_STORE": "off"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "lab.yml").write_text(LAB)
    (tmp_path / "campaign.yml").write_text(CAMPAIGN)
    (tmp_path / "my-patches").mkdir()
    (tmp_path / "my-patches" / "0001-beta.patch").write_text(PATCH % 973)
    return tmp_path


def test_a_patched_kernel_runs_beside_its_series(folder: Path) -> None:
    refused = run(folder, "run", ".", "--out", "refused")
    assert refused.returncode == 2 and "`qbed kernel build" in refused.stderr
    done = run(folder, "run", ".", "--out", "first", "--trust", "--no-images")
    assert done.returncode == 0, done.stderr
    rows = qbed.open(folder / "first").sql("SELECT kernel, status, trace_sha256 FROM cells").to_pylist()
    cells = {row["kernel"]: row for row in rows}
    assert {kernel: row["status"] for kernel, row in cells.items()} == {"6.12": "complete", "./my-patches": "complete"}
    assert cells["6.12"]["trace_sha256"] != cells["./my-patches"]["trace_sha256"]
    again = run(folder, "run", ".", "--out", "first", "--no-images")
    assert again.returncode == 0 and "building" not in again.stderr

    # An edited patch is another kernel, and only the cells of that kernel are run.
    (folder / "my-patches" / "0001-beta.patch").write_text(PATCH % 512)
    edited = run(folder, "run", ".", "--out", "second", "--trust", "--no-images")
    assert edited.returncode == 0 and "building the kernel 6.12+" in edited.stderr
    listed = [line.split() for line in run(folder, "kernel", "ls").stdout.splitlines()]
    names = [row[0] for row in listed if row[-1] == str(folder / "my-patches")]
    assert len(names) == 2
    assert run(folder, "kernel", "rm", *names).returncode == 0
    assert not set(names) & set(run(folder, "kernel", "ls").stdout.split())


needs_7_2 = pytest.mark.skipif(
    not (setup_folder() / "toolchain-7.2").exists(), reason="kernel 7.2 is not built: make test-kernels"
)


@needs_7_2
def test_modules_of_a_repository_are_built_for_each_kernel(tmp_path: Path) -> None:
    known = set((cache_folder() / "repository").glob("*"))
    assert run(tmp_path, "init").returncode == 0
    (tmp_path / "labs" / "two").mkdir()
    text = LAB.replace("scheme: ecn", "scheme: my_ecn").replace("tcp: cubic", "tcp: my_aimd")
    (tmp_path / "labs" / "two" / "lab.yml").write_text(text)
    campaign = CAMPAIGN.replace("./my-patches", "7.2")
    (tmp_path / "labs" / "two" / "campaign.yml").write_text(campaign)
    module = tmp_path / "congestion" / "my_aimd" / "kernel" / "tcp_my_aimd.c"
    module.write_text(f"{module.read_text()}/* {uuid.uuid4()}: no cached module is of this source */\n")
    done = run(tmp_path, "run", "two", "--out", "out", "--no-images")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("building the kernel modules of") == 2
    rows = qbed.open(tmp_path / "out").sql("SELECT kernel, status FROM cells ORDER BY kernel").to_pylist()
    assert [(row["kernel"], row["status"]) for row in rows] == [(6.12, "complete"), (7.2, "complete")]
    again = run(tmp_path, "run", "two", "--out", "out", "--no-images")
    assert again.returncode == 0 and "building" not in again.stderr
    for path in set((cache_folder() / "repository").glob("*")) - known:
        shutil.rmtree(path, ignore_errors=True)


@needs_7_2
def test_the_demo_on_two_series_has_the_locked_traces(tmp_path: Path) -> None:
    lab = str(labs_folder() / "dumbbell")
    done = run(tmp_path, "run", lab, "--profile", "kernels", "--locked", "--out", "out", "--no-images")
    assert done.returncode == 0, done.stderr
    sql = "SELECT kernel, sum(dropped_packets) AS drops FROM cells GROUP BY kernel ORDER BY kernel"
    rows = qbed.open(tmp_path / "out").sql(sql).to_pylist()
    assert [row["kernel"] for row in rows] == [6.12, 7.2] and rows[0]["drops"] != rows[1]["drops"]


def test_a_patch_that_does_not_apply_is_named(folder: Path) -> None:
    (folder / "my-patches" / "0001-beta.patch").write_text(PATCH.replace("= 717;", "= 718;") % 512)
    failed = run(folder, "kernel", "build", "my-patches")
    assert failed.returncode == 1
    assert "0001-beta.patch does not apply to Linux 6.12" in failed.stderr
    assert "Traceback" not in failed.stderr
