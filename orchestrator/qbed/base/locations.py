# SPDX-License-Identifier: Apache-2.0
"""Locations of qbed's data files: beside this package in a checkout, within it in an installed wheel (`make wheel`)."""

from __future__ import annotations

import os
import sys
from functools import cache
from pathlib import Path

_PACKAGE = Path(__file__).parents[1]
BUNDLE = _PACKAGE / "bundle"
"""Folder of a wheel's data: `labs`, `schemes`, `congestion`, `p4`, `toolchain`, `licenses`, `sources`."""


@cache
def checkout() -> Path | None:
    """Return the root of the checkout that contains this package; None for an installed wheel."""
    root = _PACKAGE.parents[1]
    return root if (root / "tools" / "setup").is_file() else None


def _data_folder(name: str) -> Path:
    root = checkout()
    return (BUNDLE if root is None else root) / name


def labs_folder() -> Path:
    """The labs that come with qbed."""
    return _data_folder("labs")


def schemes_folder() -> Path:
    """The schemes: `$QBED_SCHEMES`, or those that come with qbed."""
    return Path(os.environ.get("QBED_SCHEMES") or _data_folder("schemes"))


def congestion_folder() -> Path:
    """The congestion controls: `$QBED_CONGESTION`, or those that come with qbed."""
    return Path(os.environ.get("QBED_CONGESTION") or _data_folder("congestion"))


def p4_folder() -> Path:
    """P4 sources that programs share, and the lock of the programs that come with qbed."""
    return _data_folder("p4")


def kernel_series() -> list[str]:
    """The kernel series that this checkout has patches for; none in a wheel, which has one built kernel."""
    root = checkout()
    return [] if root is None else sorted(path.name for path in (root / "kernel" / "patches").iterdir())


def setup_folder() -> Path:
    """The files that `make setup` keeps in this virtual environment. Checkouts share the cache, but not these files."""
    return Path(sys.prefix) / "share" / "qbed"


def toolchain_folder() -> Path:
    """The toolchain of a wheel, or the one that `make setup` links to."""
    return BUNDLE / "toolchain" if checkout() is None else setup_folder() / "toolchain"
