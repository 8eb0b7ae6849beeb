# SPDX-License-Identifier: Apache-2.0
"""Points as an NDJSON file: each is in it once, however often the run was interrupted."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from qbed.live.points import Points
from qbed.live.sinks import NotTakenError, SinkError
from qbed.live.sinks.line_protocol import NDJSON

MAX_RESERVE_BYTES = 1 << 30
RESERVE = 4
"""The divisor of a disk's size that gives the free space which a file of points leaves to others, up to the maximum."""


class File:
    """A file that grows while its disk has free space: the run's results may be on the same disk."""

    def __init__(self, path: Path) -> None:
        self._path = path.absolute()
        self._stream: BinaryIO | None = None
        self._size = 0

    @property
    def name(self) -> str:
        return str(self._path)

    def open(self, size: int | None) -> None:
        """Cut off what follows `size`: it was not acknowledged, and is sent again."""
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o644)
            self._stream = os.fdopen(descriptor, "r+b", buffering=0)
            length = self._stream.seek(0, os.SEEK_END)
            if length < (size or 0):
                raise SinkError(f"{self._path} has {length} bytes, but {size} had been written: it is another file")
            if length and size is None:
                raise SinkError(f"{self._path} exists already: choose another, or remove it")
            self._stream.truncate(size or 0)
            self._size = self._stream.seek(size or 0)
        except OSError as error:
            raise SinkError(f"{self._path} cannot be written: {error.strerror}") from error

    def encode(self, points: Points) -> bytes:
        return NDJSON.write(points)

    def write(self, body: bytes) -> int:
        assert self._stream is not None
        try:
            self._check_space(len(body))
            self._stream.seek(self._size)
            view = memoryview(body)
            while view:
                view = view[self._stream.write(view) :]
            os.fdatasync(self._stream.fileno())
        except OSError as error:
            with suppress(OSError):  # a full disk has taken a part
                self._stream.truncate(self._size)
            raise NotTakenError(f"{self._path}: {error.strerror}") from error
        self._size += len(body)
        return self._size

    def _check_space(self, needed: int) -> None:
        disk = shutil.disk_usage(self._path.parent)
        reserve = min(disk.total // RESERVE, MAX_RESERVE_BYTES)
        if disk.free - needed < reserve:
            raise NotTakenError(
                f"{self._path}: the disk has {disk.free / 1e6:.1f} MB left, too little for {needed / 1e6:.1f} MB"
                f" and the {reserve / 1e6:.1f} MB that a file of points leaves free"
            )
