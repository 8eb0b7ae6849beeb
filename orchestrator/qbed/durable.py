# SPDX-License-Identifier: Apache-2.0
"""Durable renames: files and folders get their final name after their content is on the disk."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def move(temporary: Path, target: Path) -> None:
    """Rename a file or folder after its content has been synced to the disk."""
    sync_tree(temporary)
    temporary.rename(target)
    _sync(target.parent)


def sync_tree(path: Path) -> None:
    """Sync a file, or a folder with everything in it, to the disk."""
    if path.is_symlink() or not path.is_dir():
        _sync(path)
        return
    for folder, _, files in os.walk(path):
        for name in files:
            _sync(Path(folder, name))
        _sync(Path(folder))


def _sync(path: Path) -> None:
    """Sync a regular file or a folder; opening anything else (a FIFO) could block."""
    mode = path.lstat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # the file system has no fsync
            raise
    finally:
        os.close(descriptor)
