# SPDX-License-Identifier: Apache-2.0
"""tools/containers on machines without an engine or an image; a script that logs its calls replaces docker."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "containers"
DEBIAN = "debian:bookworm-slim"

DOCKER = """#!/bin/sh
echo "docker $*" >>"$MACHINE/log"
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
docker image inspect debian:bookworm-slim >/dev/null 2>&1 || { echo made >>"$MACHINE/log"; touch "$MACHINE/image"; }
"""
CONTAINERLAB_UP = """#!/bin/sh
VERSION=v9
"""


class Machine:
    """A folder with scripts that replace docker and containerlab, and files that stand for the engine and image."""

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

    def add_host_scripts(self) -> None:
        self.script("host/docker-up", DOCKER_UP)
        self.script("host/containerlab-up", CONTAINERLAB_UP)

    def add(self, *names: str) -> None:
        for name in names:
            (self.folder / name).touch()

    def remove(self, *names: str) -> None:
        for name in names:
            (self.folder / name).unlink()

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        (self.folder / "log").write_text("")
        return subprocess.run(
            [TOOL, *arguments], env=self.environment, capture_output=True, text=True, check=False, timeout=60
        )

    @property
    def log(self) -> list[str]:
        return (self.folder / "log").read_text().splitlines()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_complete_machine_is_not_changed(machine: Machine) -> None:
    machine.add("engine", "image")
    done = machine.run()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert machine.log == ["docker version", f"docker image inspect {DEBIAN}"]


@pytest.mark.skipif(os.geteuid() != 0, reason="skipped: starting an engine needs root")
def test_an_image_is_made_once_and_then_loaded_from_the_cache(machine: Machine) -> None:
    machine.add_host_scripts()
    assert machine.run().returncode == 0
    assert "made" in machine.log
    assert (
        f"docker save {DEBIAN} --output {machine.folder}/cache/containers/debian-bookworm-slim.tar.new" in machine.log
    )

    machine.remove("engine", "image")  # another machine with this cache
    assert machine.run().returncode == 0
    assert "made" not in machine.log
    assert f"docker load --quiet --input {machine.folder}/cache/containers/debian-bookworm-slim.tar" in machine.log


def test_without_scripts_the_remedy_is_the_playbook(machine: Machine) -> None:
    why = "no Docker engine answers here; remedy: make machine (installs Docker and Containerlab, as root)"
    done = machine.run()
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"containers: {why}\n")
    done = machine.run("--or-skip")
    assert (done.returncode, done.stdout, done.stderr) == (3, f"containers: skipped: {why}\n", "")


def test_podman_alone_gives_one_message_with_a_remedy(machine: Machine) -> None:
    why = (
        "only Podman is here, and labs in containers need Docker (docs/containers.md#podman); "
        "remedy: make machine, which installs Docker beside it"
    )
    machine.script("bin/docker", "#!/bin/sh\necho 'Client: Podman Engine'\n")  # package podman-docker
    done = machine.run()
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"containers: {why}\n")
    done = machine.run("--or-skip")
    assert (done.returncode, done.stdout, done.stderr) == (3, f"containers: skipped: {why}\n", "")
    images = subprocess.run([TOOL.with_name("images")], env=machine.environment, capture_output=True, text=True)
    assert (images.returncode, images.stderr) == (1, f"images: {why}\n")
    command = [sys.executable, "-m", "qbed", "up", str(TOOL.parents[1] / "labs/dumbbell"), "--on", "containerlab"]
    up = subprocess.run(command, env=machine.environment, capture_output=True, text=True, timeout=300)
    assert up.returncode != 0 and why in " ".join(up.stderr.split()) and "Traceback" not in up.stderr


def test_a_missing_image_is_an_error_even_with_or_skip(machine: Machine) -> None:
    machine.add("engine")
    done = machine.run("--or-skip")
    assert done.returncode == 1
    assert done.stderr == (
        f"containers: there is no image {DEBIAN}, and it cannot be pulled: no way to a registry; "
        "remedy: docker load it, or set QBED_BASE\n"
    )
