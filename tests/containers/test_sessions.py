# SPDX-License-Identifier: Apache-2.0
"""Labs that are up in real containers: what runs in them, side by side, and what is left after `down` and crashes."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from qbed_testing.container_labs import docker, environment, leftovers, qbed, write_lab


@pytest.fixture
def here(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A folder; at the end of the test everything that qbed knows of is taken down."""
    request.addfinalizer(lambda: qbed(tmp_path, "down", "--all"))
    return tmp_path


def test_two_labs_side_by_side_do_not_disturb_each_other(here: Path) -> None:
    names = ["qbed-t-one", "qbed-t-two"]
    for name in names:
        done = qbed(here, "up", str(write_lab(here, name)), "--on", "containerlab", "--dilate", "5")
        assert done.returncode == 0, done.stderr
    shown = qbed(here, "ps").stdout
    assert all(re.search(rf"^{name} .* 3 of 3 nodes .* containerlab", shown, re.MULTILINE) for name in names), shown
    for name in names:  # equal addresses, and each answers for itself
        ping = qbed(here, "exec", name, "h1", "--", "ping", "-c", "2", "-i", "0.2", "h2")
        assert ping.returncode == 0 and " 0% packet loss" in ping.stdout, ping.stdout + ping.stderr
        least = float(re.search(r"rtt min/avg/max/mdev = ([\d.]+)/", ping.stdout).group(1))  # type: ignore[union-attr]
        assert 8 < least < 30  # four times 2 ms of the lab's time, whatever the clock on the wall says
    done = qbed(here, "exec", names[0], "s1", "--", "sh", "-c", "echo to-out; echo to-err >&2; exit 3")
    assert (done.returncode, done.stdout, done.stderr) == (3, "to-out\n", "to-err\n")
    started = qbed(here, "exec", names[0], "h2", "-d", "--", "sh", "-c", "echo behind")
    assert started.returncode == 0
    output = Path(started.stdout.split()[-1])
    until = time.monotonic() + 10
    while not (output.exists() and output.read_text()) and time.monotonic() < until:
        time.sleep(0.1)
    assert output.read_text() == "behind\n"
    assert qbed(here, "down", names[0]).returncode == 0
    assert leftovers(names[0], here) == []
    assert qbed(here, "exec", names[1], "h1", "--", "ping", "-c", "1", "10.0.0.3").returncode == 0
    assert qbed(here, "down", "--all").stdout == f"{names[1]} is down\n"
    assert leftovers(names[1], here) == []


def test_an_orchestrator_killed_while_a_lab_comes_up_leaves_nothing_that_down_does_not_take(here: Path) -> None:
    lab = write_lab(here, "qbed-t-killed")
    command = [sys.executable, "-m", "qbed", "up", str(lab), "--on", "containerlab", "--dilate", "5"]
    for _ in range(2):
        process = subprocess.Popen(command, cwd=here, env=environment(here), stdout=subprocess.DEVNULL)
        record = here / "state/qbed/qbed-t-killed/containers.json"
        until = time.monotonic() + 60
        while not record.exists() and time.monotonic() < until:
            time.sleep(0.01)
        time.sleep(0.3)
        process.send_signal(signal.SIGKILL)
        process.wait()
        done = qbed(here, "down", "qbed-t-killed")
        assert done.returncode == 0, done.stderr
        assert leftovers("qbed-t-killed", here) == []
    assert qbed(here, "up", str(lab), "--on", "containerlab", "--dilate", "5").returncode == 0


def test_a_container_that_dies_is_seen_and_its_lab_comes_down_and_up_again(here: Path) -> None:
    lab = write_lab(here, "qbed-t-dead")
    assert qbed(here, "up", str(lab), "--on", "containerlab", "--dilate", "5").returncode == 0
    docker("kill", "clab-qbed-t-dead-s1")
    assert "2 of 3 nodes" in qbed(here, "ps").stdout
    done = qbed(here, "exec", "qbed-t-dead", "s1", "--", "true")
    assert done.returncode == 1 and "does not answer" in done.stderr
    assert "is up already" in qbed(here, "up", str(lab), "--on", "containerlab").stderr
    docker("rm", "-f", "clab-qbed-t-dead-h1")
    assert qbed(here, "down", str(lab)).returncode == 0
    assert leftovers("qbed-t-dead", here) == []
    assert qbed(here, "up", str(lab), "--on", "containerlab", "--dilate", "5").returncode == 0


def test_what_cannot_come_up_is_one_message_and_leaves_nothing(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = write_lab(here, "qbed-t-bad")
    up = ("up", str(lab), "--on", "containerlab", "--dilate", "5")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{here}/no.sock")
    done = qbed(here, *up)
    assert (done.returncode, done.stdout) == (1, "")
    assert "Docker" in done.stderr and "Traceback" not in done.stderr
    monkeypatch.delenv("DOCKER_HOST")
    monkeypatch.setenv("QBED_IMAGES", "host=qbed-no-such:1,linux-switch=qbed-no-such:1")
    done = qbed(here, *up)
    assert "Docker has no image qbed-no-such:1: `make images`" in done.stderr
    monkeypatch.delenv("QBED_IMAGES")
    foreign = (
        "run",
        "-d",
        "--name",
        "clab-qbed-t-bad-h1",
        "--label",
        "containerlab=qbed-t-bad",
        "debian:bookworm-slim",
    )
    try:
        docker(*foreign, "sleep", "60")
        assert "the name qbed-t-bad is taken: 1 containers" in qbed(here, *up).stderr
    finally:
        docker("rm", "-f", "clab-qbed-t-bad-h1")
    assert leftovers("qbed-t-bad", here) == []
    assert not list((here / "state/qbed").glob("*")) and [path.name for path in lab.iterdir()] == ["lab.yml"]
