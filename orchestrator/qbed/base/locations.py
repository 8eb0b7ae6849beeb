# SPDX-License-Identifier: Apache-2.0
"""Locations of data files: beside this package in a checkout, within it in an installed wheel (`make wheel`), and in
the user's repository.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path

from qbed.base.cache import cache_folder

_PACKAGE = Path(__file__).parents[1]
BUNDLE = _PACKAGE / "bundle"
"""Folder of a wheel's data: `labs`, `schemes`, `congestion`, `p4`, `toolchain`, `licenses`, `sources`, `identity`."""

MARKER = "qbed.toml"
"""The file that makes a folder a user's repository."""


@cache
def checkout() -> Path | None:
    """Return the root of the checkout that contains this package; None for an installed wheel."""
    root = _PACKAGE.parents[1]
    return root if (root / "tools" / "setup").is_file() else None


def _data_folder(name: str) -> Path:
    root = checkout()
    return (BUNDLE if root is None else root) / name


def repository() -> Path | None:
    """The user's repository, with further labs, schemes and congestion controls.

    `$QBED_REPOSITORY` (none if it is empty), or the nearest folder with a `qbed.toml`, from the working folder upwards.
    """
    named = os.environ.get("QBED_REPOSITORY")
    if named is not None:
        return Path(named).resolve() if named else None
    try:
        return _repository_above(os.getcwd())  # noqa: PTH109 - for each scheme of each queue
    except OSError:  # the working folder was removed
        return None


@cache
def _repository_above(folder: str) -> Path | None:
    return next((place for place in (Path(folder), *Path(folder).parents) if (place / MARKER).is_file()), None)


def forget_repository() -> None:
    """Look for the marker again: this process has written one."""
    _repository_above.cache_clear()


def _with_repository(shipped: Path, name: str) -> tuple[Path, ...]:
    root = repository()
    return (shipped,) if root is None or root / name == shipped else (shipped, root / name)


def labs_folder() -> Path:
    """The labs that come with qbed."""
    return _data_folder("labs")


def labs_folders() -> tuple[Path, ...]:
    """The folders of labs: qbed's, then the user's."""
    return _with_repository(labs_folder(), "labs")


def schemes_folder() -> Path:
    """The schemes: `$QBED_SCHEMES`, or those that come with qbed."""
    return Path(os.environ.get("QBED_SCHEMES") or _data_folder("schemes"))


def schemes_folders() -> tuple[Path, ...]:
    """The folders of schemes: qbed's, then the user's."""
    return _with_repository(schemes_folder(), "schemes")


def scheme_folder(name: str) -> Path:
    """A scheme's folder."""
    return _folder_with(schemes_folders(), name, "scheme.yml")


def congestion_folder() -> Path:
    """The congestion controls: `$QBED_CONGESTION`, or those that come with qbed."""
    return Path(os.environ.get("QBED_CONGESTION") or _data_folder("congestion"))


def congestion_folders() -> tuple[Path, ...]:
    """The folders of congestion controls: qbed's, then the user's."""
    return _with_repository(congestion_folder(), "congestion")


def _folder_with(folders: tuple[Path, ...], name: str, file: str) -> Path:
    return next((folder / name for folder in reversed(folders) if (folder / name / file).is_file()), folders[0] / name)


def p4_folder() -> Path:
    """P4 sources that programs share, and the lock of the programs that come with qbed."""
    return _data_folder("p4")


def sources_folder() -> Path:
    """The folder with `kernel`, the sources of the kernel and its modules."""
    return checkout() or BUNDLE / "sources"


def kernel_series() -> list[str]:
    """The kernel series that qbed has patches for; none in an image, which has one built kernel."""
    return sorted(path.name for path in (sources_folder() / "kernel" / "patches").glob("*"))


def setup_folder() -> Path:
    """Links to the toolchains of this installation, and records of them.

    A checkout has them in its virtual environment: checkouts share the cache, but not these files. A wheel has them in
    the cache, under the hash of what its kernels are built from, so a newer wheel builds kernels again.
    """
    if checkout() is None:
        with suppress(OSError):  # a package without data, not made by tools/wheel
            return cache_folder() / "wheel" / (BUNDLE / "identity").read_text().strip()
    return Path(sys.prefix) / "share" / "qbed"


def toolchain_folder() -> Path:
    """The toolchain of a wheel, or the one that `make setup` links to."""
    return BUNDLE / "toolchain" if checkout() is None else setup_folder() / "toolchain"
