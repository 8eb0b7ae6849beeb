# SPDX-License-Identifier: Apache-2.0
"""The tap stream (`taps.bin`, docs/formats.md section 4), read in chunks as numpy structured arrays.

A stream is a concatenation of records of nine types. Samples and events come in long runs, so the parser looks for
the end of a run with one vectorised comparison instead of looking at each record; memory is bounded by the chunk.
A record of a sample stands for the intervals behind it, too, in which nothing happened: whoever reads the stream gets
each interval as a sample of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Literal

import numpy as np
import numpy.typing as npt

from qbed.errors import QbedError
from qbed.telemetry.sojourn import BINS, OTHERS, Sojourn

SAMPLE, EVENT, SUMMARY, HISTOGRAM, BOUND, BOUND_HISTOGRAM, SOJOURN, BOUND_SOJOURN, SOJOURN_SAMPLE = range(1, 10)
OPERATIONS = ("", "enqueue", "dequeue", "drop", "mark", "signal")
CHUNK_BYTES = 8 << 20
SPREAD_ROWS = 1 << 17

_HEADER: list[Any] = [("type", "<u2"), ("length", "<u2"), ("id", "<u4"), ("time_ns", "<i8")]
HEADER_DTYPE = np.dtype(_HEADER)
SAMPLE_DTYPE = np.dtype(
    [
        *_HEADER,
        *((name, "<u8") for name in ("interval_ns", "byte_ns", "packet_ns", "dequeued_bytes")),
        *((name, "<u4") for name in ("min_bytes", "max_bytes", "min_packets", "max_packets")),
        *((name, "<u4") for name in ("enqueued", "dequeued", "dropped", "marked")),
        *((name, "<u4") for name in ("steady", "steady_bytes", "steady_packets", "zero")),
    ]
)
EVENT_DTYPE = np.dtype(
    [
        *_HEADER,
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
SUMMARY_DTYPE = np.dtype([*_HEADER, *((name, "<u8") for name in SUMMARY_FIELDS)])
SOJOURN_DTYPE = np.dtype(
    [
        *_HEADER,
        *((name, "<u4") for name in ("class", "first")),
        *((name, "<u8") for name in ("packets", "sum_ns", "max_ns")),
        *((name, "<u4") for name in ("bins", "zero")),
    ]
)
SOJOURN_SAMPLE_DTYPE = np.dtype(
    [
        *_HEADER,
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

_OF_ALL = (*(name for name, _ in _HEADER), "interval_ns")
_OF_LEVEL = {
    what: f"steady_{unit}s" for unit in ("byte", "packet") for what in (f"{unit}_ns", f"min_{unit}s", f"max_{unit}s")
}
"""Fields of an interval in which nothing happened, and those of the record before it that say what they are."""

Records = npt.NDArray[np.void]


class TapError(QbedError):
    """The tap stream is truncated or is not a tap stream."""


@dataclass(frozen=True)
class Histogram:
    """Time spent with an occupancy of [i, i + 1) bins of bytes; the last bin is open."""

    queue: int
    time_ns: int
    bin_bytes: int
    ns: npt.NDArray[np.uint64]
    at_bound: bool = False
    """Whether a window begins or ends there, or this is the whole."""


@dataclass(frozen=True)
class Run:
    """Equal records, in the stream's order. `bounds` are summaries as of the beginning or end of a window, but for
    their maxima, which are those since the bound before.
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
    most_samples: int | None = None,
    *,
    chunk_bytes: int = CHUNK_BYTES,
    as_written: bool = False,
) -> Iterator[Batch]:
    """Yield the runs of equal records of a stream, in order; `queues` is how many ids are valid.

    Raises `TapError` for anything that is not a complete tap stream, naming the offset in bytes.
    """
    tail = TapTail(queues, most_samples, as_written=as_written)
    while block := stream.read(chunk_bytes):
        yield from tail.feed(block)
    tail.end()


class TapTail:
    """A tap stream that is still being written: takes it piece by piece. One record can say that it stands for four
    thousand million samples, so what a stranger's guest wrote is read with the most that its plan can make.
    `as_written`: without a sample of its own for each of the intervals that a record stands for.
    """

    def __init__(self, queues: int, most_samples: int | None = None, *, as_written: bool = False) -> None:
        self._queues, self._most_samples, self._as_written = queues, most_samples, as_written
        self._rest = b""
        self._offset = 0
        self._samples = 0

    def feed(self, data: bytes) -> Iterator[Batch]:
        """The runs of equal records that are complete with `data`. Raises `TapError`."""
        data = self._rest + data
        used = 0
        while (taken := _take(data, used, self._offset, self._queues)) is not None:
            used, *batches = taken
            for result in batches:
                if not isinstance(result, Run) or result.kind != "samples":
                    yield result
                    continue
                self._samples += len(result.records) + int(result.records["steady"].sum(dtype=np.int64))
                if self._most_samples is not None and self._samples > self._most_samples:
                    raise TapError(f"the tap stream says it has more than {self._most_samples} samples")
                for records in (result.records,) if self._as_written else _spread(result.records):
                    yield Run("samples", records)
        self._offset += used
        self._rest = data[used:]

    def end(self) -> None:
        """Raises `TapError` if the stream has ended inside a record."""
        if self._rest:
            raise TapError(
                f"the tap stream ends inside the record at byte {self._offset}: {len(self._rest)} bytes are left over"
            )


def spread(records: Records, names: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Samples by columns, so many rows at a time: each interval that these records stand for is a row of its own, with
    none behind it. A column costs little; whole records would be copied several times.
    """
    wanted, behind = list(names), records["steady"].astype(np.int64)
    times = np.ones(2 * len(records), np.int64)  # each record without the intervals behind it, and one of those
    times[1::2] = behind
    ends = times.cumsum()
    begins = ends - times
    for begin in range(0, int(times.sum()), SPREAD_ROWS):
        end = min(begin + SPREAD_ROWS, int(ends[-1]))
        first, last = int(ends.searchsorted(begin, "right")), int(ends.searchsorted(end)) + 1
        rows = np.minimum(ends[first:last], end) - np.maximum(begins[first:last], begin)
        part = records[first // 2 : (last + 1) // 2]
        here = slice(first % 2, first % 2 + last - first)
        found = {name: np.repeat(_pairs(part, name)[here], rows) for name in wanted}
        if "time_ns" in found:
            step = np.zeros(2 * len(part), np.int64)
            step[1::2] = part["interval_ns"]
            since = np.arange(begin, end) - np.repeat(begins[first:last] - 1, rows)
            found["time_ns"] += np.repeat(step[here], rows) * since
        yield found


def _pairs(records: Records, name: str) -> Any:
    """A field of records, and after each one that of the intervals behind it."""
    own = records[name]
    both = np.zeros(2 * len(own), own.dtype)
    if not name.startswith("steady"):
        both[::2] = own
    if name in _OF_ALL:
        both[1::2] = own
    elif name in _OF_LEVEL:
        level = records[_OF_LEVEL[name]]
        both[1::2] = level * records["interval_ns"] if name.endswith("_ns") else level
    return both


def _spread(records: Records) -> Iterator[Records]:
    """The same as records."""
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
    """Take one run of equal records from `data[start:]`; None: not even one is complete. Samples of waits come before
    their interval's sample, so these two are taken together: runs of one would cost a hundred times as much.
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
        raise TapError(f"the tap record of type {kind} at byte {base + start} says {length} bytes, not {_SIZES[kind]}")
    available = (len(data) - start) // length
    if available == 0:
        return None
    if kind == SOJOURN_SAMPLE:
        return _take_turns(data, start, base, queues)
    records = np.frombuffer(data, _FIXED[kind], _run(data, start, kind, length, available), start)
    _check_ids(records["id"], queues, base + start)
    end = start + len(records) * length
    if kind == EVENT and not bool(np.all((records["op"] >= 1) & (records["op"] < len(OPERATIONS)))):
        raise TapError(f"an event after byte {base + start} has an unknown operation")
    return end, Run(_KINDS[kind], records)


def _take_turns(data: bytes, start: int, base: int, queues: int) -> tuple[int, *tuple[Batch, ...]]:
    """All samples, and those of waits, up to the next record of another kind."""
    places: dict[int, list[int]] = {SOJOURN_SAMPLE: [], SAMPLE: []}
    known = {kind | _SIZES[kind] << 16: (found.append, _SIZES[kind]) for kind, found in places.items()}
    at = start
    for _ in range(start, len(data), _SIZES[SOJOURN_SAMPLE]):
        note, size = known.get(int.from_bytes(data[at : at + 4], "little"), (None, 0))
        if note is None or at + size > len(data):
            break
        note(at)
        at += size
    words, runs = np.frombuffer(data, "<u8", (at - start) // 8, start), []
    for kind, found in places.items():
        if found:
            own = (np.array(found)[:, None] - start) // 8 + np.arange(_SIZES[kind] // 8)
            records = words[own].view(_FIXED[kind])[:, 0]
            _check_ids(records["id"], queues, base + start)
            runs.append(Run(_KINDS[kind], records))
    _check_classes(runs[0].records["class"], base + start)
    return at, *runs


def _run(data: bytes, start: int, kind: int, length: int, available: int) -> int:
    """How many of the `available` records are of this kind: galloping, so that short runs cost little."""
    want, known = kind | length << 16, 1
    while known < available:
        ahead = min(available, known * 8)
        words = np.ndarray((ahead - known,), "<u4", data, start + known * length, (length,))
        other = words != want
        first = int(other.argmax())
        if other[first]:
            return known + first
        known = ahead
    return available


def _take_histogram(data: bytes, start: int, base: int, queues: int) -> tuple[int, *tuple[Batch, ...]] | None:
    header = np.frombuffer(data, HEADER_DTYPE, 1, start)
    length = int(header["length"][0])
    if length < 24 or length % 8:
        raise TapError(f"the histogram at byte {base + start} says {length} bytes")
    if len(data) - start < length:
        return None
    _check_ids(header["id"], queues, base + start)
    bin_bytes, n = (int(word) for word in np.frombuffer(data, "<u4", 2, start + 16))
    if length != 24 + 8 * n or bin_bytes == 0:
        raise TapError(f"the histogram at byte {base + start} says {n} bins of {bin_bytes} bytes in {length} bytes")
    ns = np.frombuffer(data, "<u8", n, start + 24).copy()
    at_bound = bool(header["type"][0] == BOUND_HISTOGRAM)
    return start + length, Histogram(int(header["id"][0]), int(header["time_ns"][0]), bin_bytes, ns, at_bound)


def _take_sojourn(data: bytes, start: int, base: int, queues: int) -> tuple[int, *tuple[Batch, ...]] | None:
    length = int(np.frombuffer(data, HEADER_DTYPE, 1, start)["length"][0])
    if length < SOJOURN_DTYPE.itemsize or length % 8:
        raise TapError(f"the waits at byte {base + start} say {length} bytes")
    if len(data) - start < length:
        return None
    head = np.frombuffer(data, SOJOURN_DTYPE, 1, start)
    _check_ids(head["id"], queues, base + start)
    _check_classes(head["class"], base + start)
    told = {name: int(head[name][0]) for name in SOJOURN_DTYPE.names or ()}
    if length != SOJOURN_DTYPE.itemsize + 8 * told["bins"] or told["first"] + told["bins"] > BINS:
        raise TapError(
            f"the waits at byte {base + start} say {told['bins']} bins from the {told['first']}th in {length} bytes"
        )
    counts = np.frombuffer(data, "<u8", told["bins"], start + SOJOURN_DTYPE.itemsize).copy()
    found = Sojourn(
        queue=told["id"],
        time_ns=told["time_ns"],
        traffic=told["class"],
        packets=told["packets"],
        sum_ns=told["sum_ns"],
        max_ns=told["max_ns"],
        first=told["first"],
        counts=counts,
        at_bound=told["type"] == BOUND_SOJOURN,
    )
    return start + length, found


def _check_classes(classes: npt.NDArray[np.uint32], offset: int) -> None:
    if (highest := int(np.max(classes))) > OTHERS:
        raise TapError(f"waits at or after byte {offset} are of class {highest}, but there are {OTHERS}")


def _check_ids(ids: npt.NDArray[np.uint32], queues: int, offset: int) -> None:
    highest = int(np.max(ids))
    if highest >= queues:
        raise TapError(
            f"a tap record at or after byte {offset} is of queue {highest}, but the plan has {queues} queues"
        )
