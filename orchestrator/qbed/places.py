# SPDX-License-Identifier: Apache-2.0
"""Where qbed's own files are: in a checkout beside this package, in an installed wheel within it (`make wheel`)."""

from __future__ import annotations

import os
import sys
from functools import cache
from pathlib import Path

_PACKAGE = Path(__file__).parent
BUNDLE = _PACKAGE / "bundle"
"""What a wheel brings: `labs`, `schemes`, `p4`, `toolchain`, `licenses`, `sources`."""


@cache
def checkout() -> Path | None:
    """The root of the checkout that this package is run from; None: it was installed from a wheel."""
    root = _PACKAGE.parents[1]
    return root if (root / "tools" / "setup").is_file() else None


def _own(name: str) -> Path:
    root = checkout()
    return (BUNDLE if root is None else root) / name


def labs_folder() -> Path:
    """The labs that come with qbed."""
    return _own("labs")


def schemes_folder() -> Path:
    """The schemes, or what the environment's QBED_SCHEMES says."""
    return Path(os.environ.get("QBED_SCHEMES") or _own("schemes"))


def p4_folder() -> Path:
    """P4 sources that programs share, and the lock of those that come with qbed."""
    return _own("p4")


def setup_folder() -> Path:
    """What `make setup` leaves in this virtual environment: two checkouts share the cache, but not what each needs."""
    return Path(sys.prefix) / "share" / "qbed"


def toolchain_folder() -> Path:
    """The toolchain that a wheel brought, or that `make setup` links to."""
    return BUNDLE / "toolchain" if checkout() is None else setup_folder() / "toolchain"
