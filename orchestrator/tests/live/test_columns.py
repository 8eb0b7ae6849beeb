# SPDX-License-Identifier: Apache-2.0
"""Columns for viewers equal a simple count, however the samples are split."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from qbed.live.columns import COLUMNS, SAMPLED, STEADY, Packets, binned
from qbed.telemetry.taps import EVENT_DTYPE, OPERATIONS, SAMPLE, SAMPLE_DTYPE, TapTail

QUEUES, WIDTH_NS = 5, 100
SUMS = ("dequeued", "dequeued_bytes", "dropped", "marked")


@st.composite
def streams(draw: st.DrawFn) -> Any:
    """Samples of some queues, with steady intervals behind some, some of them beyond the end of the lab."""
    rows: list[Any] = []
    for queue in range(draw(st.integers(1, QUEUES))):
        time, step = 0, draw(st.integers(1, 3 * WIDTH_NS))
        for _ in range(draw(st.integers(0, 6))):
            row, levels = np.zeros((), SAMPLE_DTYPE), sorted(draw(st.tuples(*[st.integers(0, 2_000)] * 3)))
            time += step
            row["id"], row["time_ns"], row["interval_ns"] = queue, time, step
            row["min_bytes"], row["byte_ns"], row["max_bytes"] = levels[0], levels[1] * step, levels[2]
            for name in SUMS:
                row[name] = draw(st.integers(0, 9))
            row["steady"], row["steady_bytes"] = draw(st.sampled_from([0, 0, 1, 7, 400])), draw(st.integers(0, 2_000))
            time += int(row["steady"]) * step
            rows.append(row)
    records = np.array(sorted(rows, key=lambda row: int(row["time_ns"])), SAMPLE_DTYPE)
    records["type"], records["length"] = SAMPLE, SAMPLE_DTYPE.itemsize
    return records


def together(pieces: list[dict[str, list[Any]]]) -> dict[tuple[int, int], list[float]]:
    found: dict[tuple[int, int], list[float]] = {}
    for piece in pieces:
        for queue, column, ns, minimum, mean, maximum, *sums in zip(*piece.values(), strict=True):
            before = found.get((queue, column), [0, minimum, 0, maximum, *[0] * len(SUMS)])
            found[queue, column] = [
                before[0] + ns, min(before[1], minimum), before[2] + mean * ns, max(before[3], maximum),
                *(a + b for a, b in zip(before[4:], sums, strict=True)),
            ]  # fmt: skip
    return found


def counted(records: Any) -> dict[tuple[int, int], list[float]]:
    """One sample after the other."""
    found: dict[tuple[int, int], list[float]] = defaultdict(lambda: [0, 1 << 40, 0, -1, *[0] * len(SUMS)])
    for record in records:
        step, time = int(record["interval_ns"]), int(record["time_ns"])
        column = (time - 1) // WIDTH_NS
        if time > COLUMNS * WIDTH_NS:
            continue
        row = found[int(record["id"]), column]
        row[0] += step
        row[1] = min(row[1], int(record["min_bytes"]))
        row[2] += int(record["byte_ns"])
        row[3] = max(row[3], int(record["max_bytes"]))
        for index, name in enumerate(SUMS, 4):
            row[index] += int(record[name])
    return found


def same(first: dict[tuple[int, int], list[float]], second: dict[tuple[int, int], list[float]], pieces: int) -> bool:
    if set(first) != set(second):
        return False
    for key, values in first.items():
        expected = second[key]
        if (
            values[:2] + values[3:] != expected[:2] + expected[3:]
            or abs(values[2] - expected[2]) > 0.06 * pieces * values[0]
        ):
            return False
    return True


@given(streams(), st.integers(1, 700))
@settings(max_examples=150, deadline=None, derandomize=True, database=None)
def test_columns_equal_the_samples(records: Any, piece: int) -> None:
    data, tail, pieces = records.tobytes(), TapTail(QUEUES, as_written=True), []
    for at in range(0, len(data), piece):
        for run in tail.feed(data[at : at + piece]):
            sampled = {name: run.records[name] for name in (*SAMPLED, *STEADY)}  # type: ignore[union-attr]
            pieces.append(binned(run.records["id"], sampled, WIDTH_NS))  # type: ignore[union-attr]
    one_by_one = [run.records for run in TapTail(QUEUES).feed(data)]  # type: ignore[union-attr]
    spread = np.concatenate(one_by_one) if one_by_one else records
    expected = counted(spread)
    assert same(together([piece for piece in pieces if piece]), expected, len(pieces) + 1)
    if len(spread):  # as a table has them
        together_bins = binned(spread["id"], {name: spread[name] for name in SAMPLED}, WIDTH_NS)
        assert same(together([together_bins] if together_bins else []), expected, 1)


def test_a_guest_can_write_any_number() -> None:
    """Columns that no lab has are left out, at no cost."""
    records = np.zeros(64, SAMPLE_DTYPE)
    dice = np.random.default_rng(1)
    words = records.view("u1").reshape(64, -1)
    words[:, 8:] = dice.integers(0, 256, words[:, 8:].shape)
    records["id"] = 0
    records["time_ns"][32:] = dice.integers(0, 1_000, 32)
    records["interval_ns"][48:] = dice.integers(0, 1_000, 16)
    found = binned(records["id"], {name: records[name] for name in (*SAMPLED, *STEADY)}, WIDTH_NS)
    assert 0 < len(found["bin"]) <= COLUMNS and min(found["bin"]) >= 0 and max(found["bin"]) <= COLUMNS


@st.composite
def packets(draw: st.DrawFn) -> Any:
    """Events of some queues, in order of time."""
    rows: list[Any] = []
    for queue in range(draw(st.integers(1, QUEUES))):
        time = 0
        for _ in range(draw(st.integers(0, 8))):
            time += draw(st.integers(0, 3 * WIDTH_NS))
            row = np.zeros((), EVENT_DTYPE)
            row["id"], row["time_ns"], row["op"] = queue, time, draw(st.integers(1, len(OPERATIONS) - 1))
            row["bytes"], row["queue_bytes"] = draw(st.integers(64, 1514)), draw(st.integers(0, 2_000))
            rows.append(row)
    return np.array(sorted(rows, key=lambda row: int(row["time_ns"])), EVENT_DTYPE)


def counted_by_nanosecond(records: Any, duration_ns: int) -> dict[tuple[int, int], list[float]]:
    """A queue's length in each nanosecond, and its packets."""
    found: dict[tuple[int, int], list[float]] = defaultdict(lambda: [0, 1 << 40, 0, -1, *[0] * len(SUMS)])
    for queue in {int(number) for number in records["id"]}:
        level, now = 0, 0
        events = [*records[records["id"] == queue]]
        for event in [*events, None]:
            until = duration_ns if event is None else int(event["time_ns"])
            for instant in range(now, until):
                row = found[queue, instant // WIDTH_NS]
                row[:4] = row[0] + 1, min(row[1], level), row[2] + level, max(row[3], level)
            if event is not None:
                level, now = int(event["queue_bytes"]), until
                row = found[queue, max(until - 1, 0) // WIDTH_NS]
                row[1], row[3] = min(row[1], level), max(row[3], level)
                operation = OPERATIONS[event["op"]]
                row[4] += operation == "dequeue"
                row[5] += int(event["bytes"]) * (operation == "dequeue")
                row[6] += operation == "drop"
                row[7] += operation == "mark"
    return found


@given(packets(), st.integers(1, 9))
@settings(max_examples=50, deadline=None, derandomize=True, database=None)
def test_columns_equal_the_packets(records: Any, piece: int) -> None:
    duration_ns = 30 * WIDTH_NS
    parser = Packets(WIDTH_NS, duration_ns)
    fields = ("time_ns", "op", "bytes", "queue_bytes")
    found = []
    for at in range(0, len(records), piece):
        part = records[at : at + piece]
        found.append(parser.columns({"queue": part["id"], **{name: part[name] for name in fields}}))
    found.append(parser.rest())
    expected = counted_by_nanosecond(records, duration_ns)
    assert same(together([columns for columns in found if columns]), expected, len(found) + 1)
    assert parser.rest() == {}


def test_packets_of_a_guest_in_any_order_cost_no_memory() -> None:
    records = np.zeros(1_000, EVENT_DTYPE)
    records["op"], records["time_ns"][::2] = 1, COLUMNS * WIDTH_NS - 1
    records["time_ns"][500:510] = -5
    fields = {name: records[name] for name in ("time_ns", "op", "bytes", "queue_bytes")}
    found = Packets(WIDTH_NS, 1 << 40).columns({"queue": records["id"], **fields})
    assert len(found["bin"]) <= COLUMNS and max(found["bin"]) == COLUMNS - 1
