# SPDX-License-Identifier: Apache-2.0
"""The kernel that a lab selects: a series, or the user's patches or source tree, by a hash of their content."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from qbed.base.errors import nearest
from qbed.base.files import MIB, read_bytes
from qbed.base.locations import kernel_series
from qbed.base.source_tree import tree_hash
from qbed.config.problems import Problems
from qbed.config.reach import ReachError, beneath

DEFAULT_SERIES = "6.12"
"""The series of patches in a folder without a series' name."""
OPTIONS = "config.fragment"
"""File of a folder of patches with options of the kernel's configuration: lines such as `CONFIG_TCP_CONG_NV=y`."""
MAX_PATCHES, MAX_PATCH_BYTES = 1_000, 16 * MIB
_MAX_ENTRIES = 10_000


@dataclass(frozen=True)
class LabKernel:
    """A kernel by name: `6.12`, or `6.12+HASH` of the user's patches or tree. `folder`: that of patches or tree."""

    name: str
    folder: Path | None = None

    @property
    def is_tree(self) -> bool:
        """Whether the folder is a source tree."""
        return self.folder is not None and is_tree(self.folder)


class KernelFolderError(ValueError):
    """A folder that has neither patches nor a source tree of a known series."""


def lab_kernel(value: str, problems: Problems) -> LabKernel | None:
    """The kernel that the field `kernel` selects; an invalid one is an error at the field."""
    if "/" not in value:
        known = kernel_series()
        if known and value not in known:
            problems.error(("kernel",), f"there is no kernel series `{value}`{nearest(value, known)}")
            return None
        return LabKernel(value)
    try:
        return user_kernel(beneath(problems.source.folder, value))
    except (ReachError, KernelFolderError) as error:
        problems.error(("kernel",), str(error))
    except OSError as error:
        problems.error(("kernel",), f"{error.filename or value}: cannot read it: {error.strerror}")
    return None


def user_kernel(folder: Path) -> LabKernel:
    """The kernel of a folder of patches or a source tree. KernelFolderError, OSError."""
    return tree_kernel(folder) if is_tree(folder) else patched_kernel(folder)


def is_tree(folder: Path) -> bool:
    """Whether a folder is a source tree of Linux."""
    return (folder / "Kconfig").is_file() and (folder / "arch" / "um").is_dir()


def tree_kernel(folder: Path) -> LabKernel:
    """The kernel of a source tree. Its series is that of its Makefile. KernelFolderError, OSError."""
    place = folder.resolve()
    head = read_bytes(place / "Makefile", MIB).decode(errors="replace")
    series = ".".join(re.findall(r"(?m)^(?:VERSION|PATCHLEVEL) = ([0-9]+)$", head))
    known = kernel_series()
    if known and series not in known:
        text = f"{folder} is a source tree of Linux {series or 'without a version'}"
        raise KernelFolderError(f"{text}; expected one of {', '.join(known)}, which qbed has patches for")
    return LabKernel(f"{series}+{tree_hash(place)}", place)


def patched_kernel(folder: Path) -> LabKernel:
    """The kernel with the patches of a folder. KernelFolderError, OSError."""
    files = patch_files(folder)
    digest = hashlib.sha256()
    for name, content in files.items():
        digest.update(f"{name} {len(content)}\n".encode() + content)
    place = folder.resolve()
    series = place.name if place.name in kernel_series() else DEFAULT_SERIES
    return LabKernel(f"{series}+{digest.hexdigest()[:16]}", place)


def patch_files(folder: Path) -> dict[str, bytes]:
    """The contents of a folder's patches and options, by name, in the order in which they are applied.

    KernelFolderError, OSError; a link that leaves the folder is an error.
    """
    if not folder.is_dir():
        known = f"; a series is one of {', '.join(kernel_series())}" if kernel_series() else ""
        raise KernelFolderError(f"{folder} is no folder; expected *.patch files or a source tree in it{known}")
    names = sorted(_names(folder))
    if not names:
        raise KernelFolderError(f"{folder} has no *.patch file and is no source tree of Linux")
    if len(names) > MAX_PATCHES:
        raise KernelFolderError(f"{folder} has {len(names)} patches; expected at most {MAX_PATCHES}")
    try:
        return {name: read_bytes(beneath(folder, name), MAX_PATCH_BYTES) for name in names}
    except ReachError as error:
        raise KernelFolderError(str(error)) from None


def _names(folder: Path) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in islice(entries, _MAX_ENTRIES):
            if (entry.name.endswith(".patch") and not entry.name.startswith(".")) or entry.name == OPTIONS:
                yield entry.name
