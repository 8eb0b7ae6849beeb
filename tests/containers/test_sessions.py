# SPDX-License-Identifier: Apache-2.0
"""Running labs in containers: two side by side, failures while they start, and what remains after `down`."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from qbed_testing.container_labs import derived_image, docker, environment, leftovers, node_images, qbed, write_lab

BROKEN = "broken-host-of-qbed-tests:1"


@pytest.fixture
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A folder of sessions; the end of the test takes down their labs."""
    request.addfinalizer(lambda: qbed(tmp_path, "down", "--all"))
    return tmp_path


def test_two_running_labs_are_independent(folder: Path) -> None:
    names = ["qbed-t-one", "qbed-t-two"]
    for name in names:
        done = qbed(folder, "up", str(write_lab(folder, name)), "--on", "containerlab", "--dilate", "5")
        assert done.returncode == 0, done.stderr
    shown = qbed(folder, "ps").stdout
    assert all(re.search(rf"^{name} .* 3 of 3 nodes .* containerlab", shown, re.MULTILINE) for name in names), shown
    for name in names:  # both labs have the same addresses
        ping = qbed(folder, "exec", name, "h1", "--", "ping", "-c", "2", "-i", "0.2", "h2")
        assert ping.returncode == 0 and " 0% packet loss" in ping.stdout, ping.stdout + ping.stderr
        shortest = float(re.search(r"rtt min/avg/max/mdev = ([\d.]+)/", ping.stdout).group(1))  # type: ignore[union-attr]
        assert 8 < shortest < 30  # four times 2 ms of lab time
    done = qbed(folder, "exec", names[0], "s1", "--", "sh", "-c", "echo to-out; echo to-err >&2; exit 3")
    assert (done.returncode, done.stdout, done.stderr) == (3, "to-out\n", "to-err\n")
    started = qbed(folder, "exec", names[0], "h2", "-d", "--", "sh", "-c", "echo behind")
    assert started.returncode == 0
    output = Path(started.stdout.split()[-1])
    deadline = time.monotonic() + 10
    while not (output.exists() and output.read_text()) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert output.read_text() == "behind\n"
    assert qbed(folder, "down", names[0]).returncode == 0
    assert leftovers(names[0], folder) == []
    assert qbed(folder, "exec", names[1], "h1", "--", "ping", "-c", "1", "10.0.0.3").returncode == 0
    assert qbed(folder, "down", "--all").stdout == f"{names[1]} is down\n"
    assert leftovers(names[1], folder) == []


def test_down_removes_what_a_killed_up_has_started(folder: Path) -> None:
    lab = write_lab(folder, "qbed-t-killed")
    command = [sys.executable, "-m", "qbed", "up", str(lab), "--on", "containerlab", "--dilate", "5"]
    for _ in range(2):
        process = subprocess.Popen(command, cwd=folder, env=environment(folder), stdout=subprocess.DEVNULL)
        record = folder / "state/qbed/qbed-t-killed/containers.json"
        deadline = time.monotonic() + 60
        while not record.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.3)
        process.send_signal(signal.SIGKILL)
        process.wait()
        done = qbed(folder, "down", "qbed-t-killed")
        assert done.returncode == 0, done.stderr
        assert leftovers("qbed-t-killed", folder) == []
    assert qbed(folder, "up", str(lab), "--on", "containerlab", "--dilate", "5").returncode == 0


def test_a_dead_container_is_reported_and_its_lab_can_be_restarted(folder: Path) -> None:
    lab = write_lab(folder, "qbed-t-dead")
    assert qbed(folder, "up", str(lab), "--on", "containerlab", "--dilate", "5").returncode == 0
    docker("kill", "clab-qbed-t-dead-s1")
    assert "2 of 3 nodes" in qbed(folder, "ps").stdout
    done = qbed(folder, "exec", "qbed-t-dead", "s1", "--", "true")
    assert done.returncode == 1 and "does not answer" in done.stderr
    assert "is up already" in qbed(folder, "up", str(lab), "--on", "containerlab").stderr
    docker("rm", "-f", "clab-qbed-t-dead-h1")
    assert qbed(folder, "down", str(lab)).returncode == 0
    assert leftovers("qbed-t-dead", folder) == []
    assert qbed(folder, "up", str(lab), "--on", "containerlab", "--dilate", "5").returncode == 0


def test_a_failed_up_is_one_message_and_leaves_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = write_lab(folder, "qbed-t-bad")
    up = ("up", str(lab), "--on", "containerlab", "--dilate", "5")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{folder}/no.sock")
    done = qbed(folder, *up)
    assert (done.returncode, done.stdout) == (1, "")
    assert "Docker" in done.stderr and "Traceback" not in done.stderr
    monkeypatch.delenv("DOCKER_HOST")
    monkeypatch.setenv("QBED_IMAGES", "host=qbed-no-such:1,linux-switch=qbed-no-such:1")
    done = qbed(folder, *up)
    assert "Docker has no image qbed-no-such:1: `make images`" in done.stderr
    monkeypatch.delenv("QBED_IMAGES")
    foreign = ("--name", "clab-qbed-t-bad-h1", "--label", "containerlab=qbed-t-bad", "debian:bookworm-slim")
    try:
        docker("run", "-d", *foreign, "sleep", "60")
        assert "the name qbed-t-bad is taken: 1 containers" in qbed(folder, *up).stderr
    finally:
        docker("rm", "-f", "clab-qbed-t-bad-h1")
    assert leftovers("qbed-t-bad", folder) == []
    assert not list((folder / "state/qbed").glob("*")) and [path.name for path in lab.iterdir()] == ["lab.yml"]


def test_an_image_that_does_not_start_is_reported_with_the_engines_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with derived_image(BROKEN, "host", 'ENTRYPOINT ["/missing"]'):
        monkeypatch.setenv("QBED_IMAGES", f"host={BROKEN},linux-switch={node_images()['linux-switch']}")
        done = qbed(folder, "up", str(write_lab(folder, "qbed-t-broken")), "--on", "containerlab")
    assert done.returncode == 1 and "/missing" in done.stderr and "(Created)" not in done.stderr, done.stderr
    assert leftovers("qbed-t-broken", folder) == []


def test_doctor_starts_a_container(folder: Path) -> None:
    before = docker("ps", "-aq")
    done = qbed(folder, "doctor", "--on", "containerlab")
    assert re.search(r"^ok +container: labs in containers can use it$", done.stdout, re.MULTILINE), done.stdout
    assert docker("ps", "-aq") == before
