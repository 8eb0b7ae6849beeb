# SPDX-License-Identifier: Apache-2.0
"""The real Containerlab, as a subprocess: deploy, destroy, inspect, graph."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

from qbed.base.cache import read_cache, write_cache
from qbed.base.errors import QbedError
from qbed.base.json_files import Row
from qbed.substrates import SubstrateError

OLDEST = (0, 60, 0)
"""It must take `image-pull-policy` and an interface eth0 with `network-mode: none`."""
VERSIONS = "containerlab.json"
PREFIX = "clab"
NAMESPACES = Path("/run/netns")
SSH_CONFIG = Path("/etc/ssh/ssh_config.d")
HOSTS = Path("/etc/hosts")
GRAPH_FORMATS = {"mermaid": ("--mermaid", "mermaid"), "dot": ("--dot", "dot")}
ATTEMPTS = 5
_GONE = re.compile(r"could not list containers: container .* cannot be found|No such container")
"""The error if a container of another lab is removed during the deployment: nothing of this lab exists yet."""
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_CLOCK = re.compile(r"^\d\d:\d\d:\d\d ")


class ContainerlabError(SubstrateError):
    """Containerlab is missing, too old, or has failed; the message says what it said."""


@cache
def find() -> str:
    """The path of Containerlab; an error if its version is too old."""
    path = shutil.which("containerlab", path=None) or shutil.which("containerlab", path="/usr/local/bin:/usr/bin")
    if path is None:
        raise ContainerlabError(
            "Containerlab is not installed: https://containerlab.dev/install says how, `playbooks/` does it"
        )
    version = _version(path)
    if version < OLDEST:
        shown, oldest = (".".join(map(str, numbers)) for numbers in (version, OLDEST))
        raise ContainerlabError(f"Containerlab {shown} is too old: expected {oldest} or newer (`containerlab upgrade`)")
    return path


def _version(path: str) -> tuple[int, int, int]:
    """The version, cached until the file changes: running Containerlab takes a fifth of a second."""
    status = Path(path).stat()
    key = f"{path} {status.st_size} {status.st_mtime_ns}"
    known = read_cache(VERSIONS).get(key)
    if isinstance(known, list) and len(known) == 3 and all(isinstance(number, int) for number in known):
        return known[0], known[1], known[2]
    done = subprocess.run([path, "version"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    match = re.search(r"version:\s*v?(\d+)\.(\d+)\.(\d+)", _COLOUR.sub("", done.stdout))
    if match is None:
        last = (_COLOUR.sub("", done.stderr).strip().splitlines() or ["nothing"])[-1]
        raise ContainerlabError(f"{path} does not say its version; it says: {last}")
    major, minor, patch = map(int, match.groups())
    write_cache(VERSIONS, key, [major, minor, patch])
    return major, minor, patch


def deploy(topology: Path, *held: int) -> None:
    """Deploy a lab; returns when its containers run and have their links. It keeps the descriptors `held` open."""
    _call("deploy", "-t", topology.name, "--skip-labdir-acl", folder=topology.parent, held=held)


def destroy(topology: Path) -> None:
    """Destroy a lab, whatever is left of it. What was never made is no error."""
    _call("destroy", "-t", topology.name, "--cleanup", folder=topology.parent)


def inspect(topology: Path) -> list[Row]:
    """Containerlab's description of a lab's containers; empty if there are none."""
    text = _call("inspect", "-t", topology.name, "--format", "json", folder=topology.parent)
    try:
        found = json.loads(text)
    except ValueError:
        return []
    rows: list[Row] = [row for lab in found.values() for row in lab] if isinstance(found, dict) else []
    return rows


def draw(topology: Path, kind: str) -> str:
    """Containerlab's graph of a topology file, as text."""
    if kind not in GRAPH_FORMATS:
        raise QbedError(f"expected a format: {' or '.join(GRAPH_FORMATS)}, got {kind}")
    option, suffix = GRAPH_FORMATS[kind]
    _call("graph", "--offline", option, "-t", topology.name, folder=topology.parent)
    found = sorted(topology.parent.glob(f"clab-*/graph/*.{suffix}"))
    if not found:
        raise ContainerlabError("containerlab graph has written nothing")
    return found[0].read_text()


def clear_traces(lab: str, nodes: list[str]) -> None:
    """Remove what `containerlab destroy` leaves of missing containers: namespaces, ssh and /etc/hosts entries."""
    for node in nodes:
        (NAMESPACES / f"{PREFIX}-{lab}-{node}").unlink(missing_ok=True)
    (SSH_CONFIG / f"{PREFIX}-{lab}.conf").unlink(missing_ok=True)
    begin, end = (f"###### CLAB-{lab}-{word} ######" for word in ("START", "END"))
    text = HOSTS.read_text() if HOSTS.exists() else ""
    if begin in text and end in text:
        before, rest = text.split(begin, 1)
        HOSTS.write_text(before.rstrip("\n") + "\n" + rest.split(end, 1)[1].lstrip("\n"))  # in place: it may be a mount


def _call(*arguments: str, folder: Path, held: tuple[int, ...] = ()) -> str:
    """Run Containerlab. It looks at all containers of the machine, and stumbles over one that just goes: then again."""
    for attempt in range(ATTEMPTS):
        done = _run(arguments, folder, held)
        output = done.stderr or done.stdout
        if not done.returncode or attempt + 1 == ATTEMPTS or not _GONE.search(output):
            break
    if done.returncode:
        raise ContainerlabError(_explain(arguments[0], output))
    return done.stdout


def _run(arguments: tuple[str, ...], folder: Path, held: tuple[int, ...]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            [find(), *arguments], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
            pass_fds=held,
            start_new_session=True,  # a Ctrl-C is for qbed, which then has Containerlab clean up
        )  # fmt: skip
    except OSError as error:
        raise ContainerlabError(f"Containerlab cannot be run: {error.strerror}") from error


def _explain(verb: str, output: str) -> str:
    lines = [_CLOCK.sub("", _COLOUR.sub("", line)).strip() for line in output.splitlines()]
    lines = [line for line in lines if line and not line.startswith(("INFO", "DEBU"))]
    lines = [line.removeprefix("ERRO ").removeprefix("Error: ") for line in lines]
    text = " ".join(lines)
    for pattern, remedy in _REMEDIES.items():
        if re.search(pattern, text, re.IGNORECASE):
            return f"containerlab {verb}: {remedy}: {lines[-1] if lines else ''}"
    shown = "".join(f"\n    | {line}" for line in lines[-8:])
    return f"containerlab {verb} has failed" + (f"; it said last:{shown}" if shown else " and said nothing")


_REMEDIES = {  # the first that fits: an engine that dies in mid-deploy leaves complaints of other kinds, too
    "cannot connect to the docker daemon": "Docker is not running: start it (`systemctl start docker`)",
    "error during connect": "Docker has stopped answering: look at its log, start it (`systemctl start docker`)",
    "no space left on device": "the disk is full: make room (`docker system df` says what Docker holds)",
    "already exist": "the name is taken by containers that are there already (`containerlab inspect --all`)",
    "permission denied|must be root|requires root|operation not permitted": "it needs root: use sudo",
    "overlaps with other one|pool overlaps|conflicts with network": "its subnet clashes with another Docker network",
}
