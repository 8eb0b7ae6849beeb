# SPDX-License-Identifier: Apache-2.0
"""Reads `exchanges.bin`, one record for each exchange (docs/formats.md section 2), in batches."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from qbed.base.files import open_regular
from qbed.telemetry.records import RecordError

EXCHANGES = "exchanges.bin"
NEVER = -(1 << 63)
BATCH = 1 << 16
DTYPE = np.dtype(
    [
        *((name, "<u4") for name in ("workload", "session", "exchange", "connection", "client", "server")),
        ("last", "u1"),
        ("pad", "u1"),
        ("error", "<u2"),
        ("zero", "<u4"),
        *((name, "<i8") for name in ("start_ns", "connected_ns", "first_byte_ns", "end_ns")),
        *((name, "<u8") for name in ("request_bytes", "response_bytes")),
    ]
)


def read_exchanges(path: Path) -> Iterator[npt.NDArray[Any]]:
    """Yield the records in batches. Raise `RecordError` if the last one is truncated."""
    with open_regular(path) as file:
        while data := file.read(BATCH * DTYPE.itemsize):
            if len(data) % DTYPE.itemsize:
                raise RecordError(f"{path.name} ends within a record")
            yield np.frombuffer(data, DTYPE)
