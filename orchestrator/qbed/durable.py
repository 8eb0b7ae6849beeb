# SPDX-License-Identifier: Apache-2.0
"""Files and folders that get their name when they are whole, even if the machine loses its power."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def move(beside: Path, place: Path) -> None:
    """Rename a file, or a folder with all that is in it: its content is on the disk before its name is."""
    settle(beside)
    beside.rename(place)
    _sync(place.parent)


def settle(path: Path) -> None:
    """Have a file on the disk, or a folder with all files and folders in it."""
    if path.is_symlink() or not path.is_dir():
        _sync(path)
        return
    for folder, _, files in os.walk(path):
        for name in files:
            _sync(Path(folder, name))
        _sync(Path(folder))


def _sync(path: Path) -> None:
    """Of files and folders; to open anything else (a FIFO) may not end."""
    mode = path.lstat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a file system that has nothing of the kind
            raise
    finally:
        os.close(descriptor)
