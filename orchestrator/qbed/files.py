# SPDX-License-Identifier: Apache-2.0
"""Reads of untrusted files: only regular files, and at most a given number of bytes. A device may have no end, and
opening a pipe may block.
"""

from __future__ import annotations

import errno
import os
import stat
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


def _expect_regular(found: os.stat_result, path: Path | str) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, "it is a folder", str(path))
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "it is no regular file", str(path))


def read_bytes(path: Path | str, max_bytes: int) -> bytes:
    """Return the content of a regular file. OSError for one of more than `most` bytes."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        content = file.read(max_bytes + 1) if size <= max_bytes else b""
    if size > max_bytes or len(content) > max_bytes:
        raise OSError(errno.EFBIG, f"it has {max(size, len(content))} bytes, expected at most {max_bytes}")
    return content


def read_text(path: Path | str, max_bytes: int) -> str:
    """Return the UTF-8 text of a regular file of at most `most` bytes. OSError, UnicodeDecodeError."""
    return read_bytes(path, max_bytes).decode("utf-8")
