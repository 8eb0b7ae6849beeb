# SPDX-License-Identifier: Apache-2.0
"""The samples of flows (`flow_samples.bin`, docs/formats.md section 4), read as numpy structured arrays.

All records have one size. A record's type is its transport, which determines the meaning of its values.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from qbed.base.files import open_regular
from qbed.telemetry.records import RecordError
from qbed.telemetry.taps import CHUNK_BYTES, HEADER_FIELDS, Records

FILE = "flow_samples.bin"
FIELDS = {
    "tcp_info": (
        *("cwnd", "ssthresh", "rtt_ns", "rttvar_ns", "delivery_bps", "pacing_bps", "acked_bytes"),
        *("retransmits", "ce_marks", "state"),
    ),
    "rates": (
        *("rate_bps", "rtt_ns", "min_rtt_ns", "signal", "feedbacks", "sent_bytes", "acked_bytes", "inflight_bytes"),
        *("retransmits", "timeouts"),
    ),
}
"""The values of a record, by the table of its transport. The type of a record is the table's number, from 1."""
STATISTICS = "flow_statistics"
"""The table of statistics of congestion controls. A record, of type 3, has all of one flow."""
WORDS = tuple(f"word_{index}" for index in range(5))
_STATISTICS_FIELDS = ("control", "bytes", *WORDS, "unused_0", "unused_1", "unused_2")
RATE_FIELDS = {"tcp_info": "delivery_bps", "rates": "rate_bps"}
"""The field that is a flow's rate."""
STATES = ("open", "disorder", "cwr", "recovery", "loss", "unknown")
"""The names of `state`, TCP_CA_* of Linux. A number above them is unknown."""
ABSENT = np.iinfo(np.int64).min
_RECORDS = FIELDS | {STATISTICS: _STATISTICS_FIELDS}
DTYPES = {table: np.dtype([*HEADER_FIELDS, *((name, "<i8") for name in names)]) for table, names in _RECORDS.items()}
_TABLES = tuple(DTYPES)
ANY_DTYPE = DTYPES["tcp_info"]
"""A record of any type, under the names of one."""
assert all(dtype.itemsize == 96 for dtype in DTYPES.values())

Batch = tuple[str, Records]
"""The name of a table, and records for it in the file's order."""


class FlowSampleTail:
    """Parses the samples of flows incrementally, while they are being written."""

    def __init__(self) -> None:
        self._rest = b""
        self._offset = 0

    def feed(self, data: bytes) -> Iterator[Batch]:
        """Yield the records that `data` completes. Raise `RecordError` if one is malformed."""
        data = self._rest + data
        records: Records = np.frombuffer(data, ANY_DTYPE, len(data) // ANY_DTYPE.itemsize)
        self._rest = data[records.nbytes :]
        types, flows = records["type"], records["id"]
        self._check((types == 0) | (types > len(_TABLES)), types, "has an unknown type")
        self._check(
            records["length"] != ANY_DTYPE.itemsize, records["length"], f"is not {ANY_DTYPE.itemsize} bytes long, but"
        )
        self._check(flows > np.iinfo(np.int32).max, flows, "has an impossible flow")
        self._offset += records.nbytes
        for number, table in enumerate(_TABLES, 1):
            if len(found := records[types == number]):
                yield table, found.view(DTYPES[table])

    def end(self) -> None:
        """Raise `RecordError` if the file ended inside a record."""
        if self._rest:
            raise RecordError(f"{FILE} ends inside the record at byte {self._offset}")

    def _check(self, wrong: npt.NDArray[np.bool_], values: npt.NDArray[Any], problem: str) -> None:
        if wrong.any():
            first = int(wrong.argmax())
            raise RecordError(
                f"{FILE}: the record at byte {self._offset + first * ANY_DTYPE.itemsize} {problem} {values[first]}"
            )


def read_flow_samples(path: Path) -> Iterator[Batch]:
    """Yield the records of a file in chunks. An absent file has none. Raise `RecordError` if it is malformed."""
    if not path.exists():
        return
    tail = FlowSampleTail()
    with open_regular(path) as stream:
        while block := stream.read(CHUNK_BYTES):
            yield from tail.feed(block)
    tail.end()
