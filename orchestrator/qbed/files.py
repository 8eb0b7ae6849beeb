# SPDX-License-Identifier: Apache-2.0
"""Files that somebody else wrote: a regular file of at most so many bytes, or a reason. A device has no end, and a pipe
waits for ever.
"""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path

MIB = 1 << 20


def open_regular(path: Path | str) -> BufferedReader:
    """A regular file to read from; OSError for anything else, which is not opened at all."""
    if "\0" in str(path):
        raise OSError(errno.EINVAL, "its name has a NUL byte")
    _expect_regular(os.stat(path), path)  # noqa: PTH116 - a Path takes as long again
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        _expect_regular(os.fstat(descriptor), path)  # whatever was put there meanwhile
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def _expect_regular(found: os.stat_result, path: Path | str) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, "it is a folder", str(path))
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "it is no regular file", str(path))


def read_bytes(path: Path | str, most: int) -> bytes:
    """What is in a regular file; OSError for one of more than `most` bytes."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        content = file.read(most + 1) if size <= most else b""
    if size > most or len(content) > most:
        raise OSError(errno.EFBIG, f"it has {max(size, len(content))} bytes, expected at most {most}")
    return content


def read_text(path: Path | str, most: int) -> str:
    """The same of UTF-8 text; UnicodeDecodeError."""
    return read_bytes(path, most).decode("utf-8")
