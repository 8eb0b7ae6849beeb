# SPDX-License-Identifier: Apache-2.0
"""A machine that all tests of this folder share, as its preparation takes most of their time."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from qbed_testing.machines import (
    COLLECTION,
    PLAYBOOKS,
    ROOT,
    SCRATCH,
    Machine,
    PlaybookResult,
    containerlab,
    docker,
    machine,
)

sys.path[:0] = [str(PLAYBOOKS), str(COLLECTION / "plugins/filter")]

CONTROL = """\
Package: containerlab
Version: 0.69.3
Architecture: amd64
Maintainer: qbed
Description: replaces Containerlab's package in tests
"""


@pytest.fixture(scope="session")
def engine() -> str:
    """The Docker engine's address in its containers."""
    if subprocess.run(["docker", "info"], capture_output=True).returncode != 0:
        pytest.skip("no Docker engine answers on this machine: make machine")
    return docker("network", "inspect", "bridge", "--format", "{{(index .IPAM.Config 0).Gateway}}") or "172.17.0.1"


@pytest.fixture(scope="session")
def release(engine: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server with a release of Containerlab: the package and the checksums."""
    folder = tmp_path_factory.mktemp("release")
    containerlab(folder / "package/usr/bin/containerlab", "0.69.3")
    (folder / "package/DEBIAN").mkdir()
    (folder / "package/DEBIAN/control").write_text(CONTROL)
    package = folder / "containerlab_0.69.3_linux_amd64.deb"
    subprocess.run(["dpkg-deb", "--build", folder / "package", package], check=True, capture_output=True)
    (folder / "checksums.txt").write_text(f"{hashlib.sha256(package.read_bytes()).hexdigest()}  {package.name}\n")
    server = ThreadingHTTPServer(("0.0.0.0", 0), partial(QuietHandler, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://{engine}:{server.server_port}"
    server.shutdown()


class QuietHandler(SimpleHTTPRequestHandler):
    """A file server without a request log."""

    def log_message(self, format: str, *args: object) -> None:
        """Discard the message."""


@pytest.fixture(scope="session")
def bench(release: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A machine before its preparation."""
    variables: dict[str, object] = {
        "toolchain_from": "copy",
        "containerlab_release": release,
        "docker_users": ["bench"],
        # Two sysctls of the container's namespace: a minimum and a value.
        "machine_sysctls": {"net.core.somaxconn": 5000, "net.ipv4.ip_local_port_range": "20000 60999"},
    }
    with machine(tmp_path_factory.mktemp("machine"), variables) as unprepared:
        yield unprepared


@pytest.fixture(scope="session")
def first(bench: Machine) -> PlaybookResult:
    """The first run of prepare.yml on the machine; the checkout has a scratch file only during this run."""
    scratch = ROOT / "docs" / SCRATCH
    scratch.write_text("A file of a test.\n")
    try:
        return bench.play("prepare.yml")
    finally:
        scratch.unlink()


@pytest.fixture
def prepared(bench: Machine, first: PlaybookResult) -> Machine:
    """The machine after prepare.yml."""
    assert first.succeeded, first.text
    return bench
