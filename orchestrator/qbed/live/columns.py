# SPDX-License-Identifier: Apache-2.0
"""Samples in columns for viewers: `BINS` columns of the cell's duration for each queue and flow, so that the amount is
bounded whatever the lab samples. A column may be sent in two pieces, which the viewer adds up.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from qbed.telemetry.taps import OPERATIONS

BINS = 500
COLUMNS = 512
_MAX_ROWS = 100_000
"""With some for what comes after the end; the page has as many, and what would be beyond is left out."""
MAX_FLOWS = 100
"""Limit on the flows with rates for a viewer: the first that have one."""
_SUMS = ("dequeued", "dequeued_bytes", "dropped", "marked")
SAMPLED = ("time_ns", "interval_ns", "byte_ns", "min_bytes", "max_bytes", *_SUMS)
"""The fields that `binned` needs beside the queue, as numpy arrays."""
STEADY = ("steady", "steady_bytes")
"""Further fields of records that represent the intervals after them: their number, and the queue's length in them."""
_MIN, _MAX = np.iinfo(np.int64).min, np.iinfo(np.int64).max

Columns = dict[str, list[Any]]
Array = npt.NDArray[Any]


def width_of(duration_ns: int) -> int:
    """How long a column is."""
    return max(1, -(-duration_ns // BINS))


def portions(steady: Array) -> list[slice]:
    """Parts of samples that represent about `_MAX_ROWS` columns of queues each. `steady`: the field of the samples."""
    wide = np.minimum(steady.astype(np.int64), COLUMNS) + 1
    ends = [*(np.flatnonzero(np.diff(wide.cumsum() // _MAX_ROWS)) + 1).tolist(), len(steady)]
    return [slice(begin, end) for begin, end in zip([0, *ends[:-1]], ends, strict=True)]


def binned(queue: Any, samples: Mapping[str, Array], width_ns: int) -> Columns:
    """Samples by queue and column: the least and the most bytes in the queue, their mean, packets that left it (and
    their bytes), were dropped and marked. Empty if there are none.
    """
    given = {name: np.ascontiguousarray(values) for name, values in samples.items()}
    given["queue"] = np.asarray(queue).astype(np.int64)
    end_ns = COLUMNS * width_ns  # a guest can write any number
    good = (given["interval_ns"] > 0) & (given["interval_ns"] <= end_ns)
    good &= (given["time_ns"] >= 0) & (given["time_ns"] <= end_ns)
    if not good.all():
        given = {name: values[good] for name, values in given.items()}
    if not len(given["queue"]):
        return {}
    rows = {name: given[name].astype(np.int64, copy=False) for name in ("queue", "interval_ns", "byte_ns")}
    rows |= {name: given[name].astype(np.int64, copy=False) for name in ("min_bytes", "max_bytes")}
    rows["bin"] = np.maximum(given["time_ns"].astype(np.int64) - 1, 0) // width_ns  # a sample's time is its end
    if "steady" in given and given["steady"].any():
        still = _still({name: values[given["steady"] > 0] for name, values in given.items()}, width_ns)
        rows = {name: np.concatenate([values, still[name]]) for name, values in rows.items()}
    return _folded(rows, {name: given[name] for name in _SUMS})


def _still(records: Mapping[str, Array], width_ns: int) -> dict[str, Array]:
    """The intervals behind records in which nothing happened, by the columns that they end in."""
    time, step, times, level = (
        records[name].astype(np.int64) for name in ("time_ns", "interval_ns", "steady", "steady_bytes")
    )
    times = np.minimum(times, (COLUMNS * width_ns - time) // step)
    first, last = (time + step - 1) // width_ns, (time + times * step - 1) // width_ns
    columns = np.maximum(last - first + 1, 0)
    of = np.repeat(np.arange(len(time)), columns)
    column = first[of] + np.arange(len(of)) - np.repeat(columns.cumsum() - columns, columns)

    def ended(until: Array) -> Array:
        """The number of intervals that have ended by then."""
        count: Array = np.clip((until - time[of]) // step[of], 0, times[of])
        return count

    ns = (ended((column + 1) * width_ns) - ended(column * width_ns)) * step[of]
    timed = ns > 0
    found = {"queue": records["queue"][of], "bin": column, "interval_ns": ns, "byte_ns": ns * level[of]}
    found |= {"min_bytes": level[of], "max_bytes": level[of]}
    return {name: values[timed] for name, values in found.items()}


def _folded(rows: Mapping[str, Array], sums: Mapping[str, Array]) -> Columns:
    """Rows with the same queue and column put together; `sums` are of the first rows, the others have none. Without
    sorting: there are few columns at a time, so that each pair has a place in a grid.
    """
    first = rows["bin"].min()
    wide = int(rows["bin"].max() - first) + 1
    places = rows["queue"] * wide + (rows["bin"] - first)
    keys: Array
    used: Array | slice
    size = (int(rows["queue"].max()) + 1) * wide
    if size > 8 * len(places) + 4096:  # a few rows, far apart
        keys, places = np.unique(places, return_inverse=True)
        size, used = len(keys), slice(None)
    else:
        used = np.flatnonzero(np.bincount(places, minlength=size))
        keys = used

    def total(values: Array) -> Array:
        return np.bincount(places[: len(values)], values, size)[used]

    def totals(values: Array) -> list[int]:
        with np.errstate(invalid="ignore"):  # a guest can write any number
            return list(total(values).astype(np.int64).tolist())

    def extreme(how: np.ufunc, values: Array, start: int) -> Array:
        found = np.full(size, start)
        how.at(found, places, values)
        return found[used]

    ns = total(rows["interval_ns"])
    mean = np.divide(total(rows["byte_ns"]), ns, out=np.zeros(len(ns)), where=ns > 0)
    return {
        "queue": (keys // wide).tolist(),
        "bin": (keys % wide + first).tolist(),
        "ns": ns.astype(np.int64).tolist(),
        "min": extreme(np.minimum, rows["min_bytes"], _MAX).tolist(),
        "mean": mean.round(1).tolist(),
        "max": extreme(np.maximum, rows["max_bytes"], _MIN).tolist(),
        **{name: totals(values) for name, values in sums.items()},
    }


class Packets:
    """Columns of the queues of which every packet is recorded. Between two events, a queue's length is constant."""

    def __init__(self, width_ns: int, duration_ns: int) -> None:
        self._width_ns, self._duration_ns = width_ns, min(duration_ns, COLUMNS * width_ns)
        self._last: dict[int, tuple[int, int]] = {}  # by queue, the time of its last event and its length since then

    def columns(self, events: Mapping[str, Array]) -> Columns:
        """The columns up to each queue's last event: `queue`, `time_ns`, `op`, `bytes`, `queue_bytes`, in order."""
        queue, time = events["queue"].astype(np.int64), events["time_ns"].astype(np.int64)
        order = np.argsort(queue, kind="stable")
        order = order[(time[order] >= 0) & (time[order] < COLUMNS * self._width_ns)]
        if not len(order):
            return {}
        queue, time = queue[order], time[order]
        size, level = (events[name][order].astype(np.int64) for name in ("bytes", "queue_bytes"))
        begins = np.flatnonzero(np.diff(queue, prepend=-1))
        last = np.array([self._last.get(number, (0, 0)) for number in queue[begins].tolist()], np.int64)
        time[begins] = np.maximum(time[begins], last[:, 0])
        span = COLUMNS * self._width_ns
        time = np.maximum.accumulate(queue * span + time) - queue * span  # a guest can write any order
        before, held = np.roll(time, 1), np.roll(level, 1)
        before[begins], held[begins] = last.T
        for row in np.flatnonzero(np.diff(queue, append=-1)):
            self._last[int(queue[row])] = (int(time[row]), int(level[row]))
        zero = np.zeros(len(queue), np.int64)
        rows = {"queue": queue, "bin": np.maximum(time - 1, 0) // self._width_ns, "interval_ns": zero, "byte_ns": zero}
        rows |= {"min_bytes": level, "max_bytes": level}
        op = events["op"][order]
        left = op == OPERATIONS.index("dequeue")
        sums = {"dequeued": left, "dequeued_bytes": left * size}
        sums |= {"dropped": op == OPERATIONS.index("drop"), "marked": op == OPERATIONS.index("mark")}
        constant = self._constant(queue, before, held, time - before)
        return _folded({name: np.concatenate([values, constant[name]]) for name, values in rows.items()}, sums)

    def rest(self) -> Columns:
        """The columns from each queue's last event to the end of the cell."""
        if not self._last:
            return {}
        queue = np.array([*self._last], np.int64)
        time, level = np.array([*self._last.values()], np.int64).T
        rows = self._constant(queue, time, level, self._duration_ns - time)
        self._last.clear()
        return _folded(rows, dict.fromkeys(_SUMS, np.zeros(0))) if len(rows["queue"]) else {}

    def _constant(self, queue: Array, time: Array, level: Array, ns: Array) -> dict[str, Array]:
        """Spans in which the queue's length is constant, by column."""
        spans = {"queue": queue, "time_ns": time, "interval_ns": np.ones(len(queue), np.int64), "steady": ns}
        spans["steady_bytes"] = level
        return _still({name: values[ns > 0] for name, values in spans.items()}, self._width_ns)


class Flows:
    """The rates of the first flows that have one."""

    def __init__(self, width_ns: int) -> None:
        self._width_ns = width_ns
        self._known: set[int] = set()

    def rates(self, flow: Array, time_ns: Array, bps: Array) -> Columns:
        """Each flow's last rate in each column, from samples in the order of time. A negative rate is absent."""
        rows = np.flatnonzero((time_ns >= 0) & (time_ns < COLUMNS * self._width_ns) & (flow < 1 << 32))
        keys = flow[rows] * COLUMNS + time_ns[rows] // self._width_ns
        order = np.argsort(keys, kind="stable")
        last = order[np.flatnonzero(np.diff(keys[order], append=-1))]
        values = bps[rows[last]]
        shown = (values >= 0) & self._takes(keys[last] // COLUMNS)
        if not shown.any():
            return {}
        keys = keys[last][shown]
        found = {"flow": keys // COLUMNS, "bin": keys % COLUMNS, "bps": values[shown].astype(np.int64)}
        return {name: values.tolist() for name, values in found.items()}

    def _takes(self, flows: Array) -> Array:
        """Which of these, grouped, are shown."""
        begins = np.flatnonzero(np.diff(flows, prepend=-1))
        takes = []
        for flow in flows[begins].tolist():
            if flow not in self._known and len(self._known) < MAX_FLOWS:
                self._known.add(flow)
            takes.append(flow in self._known)
        return np.repeat(np.array(takes, bool), np.diff(begins, append=len(flows)))
