# SPDX-License-Identifier: Apache-2.0
"""Labs and commands for tests with a Docker engine."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
STAR = """\
name: NAME
topology: {star: {hosts: 2}}
links: {default: {rate: 10 Mbit/s, delay: 2 ms}}
switches: {default: {scheme: droptail, buffer: 64 KB}}
hosts: {default: {tcp: cubic, kernel: qbed}}
workload:
  - flows: {pairs: [[h1, h2]], size: 50 KB, label: bulk}
observe: {queues: 10 ms, flows: 10 ms}
duration: 150 ms
"""


def qbed(folder: Path, *arguments: str, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    """Run a `qbed` command in `folder`, with its sessions separate from the user's."""
    command = [sys.executable, "-m", "qbed", *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment(folder), capture_output=True, text=True, timeout=timeout, check=False
    )


def environment(folder: Path) -> dict[str, str]:
    """The environment in which the sessions of `qbed up` are kept in `folder`."""
    return {**os.environ, "XDG_RUNTIME_DIR": str(folder / "state")}


def write_lab(folder: Path, name: str, text: str = STAR) -> Path:
    """Write a lab with the name `name` to a new folder, and return the folder."""
    (folder / name).mkdir(parents=True)
    (folder / name / "lab.yml").write_text(text.replace("NAME", name))
    return folder / name


def lost(folder: Path) -> str:
    """The value of the column LOST of `qbed ps`, for the only lab that is up."""
    header, row = qbed(folder, "ps").stdout.splitlines()[:2]
    return row[header.index("LOST") :].split()[0]


def wait_until(condition: Callable[[], bool], message: str, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, message
        time.sleep(0.2)


def docker(*arguments: str) -> str:
    return subprocess.run(["docker", *arguments], capture_output=True, text=True, check=True).stdout


def node_images() -> dict[str, str]:
    """The image that this checkout's nodes have, by role."""
    command = [str(ROOT / "tools" / "images"), "--names", "host", "linux-switch", "router"]
    return dict(line.split() for line in subprocess.check_output(command, text=True).splitlines())


@contextmanager
def derived_image(name: str, role: str, *lines: str) -> Iterator[str]:
    """Build the image `name` from a role's image and `lines` of a Dockerfile, and remove it at the end."""
    dockerfile = "\n".join((f"FROM {node_images()[role]}", *lines)) + "\n"
    subprocess.run(["docker", "build", "-q", "-t", name, "-"], input=dockerfile, text=True, check=True)
    try:
        yield name
    finally:
        docker("image", "rm", name)


def leftovers(name: str, folder: Path) -> list[str]:
    """Whatever remains of a lab: containers, network namespaces, session files and lines of /etc/hosts."""
    containers = docker("ps", "-a", "--filter", f"label=containerlab={name}", "--format", "{{.Names}}").split()
    places = (Path("/run/netns"), Path("/etc/ssh/ssh_config.d"), folder / "state" / "qbed")
    files = [str(path) for place in places if place.is_dir() for path in place.iterdir() if name in path.name]
    hosts = [line for line in Path("/etc/hosts").read_text().splitlines() if name in line]
    return [*containers, *files, *hosts]
