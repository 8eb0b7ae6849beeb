# SPDX-License-Identifier: Apache-2.0
"""Runs the scripts of kernel/ that build a kernel and its modules: those of this checkout, or of an installed wheel."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from qbed.base.locations import checkout, sources_folder
from qbed.network.kernels import DEFAULT_SERIES

_PROGRAMS = {
    "gcc": "build-essential",
    "make": "build-essential",
    "bc": "bc",
    "bison": "bison",
    "flex": "flex",
    "patch": "patch",
    "xz": "xz-utils",
}
"""The programs that a build of Linux runs, with Debian's packages of them."""
_LIBELF = Path("/usr/include/libelf.h")
_SOURCES = Path("/usr/src")


class BuildError(Exception):
    """The script failed, and has printed its errors, or this machine lacks programs that it runs."""


def kernel_script(name: str) -> Path:
    """A script of kernel/."""
    return sources_folder() / "kernel" / name


def run_script(command: Sequence[str | Path], series: str, what: str) -> str:
    """Run a script for a kernel series and return what it prints. `what`: what it builds, for the message of
    `BuildError`.
    """
    if checkout() is None and (missing := sorted(set(_missing_packages(series)))):
        packages = " ".join(missing)
        raise BuildError(f"{what} cannot be built here: install Debian's packages, `sudo apt install {packages}`")
    done = subprocess.run(
        command,
        env=os.environ | {"QBED_KERNEL": series, "QBED_PYTHON": sys.executable},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise BuildError(f"{what} did not build: see above")
    return done.stdout


def _missing_packages(series: str) -> Iterator[str]:
    """Debian's packages that a build needs and this machine lacks. `make setup` of a checkout installs them."""
    yield from (package for program, package in _PROGRAMS.items() if shutil.which(program) is None)
    if not _LIBELF.exists():
        yield "libelf-dev"
    source = f"linux-source-{series}"
    if series == DEFAULT_SERIES and not (_SOURCES / f"{source}.tar.xz").exists():
        yield source  # those of other series are fetched (kernel/build.sh)
