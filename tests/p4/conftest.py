# SPDX-License-Identifier: Apache-2.0
"""A P4Runtime server over a switch with loopback ports, for tests with real clients."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def loopback() -> Path:
    """Build the server, and return its executable."""
    cargo = ["tools/cargo", "build", "--quiet", "--locked", "--package", "qbed-p4runtime", "--example", "loopback"]
    built = subprocess.run(
        [*cargo, "--message-format", "json"], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
    )
    messages = [json.loads(line) for line in built.stdout.splitlines()]
    return Path(
        next(message["executable"] for message in messages if message.get("target", {}).get("name") == "loopback")
    )


@pytest.fixture
def address(loopback: Path) -> Iterator[str]:
    with subprocess.Popen([loopback], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        yield server.stdout.readline().strip()
        assert server.poll() is None, "the server has ended"
        server.kill()
