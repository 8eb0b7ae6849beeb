# SPDX-License-Identifier: Apache-2.0
"""tools/containers on machines that lack one thing or another: a docker that keeps a diary stands for the engine."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "containers"
DEBIAN = "debian:bookworm-slim"

DOCKER = """#!/bin/sh
echo "docker $*" >>"$MACHINE/diary"
case "$1 $2" in
    "version"*) [ -e "$MACHINE/engine" ] || { echo "no engine" >&2; exit 1; } ;;
    "image inspect") [ -e "$MACHINE/image" ] ;;
    "load "*) touch "$MACHINE/image" ;;
    "save "*) echo "Debian, saved" >"$4" ;;
    "pull "*) echo "no way to a registry" >&2; exit 1 ;;
    *) exit 9 ;;
esac
"""
DOCKER_UP = """#!/bin/sh
touch "$MACHINE/engine"
docker image inspect debian:bookworm-slim >/dev/null 2>&1 || { echo made >>"$MACHINE/diary"; touch "$MACHINE/image"; }
"""
CONTAINERLAB_UP = """#!/bin/sh
VERSION=v9
"""


class Machine:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.script("bin/docker", DOCKER)
        self.script("bin/containerlab", "#!/bin/sh\necho version: 9\n")
        self.environment = {
            **os.environ,
            "PATH": f"{folder}/bin:{os.environ['PATH']}",
            "MACHINE": str(folder),
            "QBED_CACHE": str(folder / "cache"),
            "QBED_HOST": str(folder / "host"),
            "QBED_BASE": DEBIAN,
        }

    def script(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def has_host_scripts(self) -> None:
        self.script("host/docker-up", DOCKER_UP)
        self.script("host/containerlab-up", CONTAINERLAB_UP)

    def has(self, *names: str) -> None:
        for name in names:
            (self.folder / name).touch()

    def loses(self, *names: str) -> None:
        for name in names:
            (self.folder / name).unlink()

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        (self.folder / "diary").write_text("")
        return subprocess.run(
            [TOOL, *arguments], env=self.environment, capture_output=True, text=True, check=False, timeout=60
        )

    @property
    def diary(self) -> list[str]:
        return (self.folder / "diary").read_text().splitlines()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_machine_that_has_everything_is_left_alone(machine: Machine) -> None:
    machine.has("engine", "image")
    done = machine.run()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert machine.diary == ["docker version", f"docker image inspect {DEBIAN}"]


@pytest.mark.skipif(os.geteuid() != 0, reason="skipped: starting an engine needs root")
def test_the_scripts_of_the_machine_are_used_once_and_the_cache_then(machine: Machine) -> None:
    machine.has_host_scripts()
    assert machine.run().returncode == 0
    assert "made" in machine.diary
    assert (
        f"docker save {DEBIAN} --output {machine.folder}/cache/containers/debian-bookworm-slim.tar.new" in machine.diary
    )

    machine.loses("engine", "image")  # another machine with this cache
    assert machine.run().returncode == 0
    assert "made" not in machine.diary
    assert f"docker load --quiet --input {machine.folder}/cache/containers/debian-bookworm-slim.tar" in machine.diary


def test_without_scripts_the_remedy_is_the_playbook(machine: Machine) -> None:
    why = "no Docker engine answers here; remedy: make machine (installs Docker and Containerlab, as root)"
    done = machine.run()
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"containers: {why}\n")
    done = machine.run("--or-skip")
    assert (done.returncode, done.stdout, done.stderr) == (3, f"containers: skipped: {why}\n", "")


def test_an_image_that_cannot_be_had_is_no_reason_to_skip(machine: Machine) -> None:
    machine.has("engine")
    done = machine.run("--or-skip")
    assert done.returncode == 1
    assert done.stderr == (
        f"containers: there is no image {DEBIAN}, and it cannot be pulled: no way to a registry; "
        "remedy: docker load it, or set QBED_BASE\n"
    )
