# SPDX-License-Identifier: Apache-2.0
"""A container with sshd that stands in for a machine, and a runner of playbooks."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
PLAYBOOKS = ROOT / "playbooks"
COLLECTION = PLAYBOOKS / "collections/ansible_collections/qbed/lab"
TOOL = ROOT / "tools" / "ansible"
IMAGE = "qbed-test-machine"
SCRATCH = "scratch-of-a-test.md"
RECAP = re.compile(r"^(\S+) +: ok=(\d+) +changed=(\d+) +unreachable=(\d+) +failed=(\d+)", re.MULTILINE)
NO_COLOUR = {"NO_COLOR": "1", "ANSIBLE_NOCOLOR": "1", "COLUMNS": "200"}


@dataclass(frozen=True)
class PlaybookResult:
    """A playbook's exit status and output, and the counts of its recap, summed over hosts."""

    status: int
    text: str
    wall_s: float

    def _sum(self, column: int) -> int:
        rows = RECAP.findall(self.text)
        assert rows, self.text
        return sum(int(row[column]) for row in rows)

    @property
    def changed(self) -> int:
        return self._sum(2)

    @property
    def succeeded(self) -> bool:
        return self.status == 0 and self._sum(3) == 0 and self._sum(4) == 0

    @property
    def message(self) -> str:
        """The `msg` of the only failed task, on one line."""
        found = re.findall(r"^    msg: +(.*?)(?=^    \w|^$)", self.text, re.MULTILINE | re.DOTALL)
        assert len(found) == 1, self.text
        return " ".join(found[0].split())


@dataclass(frozen=True)
class Machine:
    """A running machine: its container, and the inventory that names it."""

    container: str
    inventory: Path

    def run(self, *argv: str, user: str = "bench") -> subprocess.CompletedProcess[str]:
        """Run a command on the machine without SSH."""
        options = ["--user", user, "--workdir", "/home/bench"]
        command = ["docker", "exec", *options, self.container, *argv]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    def play(self, playbook: str, *arguments: str, **variables: object) -> PlaybookResult:
        return play(playbook, self.inventory, *arguments, **variables)


def play(playbook: str, inventory: Path | str, *arguments: str, **variables: object) -> PlaybookResult:
    """Run a playbook with extra variables."""
    command = [str(TOOL), "ansible-playbook", "-i", str(inventory), str(PLAYBOOKS / playbook), *arguments]
    if variables:
        command += ["--extra-vars", yaml.safe_dump(variables, default_flow_style=True, width=10**6)]
    begun = time.monotonic()
    done = subprocess.run(
        command, cwd=PLAYBOOKS, env={**os.environ, **NO_COLOUR}, capture_output=True, text=True, timeout=600
    )
    return PlaybookResult(done.returncode, done.stdout + done.stderr, time.monotonic() - begun)


def docker(*arguments: str) -> str:
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def containerlab(path: Path, version: str) -> Path:
    """Write a program that answers `containerlab version` as Containerlab does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '    version: {version}'\n")
    path.chmod(0o755)
    return path


@contextmanager
def machine(folder: Path, variables: dict[str, object]) -> Iterator[Machine]:
    """A new machine with its inventory and keys in `folder`. Leaving the context removes all but its image."""
    docker("build", "--quiet", "--tag", IMAGE, str(ROOT / "tests/playbooks/machine"))
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "key")], check=True)
    # Privileged, with a volume for its Docker engine: overlayfs cannot be mounted on overlayfs.
    options = ["--detach", "--rm", "--init", "--privileged", "--shm-size", "2g", "--volume", "/var/lib/docker"]
    container = docker("run", *options, IMAGE)
    try:
        address = docker("inspect", "--format", "{{.NetworkSettings.IPAddress}}", container)
        script = 'umask 77; mkdir -p ~/.ssh; echo "$1" >~/.ssh/authorized_keys'
        docker("exec", "--user", "bench", container, "sh", "-c", script, "-", (folder / "key.pub").read_text().strip())
        (folder / "known_hosts").write_text(f"{address} {_host_key(container)}\n")
        inventory = folder / "inventory.yml"
        inventory.write_text(yaml.safe_dump(_inventory(folder, address, variables)))
        yield Machine(container, inventory)
    finally:
        subprocess.run(["docker", "rm", "--force", "--volumes", container], capture_output=True)


def _host_key(container: str) -> str:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        command = ["docker", "exec", container, "cat", "/etc/ssh/ssh_host_ed25519_key.pub"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode == 0 and done.stdout.strip():
            return " ".join(done.stdout.split()[:2])
        time.sleep(0.1)
    raise AssertionError("the machine's sshd does not start")


def _inventory(folder: Path, address: str, variables: dict[str, object]) -> dict[str, object]:
    connection = {
        "ansible_host": address,
        "ansible_user": "bench",
        "ansible_ssh_private_key_file": str(folder / "key"),
        "ansible_ssh_common_args": f"-o UserKnownHostsFile={folder}/known_hosts -o IdentitiesOnly=yes",
    }
    return {"all": {"hosts": {"machine": connection | variables}}}
