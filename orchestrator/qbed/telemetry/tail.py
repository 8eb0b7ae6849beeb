# SPDX-License-Identifier: Apache-2.0
"""Follows the files of samples in one folder as they grow. Readers do not interact with the lab."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from io import BufferedReader
from itertools import chain
from pathlib import Path
from typing import Generic, TypeVar

from qbed.base.json_files import Row
from qbed.telemetry import flow_samples
from qbed.telemetry.flow_samples import Batch, FlowSampleTail
from qbed.telemetry.records import RecordError
from qbed.telemetry.taps import Run, TapTail
from qbed.telemetry.wall import FRAMES

PIECE_BYTES = 1 << 20
TAPS = "taps.bin"
_TABLES = {"samples": "queue_series", "events": "queue_events"}
_Item = TypeVar("_Item")


class GrowingFile(Generic[_Item]):
    """A growing file, parsed piece by piece. It stays open, so that it can be read to its end after it was removed."""

    def __init__(self, path: Path, parse: Callable[[bytes], Iterator[_Item]], piece_bytes: int = PIECE_BYTES) -> None:
        self._path = path
        self._parse = parse
        self._piece_bytes = piece_bytes
        self._stream: BufferedReader | None = None
        self.full = False
        """Whether the last piece had its full size, so that there is probably more."""

    def open(self) -> bool:
        """Open the file if it exists; returns whether it is open."""
        if self._stream is None:
            with suppress(OSError):
                self._stream = self._path.open("rb")
        return self.opened

    @property
    def opened(self) -> bool:
        return self._stream is not None

    def piece(self) -> Iterator[_Item]:
        """Parse the next piece of new content."""
        data = self._stream.read(self._piece_bytes) if self.open() and self._stream else b""
        self.full = len(data) == self._piece_bytes
        if data:
            yield from self._parse(data)

    def pieces(self) -> Iterator[list[_Item]]:
        """Parse all new content, piece by piece."""
        yield [*self.piece()]
        while self.full:
            yield [*self.piece()]

    def rest(self) -> Iterator[_Item]:
        """Parse all new content, one piece in memory at a time."""
        return chain.from_iterable(self.pieces())

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()


class SampleFiles:
    """The samples in one folder: those of queues and flows as batches of records, frames lost at interfaces as rows."""

    def __init__(
        self, folder: Path, queues: int, max_samples: int | None = None, *, piece_bytes: int = PIECE_BYTES
    ) -> None:
        taps = TapTail(queues, max_samples, as_written=True)

        def batches(data: bytes) -> Iterator[Batch]:
            for run in taps.feed(data):
                if isinstance(run, Run) and run.kind in _TABLES:
                    yield _TABLES[run.kind], run.records

        self.queues: GrowingFile[Batch] = GrowingFile(folder / TAPS, batches, piece_bytes)
        flows = FlowSampleTail()

        def samples(data: bytes) -> Iterator[Batch]:
            return (batch for batch in flows.feed(data) if batch[0] in flow_samples.FIELDS)

        self.flows = GrowingFile(folder / flow_samples.FILE, samples, piece_bytes)
        self.frames = GrowingFile(folder / FRAMES, _Lines().feed, piece_bytes)

    @property
    def full(self) -> bool:
        return self.queues.full or self.flows.full

    def piece(self) -> Iterator[Batch]:
        """New samples of queues and flows, at most a piece of each file."""
        yield from self.queues.piece()
        yield from self.flows.piece()

    def close(self) -> None:
        for file in (self.queues, self.flows, self.frames):
            file.close()


class _Lines:
    """Parses lines of JSON objects."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[Row]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in filter(None, lines):
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                row = None
            if not isinstance(row, dict):
                raise RecordError(f"{FRAMES}: a line is no JSON object")
            yield row
