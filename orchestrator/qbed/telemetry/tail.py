# SPDX-License-Identifier: Apache-2.0
"""The files of samples in one folder, read as they grow: a reader costs the lab nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from qbed.telemetry.taps import Records, Run, TapTail
from qbed.telemetry.wall import FRAMES

PIECE_BYTES = 1 << 20
FLOWS = {"tcpinfo.ndjson": "tcp_info", "rates.ndjson": "rates"}
"""Samples of flows, of the transport `tcp` and of `rate`, and the tables that they become."""


class Growing:
    """New content since the last call, in pieces of bounded size. `as_written`: as `TapTail` means it."""

    def __init__(self, folder: Path, queues: int, most_samples: int | None = None, *, as_written: bool = False) -> None:
        self._taps = folder / "taps.bin"
        self._stream = TapTail(queues, most_samples, as_written=as_written)
        self._interfaces = folder / FRAMES
        self._lines = dict.fromkeys((*(folder / name for name in FLOWS), self._interfaces), b"")
        self._at = dict.fromkeys((self._taps, *self._lines), 0)

    def queues(self) -> Iterator[Records]:
        """Samples of queues."""
        return (run.records for run in self.runs() if run.kind == "samples")

    def runs(self) -> Iterator[Run]:
        """All that taps wrote but histograms: samples of queues, and every packet of those of which that is asked."""
        for data in self._new(self._taps):
            yield from (batch for batch in self._stream.feed(data) if isinstance(batch, Run))

    def flows(self) -> Iterator[tuple[str, list[dict[str, Any]]]]:
        """Samples of flows, with the table that they are of."""
        for path in self._lines:
            if path != self._interfaces:
                yield from ((FLOWS[path.name], rows) for rows in self._rows(path))

    def interfaces(self) -> Iterator[list[dict[str, Any]]]:
        """Frames that interfaces have lost, in containers."""
        return self._rows(self._interfaces)

    def _rows(self, path: Path) -> Iterator[list[dict[str, Any]]]:
        for data in self._new(path):
            *lines, self._lines[path] = (self._lines[path] + data).split(b"\n")
            if rows := [json.loads(line) for line in lines if line]:
                yield rows

    def _new(self, path: Path) -> Iterator[bytes]:
        try:
            with path.open("rb") as stream:
                stream.seek(self._at[path])
                while data := stream.read(PIECE_BYTES):
                    self._at[path] += len(data)
                    yield data
        except FileNotFoundError:
            return
