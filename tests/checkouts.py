# SPDX-License-Identifier: Apache-2.0
"""A scratch checkout with an environment of its own beside this one's packages; what it builds is in the common
cache.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_NAMES = (
    "Cargo.lock",
    "Cargo.toml",
    "crates",
    "docs",
    "kernel",
    "labs",
    "orchestrator",
    "schemes",
    "tests/wire",
    "tools",
)


def make_checkout(root: Path, **environment: str) -> Path:
    """This checkout's files, set up."""
    root.mkdir()
    for name in _NAMES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("target", "__pycache__"))
        else:
            shutil.copy2(ROOT / name, root / name)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", root / ".venv"], check=True)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(root / ".venv")}))
    (packages / "qbed.pth").write_text(f"{root / 'orchestrator'}\n{sysconfig.get_path('purelib')}\n")
    command: list[str | Path] = [root / "tools" / "setup", "--build"]
    everything = os.environ | environment
    done = subprocess.run(command, env=everything, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return root


def qbed(root: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A command of a checkout's qbed."""
    command: list[str | Path] = [root / ".venv" / "bin" / "python", "-m", "qbed", *arguments]
    everything = {key: value for key, value in os.environ.items() if key != "QBED_TOOLCHAIN"} | environment
    return subprocess.run(command, cwd=root, env=everything, capture_output=True, text=True, check=False)
