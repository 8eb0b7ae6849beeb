# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the schemes' tests."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def plugins(tmp_path: Path) -> None:
    """tc's plugins in the folder of `live_lab`, /mnt/tc in the guest: it may not see the cache."""
    built = subprocess.run([ROOT / "kernel/tc-plugins.sh"], check=True, capture_output=True, text=True).stdout.strip()
    shutil.copytree(built, tmp_path / "live" / "tc")
