# SPDX-License-Identifier: Apache-2.0
"""A copy of the checkout with a new virtual environment, which shares the installed packages and the build cache."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COPIED = (
    "Cargo.lock",
    "Cargo.toml",
    "congestion",
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
    """Copy the checkout to `root` and set it up with `tools/setup --build`."""
    root.mkdir()
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("target", "__pycache__"))
        else:
            shutil.copy2(ROOT / name, root / name)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", root / ".venv"], check=True)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(root / ".venv")}))
    (packages / "qbed.pth").write_text(f"{root / 'orchestrator'}\n{sysconfig.get_path('purelib')}\n")
    command: list[str | Path] = [root / "tools" / "setup", "--build"]
    variables = os.environ | environment
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return root


def qbed(root: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a `qbed` command of the checkout `root`."""
    command: list[str | Path] = [root / ".venv" / "bin" / "python", "-m", "qbed", *arguments]
    variables = {key: value for key, value in os.environ.items() if key != "QBED_TOOLCHAIN"} | environment
    return subprocess.run(command, cwd=root, env=variables, capture_output=True, text=True, check=False)
