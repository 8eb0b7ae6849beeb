# SPDX-License-Identifier: Apache-2.0
"""`qbed run` with a sink while a disk is full: the run's results, its messages, and the points that are sent later."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "orchestrator" / "tests"))
from campaigns import hashes, sent

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root"),
]
LAB = """\
name: full
topology: {dumbbell: {left: 2, right: 2}}
links: {default: {rate: 1 Gbit/s, delay: 5 us}}
switches: {default: {scheme: droptail, buffer: 64 KB}}
workload:
  - flows: {pairs: [[h1, h3], [h2, h4]], size: 1 MB, label: bulk}
observe: {queues: 4 us, flows: 1 ms}
duration: 20 ms
"""
CAMPAIGN = """\
question: Are the results intact?
axes:
  seed: [1, 2, 3]
"""
RUN = ("run", "lab", "--no-images", "--no-store", "--jobs", "1")


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "qbed", *arguments]
    environment = {**os.environ, "COLUMNS": "200"}
    return subprocess.Popen(
        command, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def qbed(folder: Path, *arguments: str) -> tuple[int, str]:
    process = start(folder, *arguments)
    text, _ = process.communicate(timeout=120)
    return process.returncode, text


def fill(file: Path) -> None:
    with file.open("ab", buffering=0) as ballast, suppress(OSError):
        while ballast.write(bytes(4096)):
            pass


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    """Wait until a process has made a file or folder."""
    until = time.monotonic() + 60
    while not path.exists():
        assert process.poll() is None and time.monotonic() < until
        time.sleep(0.01)


def resize(disk: Path, size: str) -> None:
    subprocess.run(["mount", "-o", f"remount,size={size}", disk], check=True)


@pytest.fixture(scope="module", params=["", "parts: 2\n"], ids=["undivided", "divided"])
def intact(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the lab, a run of it and all its points."""
    folder = tmp_path_factory.mktemp("intact")
    (folder / "lab").mkdir()
    (folder / "lab" / "lab.yml").write_text(LAB + request.param)
    (folder / "lab" / "campaign.yml").write_text(CAMPAIGN)
    status, text = qbed(folder, *RUN, "--out", "run", "--ndjson", "points")
    assert status == 0, text
    return folder


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200m", "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def test_a_full_disk_of_the_sink_is_one_message_and_the_rest_is_sent_later(
    intact: Path, tmp_path: Path, disk: Path
) -> None:
    shutil.copytree(intact / "lab", tmp_path / "lab")
    resize(disk, "1m")
    status, text = qbed(tmp_path, *RUN, "--out", "run", "--ndjson", "disk/points", "--flush-timeout", "1s")
    assert status == 0 and "3 of 3 cells complete" in text, text
    assert text.count("NOT DELIVERED: those of 3 cells") == text.count("`qbed samples RUN --send` sends the rest") == 1
    assert "Traceback" not in text and "error" not in text, text
    assert hashes(tmp_path / "run") == hashes(intact / "run") != {}
    assert (disk / "points").read_bytes().endswith(b"}\n")
    status, text = qbed(tmp_path, "samples", "run", "--send", "--sink-timeout", "1s")
    assert status == 1 and "NOT DELIVERED: those of 3 cells" in text, text
    resize(disk, "200m")
    status, text = qbed(tmp_path, "samples", "run", "--send")
    assert status == 0 and "NOT DELIVERED" not in text, text
    assert sent(disk / "points") == sent(intact / "points")


def test_points_leave_space_for_the_results_on_the_same_disk(intact: Path, disk: Path) -> None:
    """The points are some 33 MB, the results some 8 MB. The disk shrinks once the run has found it large enough."""
    shutil.copytree(intact / "lab", disk / "lab")
    process = start(disk, *RUN, "--out", "run", "--ndjson", "points", "--flush-timeout", "20s")
    wait_for(disk / "run/parameters.json", process)
    resize(disk, "32m")
    text, _ = process.communicate(timeout=120)
    assert process.returncode == 0 and "3 of 3 cells complete" in text, text
    assert hashes(disk / "run") == hashes(intact / "run")
    assert "MB and the 8.4 MB that a file of points leaves free); `qbed samples" in text, text
    resize(disk, "200m")
    assert qbed(disk, "samples", "run", "--send")[0] == 0
    assert sent(disk / "points") == sent(intact / "points")


def test_a_disk_that_fills_while_the_run_writes_keeps_finished_cells_and_sends_each_point_once(
    intact: Path, tmp_path: Path, disk: Path
) -> None:
    shutil.copytree(intact / "lab", tmp_path / "lab")
    arguments = (*RUN, "--out", "disk/run", "--ndjson", "points", "--flush-timeout", "1s")
    process = start(tmp_path, *arguments)
    wait_for(disk / "run/cells/000000", process)
    fill(disk / "ballast")
    text, _ = process.communicate(timeout=120)
    assert process.returncode == 1 and text.count("\nerror: the disk is full: ") == 1, text
    assert "finished cells are kept" in text and "Traceback" not in text, text
    (disk / "ballast").unlink()
    status, text = qbed(tmp_path, *arguments[:-1], "60s")
    assert status == 0 and "3 of 3 cells complete" in text and "finished already" in text, text
    assert hashes(disk / "run") == hashes(intact / "run")
    assert sent(tmp_path / "points") == sent(intact / "points")
