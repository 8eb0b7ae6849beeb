# SPDX-License-Identifier: Apache-2.0
"""The kernel that a lab selects: a series, or a folder of the user's patches, by a hash of their content."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from qbed.base.errors import nearest
from qbed.base.files import MIB, read_bytes
from qbed.base.locations import kernel_series
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
    """A kernel by name: `6.12`, or `6.12+HASH` with the user's patches. `folder`: that of the patches."""

    name: str
    folder: Path | None = None


class KernelFolderError(ValueError):
    """A folder that is not a folder of patches."""


def lab_kernel(value: str, problems: Problems) -> LabKernel | None:
    """The kernel that the field `kernel` selects; an invalid one is an error at the field."""
    if "/" not in value:
        known = kernel_series()
        if known and value not in known:
            problems.error(("kernel",), f"there is no kernel series `{value}`{nearest(value, known)}")
            return None
        return LabKernel(value)
    try:
        return patched_kernel(beneath(problems.source.folder, value))
    except (ReachError, KernelFolderError) as error:
        problems.error(("kernel",), str(error))
    except OSError as error:
        problems.error(("kernel",), f"{error.filename or value}: cannot read it: {error.strerror}")
    return None


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
        raise KernelFolderError(f"{folder} is no folder; expected one with *.patch files{known}")
    names = sorted(_names(folder))
    if not names:
        raise KernelFolderError(f"{folder} has no *.patch file")
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
