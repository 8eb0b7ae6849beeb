# SPDX-License-Identifier: Apache-2.0
"""Reads the agent's probe records (`probes.bin`, docs/formats.md section 2) in chunks as numpy arrays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from qbed.telemetry.records import RecordError

FILE = "probes.bin"
CHUNK_ROWS = 1 << 16
TIMES = ("sent_ns", "received_ns", "replied_ns", "returned_ns")
_FIELDS: list[Any] = [("flow", "<u4"), ("number", "<u4"), *((name, "<i8") for name in TIMES)]
PROBE_DTYPE = np.dtype(_FIELDS)
NEVER = np.iinfo(np.int64).min
"""The value of all times but the first if a probe has not returned."""


def read_probes(stream: BinaryIO, chunk_rows: int = CHUNK_ROWS) -> Iterator[npt.NDArray[np.void]]:
    """Yield the probes in the order of their return, then those that did not return.

    Raise `RecordError` if the last record is truncated.
    """
    size = PROBE_DTYPE.itemsize
    while data := stream.read(chunk_rows * size):
        if len(data) % size:
            raise RecordError(f"{FILE}: the last record has {len(data) % size} of {size} bytes")
        yield np.frombuffer(data, PROBE_DTYPE)
