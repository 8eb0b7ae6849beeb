# SPDX-License-Identifier: Apache-2.0
"""The tap stream (`taps.bin`, docs/formats.md section 4), read in chunks as numpy structured arrays.

A stream is a concatenation of records of nine types. Samples and events form long runs, so the parser finds the end of
a run with one vectorised comparison instead of parsing each record. Memory is bounded by the chunk. A sample record is
run-length encoded: `steady` counts the idle intervals that follow it. The reader expands each interval into a sample.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Literal

import numpy as np
import numpy.typing as npt

from qbed.base.errors import QbedError
from qbed.telemetry.sojourn import BINS, OTHERS, Sojourn

SAMPLE, EVENT, SUMMARY, HISTOGRAM, BOUND, BOUND_HISTOGRAM, SOJOURN, BOUND_SOJOURN, SOJOURN_SAMPLE = range(1, 10)
OPERATIONS = ("", "enqueue", "dequeue", "drop", "mark", "signal")
CHUNK_BYTES = 8 << 20
SPREAD_ROWS = 1 << 17

HEADER_FIELDS: list[Any] = [("type", "<u2"), ("length", "<u2"), ("id", "<u4"), ("time_ns", "<i8")]
HEADER_DTYPE = np.dtype(HEADER_FIELDS)
LEVELS = ("min_bytes", "max_bytes", "min_packets", "max_packets")
COUNTS = ("enqueued", "dequeued", "dropped", "marked")
INTEGRALS = {"mean_bytes": "byte_ns", "mean_packets": "packet_ns"}
"""The fields of a record that are integrals over the interval, by the means that follow from them."""
SAMPLE_FIELDS = ("interval_ns", *INTEGRALS, *LEVELS, *COUNTS, "dequeued_bytes")
"""The values of a queue's sample, for readers."""
EVENT_FIELDS = (
    "bytes",
    "ecn",
    "queue_bytes",
    "queue_packets",
    "packet",
    "payload",
    "sport",
    "dport",
    "tcp_seq",
    "tcp_ack",
)
SAMPLE_DTYPE = np.dtype(
    [
        *HEADER_FIELDS,
        *((name, "<u8") for name in ("interval_ns", "byte_ns", "packet_ns", "dequeued_bytes")),
        *((name, "<u4") for name in (*LEVELS, *COUNTS)),
        *((name, "<u4") for name in ("steady", "steady_bytes", "steady_packets", "zero")),
    ]
)
EVENT_DTYPE = np.dtype(
    [
        *HEADER_FIELDS,
        *((name, "u1") for name in ("op", "ecn", "family", "protocol")),
        ("bytes", "<u4"),
        ("queue_bytes", "<u4"),
        ("queue_packets", "<u4"),
        ("packet", "<u8"),
        ("sport", "<u2"),
        ("dport", "<u2"),
        ("tcp_seq", "<u4"),
        ("tcp_ack", "<u4"),
        ("payload", "<u2"),
        ("tcp_flags", "u1"),
        ("pad", "u1"),
        ("saddr", "u1", (16,)),
        ("daddr", "u1", (16,)),
        ("reserved", "u1", (8,)),
    ]
)
SUMMARY_FIELDS = (
    *("duration_ns", "byte_ns", "packet_ns", "max_bytes", "max_packets"),
    *("offered_packets", "offered_bytes", "sent_packets", "sent_bytes", "dropped_packets", "dropped_bytes"),
    *("marked_packets", "queue_packets", "queue_bytes", "start_queue_packets", "start_queue_bytes"),
)
SUMMARY_DTYPE = np.dtype([*HEADER_FIELDS, *((name, "<u8") for name in SUMMARY_FIELDS)])
SOJOURN_DTYPE = np.dtype(
    [
        *HEADER_FIELDS,
        *((name, "<u4") for name in ("class", "first")),
        *((name, "<u8") for name in ("packets", "sum_ns", "max_ns")),
        *((name, "<u4") for name in ("bins", "zero")),
    ]
)
SOJOURN_SAMPLE_DTYPE = np.dtype(
    [
        *HEADER_FIELDS,
        ("interval_ns", "<u8"),
        *((name, "<u4") for name in ("class", "packets")),
        *((name, "<u8") for name in ("sum_ns", "max_ns", "p50_ns", "p99_ns")),
    ]
)
_FIXED = {
    SAMPLE: SAMPLE_DTYPE,
    EVENT: EVENT_DTYPE,
    SUMMARY: SUMMARY_DTYPE,
    BOUND: SUMMARY_DTYPE,
    SOJOURN_SAMPLE: SOJOURN_SAMPLE_DTYPE,
}
_SIZES = {SAMPLE: 96, EVENT: 96, SUMMARY: 144, BOUND: 144, SOJOURN_SAMPLE: 64}
assert all(_FIXED[kind].itemsize == size for kind, size in _SIZES.items())

_CONSTANT_FIELDS = (*(name for name, _ in HEADER_FIELDS), "interval_ns")
_LEVEL_FIELDS = {
    name: f"steady_{unit}s" for unit in ("byte", "packet") for name in (f"{unit}_ns", f"min_{unit}s", f"max_{unit}s")
}
"""Fields of an idle interval that follow from the queue's level, by the field of the record that holds the level."""

Records = npt.NDArray[np.void]


class TapError(QbedError):
    """Raised if a tap stream is truncated or malformed."""


@dataclass(frozen=True)
class Histogram:
    """Time spent at an occupancy of [i, i + 1) * `bin_bytes`. The last bin is open-ended."""

    queue: int
    time_ns: int
    bin_bytes: int
    ns: npt.NDArray[np.uint64]
    at_bound: bool = False
    """True: recorded at the bound of a window; False: for the whole run."""


@dataclass(frozen=True)
class Run:
    """Consecutive records of one kind, in the stream's order.

    `bounds` are summaries at the start or end of a window. Their maxima are since the previous bound.
    """

    kind: Literal["samples", "events", "summaries", "bounds", "sojourns"]
    records: Records


Batch = Run | Histogram | Sojourn
_KINDS: dict[int, Literal["samples", "events", "summaries", "bounds", "sojourns"]] = {
    SAMPLE: "samples",
    EVENT: "events",
    SUMMARY: "summaries",
    BOUND: "bounds",
    SOJOURN_SAMPLE: "sojourns",
}


def read_taps(
    stream: BinaryIO,
    queues: int,
    max_samples: int | None = None,
    *,
    chunk_bytes: int = CHUNK_BYTES,
    as_written: bool = False,
) -> Iterator[Batch]:
    """Yield the runs of a stream in order. Ids below `queues` are valid.

    Raise `TapError` with the byte offset if the stream is not a complete tap stream.
    """
    tail = TapTail(queues, max_samples, as_written=as_written)
    while block := stream.read(chunk_bytes):
        yield from tail.feed(block)
    tail.end()


class TapTail:
    """Parses a tap stream incrementally, while it is being written.

    A record can expand to 2^32 samples, so an untrusted stream is read with `max_samples`, the limit that its plan
    implies. `as_written`: do not expand idle intervals into samples.
    """

    def __init__(self, queues: int, max_samples: int | None = None, *, as_written: bool = False) -> None:
        self._queues, self._max_samples, self._as_written = queues, max_samples, as_written
        self._rest = b""
        self._offset = 0
        self._samples = 0

    def feed(self, data: bytes) -> Iterator[Batch]:
        """Yield the runs that `data` completes. Raise `TapError` if it is malformed."""
        data = self._rest + data
        used = 0
        while (taken := _take(data, used, self._offset, self._queues)) is not None:
            used, *batches = taken
            for result in batches:
                if not isinstance(result, Run) or result.kind != "samples":
                    yield result
                    continue
                self._samples += len(result.records) + int(result.records["steady"].sum(dtype=np.int64))
                if self._max_samples is not None and self._samples > self._max_samples:
                    raise TapError(f"the tap stream has more than {self._max_samples} samples")
                for records in (result.records,) if self._as_written else _spread(result.records):
                    yield Run("samples", records)
        self._offset += used
        self._rest = data[used:]

    def end(self) -> None:
        """Raise `TapError` if the stream ended inside a record."""
        if self._rest:
            raise TapError(
                f"the tap stream ends inside the record at byte {self._offset}: {len(self._rest)} bytes are left over"
            )


def spread(records: Records, names: Iterable[str], max_rows: int | None = None) -> Iterator[dict[str, Any]]:
    """Expand records into columns of samples, one row for each interval, at most `max_rows` (`SPREAD_ROWS`) at a time.

    Columns are cheap; whole records would be copied several times.
    """
    wanted, max_rows = list(names), max_rows or SPREAD_ROWS
    times = np.ones(2 * len(records), np.int64)  # rows of each record and of the idle intervals after it
    times[1::2] = records["steady"].astype(np.int64)
    ends = times.cumsum()
    begins = ends - times
    for begin in range(0, int(times.sum()), max_rows):
        end = min(begin + max_rows, int(ends[-1]))
        first, last = int(ends.searchsorted(begin, "right")), int(ends.searchsorted(end)) + 1
        rows = np.minimum(ends[first:last], end) - np.maximum(begins[first:last], begin)
        part = records[first // 2 : (last + 1) // 2]
        used = slice(first % 2, first % 2 + last - first)
        columns = {name: np.repeat(_pairs(part, name)[used], rows) for name in wanted}
        if "time_ns" in columns:
            step = np.zeros(2 * len(part), np.int64)
            step[1::2] = part["interval_ns"]
            since = np.arange(begin, end) - np.repeat(begins[first:last] - 1, rows)
            columns["time_ns"] += np.repeat(step[used], rows) * since
        yield columns


def _pairs(records: Records, name: str) -> Any:
    """Interleave a field of the records with its value in the idle intervals after each record."""
    values = records[name]
    both = np.zeros(2 * len(values), values.dtype)
    if not name.startswith("steady"):
        both[::2] = values
    if name in _CONSTANT_FIELDS:
        both[1::2] = values
    elif name in _LEVEL_FIELDS:
        level = records[_LEVEL_FIELDS[name]]
        both[1::2] = level * records["interval_ns"] if name.endswith("_ns") else level
    return both


def _spread(records: Records) -> Iterator[Records]:
    """Expand records into sample records."""
    if not records["steady"].any():
        yield records
        return
    names = SAMPLE_DTYPE.names or ()
    for columns in spread(records, names):
        rows = np.empty(len(columns["id"]), SAMPLE_DTYPE)
        for name in names:
            rows[name] = columns[name]
        yield rows


def _take(data: bytes, start: int, base: int, queues: int) -> tuple[int, *tuple[Batch, ...]] | None:
    """Parse one run from `data[start:]` and return its end with its batches; None if no record is complete.

    Sojourn samples alternate with the samples of their interval. Both are parsed together, because runs of one record
    cost a hundred times as much.
    """
    if len(data) - start < HEADER_DTYPE.itemsize:
        return None
    header = np.frombuffer(data, HEADER_DTYPE, 1, start)[0]
    kind, length = int(header["type"]), int(header["length"])
    if kind in (HISTOGRAM, BOUND_HISTOGRAM):
        return _take_histogram(data, start, base, queues)
    if kind in (SOJOURN, BOUND_SOJOURN):
        return _take_sojourn(data, start, base, queues)
    if kind not in _FIXED:
        raise TapError(f"the tap stream has an unknown record type {kind} at byte {base + start}")
    if length != _SIZES[kind]:
        raise TapError(f"the tap record of type {kind} at byte {base + start} has {length} bytes, not {_SIZES[kind]}")
    available = (len(data) - start) // length
    if available == 0:
        return None
    if kind == SOJOURN_SAMPLE:
        return _take_interleaved(data, start, base, queues)
    records = np.frombuffer(data, _FIXED[kind], _run(data, start, kind, length, available), start)
    _check_ids(records["id"], queues, base + start)
    end = start + len(records) * length
    if kind == EVENT and not bool(np.all((records["op"] >= 1) & (records["op"] < len(OPERATIONS)))):
        raise TapError(f"an event after byte {base + start} has an unknown operation")
    return end, Run(_KINDS[kind], records)


def _take_interleaved(data: bytes, start: int, base: int, queues: int) -> tuple[int, *tuple[Batch, ...]]:
    """Parse all samples and sojourn samples up to the next record of another kind."""
    offsets: dict[int, list[int]] = {SOJOURN_SAMPLE: [], SAMPLE: []}
    known = {kind | _SIZES[kind] << 16: (found.append, _SIZES[kind]) for kind, found in offsets.items()}
    at = start
    for _ in range(start, len(data), _SIZES[SOJOURN_SAMPLE]):
        append, size = known.get(int.from_bytes(data[at : at + 4], "little"), (None, 0))
        if append is None or at + size > len(data):
            break
        append(at)
        at += size
    words, runs = np.frombuffer(data, "<u8", (at - start) // 8, start), []
    for kind, found in offsets.items():
        if found:
            indices = (np.array(found)[:, None] - start) // 8 + np.arange(_SIZES[kind] // 8)
            records = words[indices].view(_FIXED[kind])[:, 0]
            _check_ids(records["id"], queues, base + start)
            runs.append(Run(_KINDS[kind], records))
    _check_classes(runs[0].records["class"], base + start)
    return at, *runs


def _run(data: bytes, start: int, kind: int, length: int, available: int) -> int:
    """Count the leading records of this kind among the `available` ones, by galloping search: short runs are cheap."""
    want, known = kind | length << 16, 1
    while known < available:
        ahead = min(available, known * 8)
        words = np.ndarray((ahead - known,), "<u4", data, start + known * length, (length,))
        different = words != want
        first = int(different.argmax())
        if different[first]:
            return known + first
        known = ahead
    return available


def _take_histogram(data: bytes, start: int, base: int, queues: int) -> tuple[int, *tuple[Batch, ...]] | None:
    header = np.frombuffer(data, HEADER_DTYPE, 1, start)
    length = int(header["length"][0])
    if length < 24 or length % 8:
        raise TapError(f"the histogram at byte {base + start} has {length} bytes")
    if len(data) - start < length:
        return None
    _check_ids(header["id"], queues, base + start)
    bin_bytes, n = (int(word) for word in np.frombuffer(data, "<u4", 2, start + 16))
    if length != 24 + 8 * n or bin_bytes == 0:
        raise TapError(f"the histogram at byte {base + start} has {n} bins of {bin_bytes} bytes in {length} bytes")
    ns = np.frombuffer(data, "<u8", n, start + 24).copy()
    at_bound = bool(header["type"][0] == BOUND_HISTOGRAM)
    return start + length, Histogram(int(header["id"][0]), int(header["time_ns"][0]), bin_bytes, ns, at_bound)


def _take_sojourn(data: bytes, start: int, base: int, queues: int) -> tuple[int, *tuple[Batch, ...]] | None:
    length = int(np.frombuffer(data, HEADER_DTYPE, 1, start)["length"][0])
    if length < SOJOURN_DTYPE.itemsize or length % 8:
        raise TapError(f"the sojourn record at byte {base + start} has {length} bytes")
    if len(data) - start < length:
        return None
    head = np.frombuffer(data, SOJOURN_DTYPE, 1, start)
    _check_ids(head["id"], queues, base + start)
    _check_classes(head["class"], base + start)
    fields = {name: int(head[name][0]) for name in SOJOURN_DTYPE.names or ()}
    if length != SOJOURN_DTYPE.itemsize + 8 * fields["bins"] or fields["first"] + fields["bins"] > BINS:
        raise TapError(
            f"the sojourn record at byte {base + start} has {fields['bins']} bins from bin {fields['first']} on"
            f" in {length} bytes"
        )
    counts = np.frombuffer(data, "<u8", fields["bins"], start + SOJOURN_DTYPE.itemsize).copy()
    sojourn = Sojourn(
        queue=fields["id"],
        time_ns=fields["time_ns"],
        traffic=fields["class"],
        packets=fields["packets"],
        sum_ns=fields["sum_ns"],
        max_ns=fields["max_ns"],
        first=fields["first"],
        counts=counts,
        at_bound=fields["type"] == BOUND_SOJOURN,
    )
    return start + length, sojourn


def _check_classes(classes: npt.NDArray[np.uint32], offset: int) -> None:
    if (highest := int(np.max(classes))) > OTHERS:
        raise TapError(f"a sojourn record at or after byte {offset} has class {highest}: the highest is {OTHERS}")


def _check_ids(ids: npt.NDArray[np.uint32], queues: int, offset: int) -> None:
    highest = int(np.max(ids))
    if highest >= queues:
        raise TapError(
            f"a tap record at or after byte {offset} names queue {highest}, but the plan has {queues} queues"
        )
