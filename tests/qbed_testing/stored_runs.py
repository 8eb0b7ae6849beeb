# SPDX-License-Identifier: Apache-2.0
"""Runs `qbed` in a folder, with a store of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def qbed(folder: Path, *arguments: str, size: str = "1 GB", status: int = 0) -> str:
    """Run a `qbed` command and return what it prints. `size`: the limit of the store. AssertionError if it exits with
    another status.
    """
    environment = {**os.environ, "QBED_STORE": size, "QBED_CACHE": str(folder / "cache")}
    command = [sys.executable, "-m", "qbed", *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr
