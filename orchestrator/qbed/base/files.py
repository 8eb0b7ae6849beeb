# SPDX-License-Identifier: Apache-2.0
"""Reads of untrusted files, and durable renames.

Only regular files are read, and at most a given number of bytes: a device may have no end, and opening a pipe may
block. A file or folder gets its final name after its content is on the disk.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path

MIB = 1 << 20


def open_regular(path: Path | str) -> BufferedReader:
    """Open a regular file for reading. OSError for anything else, which is not opened."""
    if "\0" in str(path):
        raise OSError(errno.EINVAL, "its name has a NUL byte")
    _expect_regular(os.stat(path), path)  # noqa: PTH116 - Path.stat takes twice as long
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        _expect_regular(os.fstat(descriptor), path)  # the file may have been replaced in between
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


@contextmanager
def named(path: Path | str) -> Iterator[None]:
    """Add `path` to an OSError without a file's name: that of a read, write or fsync."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            error.filename = str(path)
        raise


def _expect_regular(found: os.stat_result, path: Path | str) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, "it is a folder", str(path))
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "it is no regular file", str(path))


def read_bytes(path: Path | str, max_bytes: int) -> bytes:
    """Return the content of a regular file. OSError for one of more than `max_bytes`."""
    with named(path), open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        content = file.read(max_bytes + 1) if size <= max_bytes else b""
    if size > max_bytes or len(content) > max_bytes:
        raise OSError(errno.EFBIG, f"it has {max(size, len(content))} bytes, expected at most {max_bytes}")
    return content


def read_text(path: Path | str, max_bytes: int) -> str:
    """Return the UTF-8 text of a regular file of at most `max_bytes`. OSError, UnicodeDecodeError."""
    return read_bytes(path, max_bytes).decode("utf-8")


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
        with named(path):
            os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # the file system has no fsync
            raise
    finally:
        os.close(descriptor)
