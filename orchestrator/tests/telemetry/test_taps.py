# SPDX-License-Identifier: Apache-2.0
"""The tap stream's parser: every record comes out as it went in, and whatever is no tap stream is a TapError."""

from __future__ import annotations

import io
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic import event, header, histogram, sample, sojourn, sojourn_sample, summary

from qbed.telemetry import taps
from qbed.telemetry.sojourn import Sojourn
from qbed.telemetry.taps import Histogram, Run, TapError, read_taps


def kinds(data: bytes, queues: int = 4, chunk: int = 1 << 20) -> list[tuple[str, int]]:
    return [
        ("histogram", len(batch.ns))
        if isinstance(batch, Histogram)
        else (batch.kind, 1 if isinstance(batch, Sojourn) else len(batch.records))
        for batch in read_taps(io.BytesIO(data), queues, 1000, chunk_bytes=chunk)
    ]


def test_fields_come_out_as_they_went_in() -> None:
    data = sample(3, 2_000, 1_000, byte_ns=77, max_packets=9, marked=5) + event(1, -8, 5, packet=12)
    samples, events = read_taps(io.BytesIO(data), 4)
    assert isinstance(samples, Run) and isinstance(events, Run)
    first, second = samples.records[0], events.records[0]
    assert (first["id"], first["time_ns"], first["interval_ns"]) == (3, 2_000, 1_000)
    assert (first["byte_ns"], first["max_packets"], first["marked"], first["dropped"]) == (77, 9, 5, 0)
    assert (second["time_ns"], second["op"], second["packet"], second["sport"], second["dport"]) == (
        -8,
        5,
        12,
        40000,
        5001,
    )
    assert bytes(second["daddr"][:4]) == bytes([10, 0, 0, 5]) and second["tcp_flags"] == 16


def test_runs_are_found_whatever_the_chunk() -> None:
    data = (
        sample(0, 1, 1) * 100
        + event(1, 2, 1, 0) * 37
        + sample(2, 3, 1)
        + histogram(0, 4, 1514, [5, 6, 7])
        + summary(0, 4)
    )
    for chunk in (1, 17, 100, 1 << 20):
        found: dict[str, int] = {}
        for kind, count in kinds(data, chunk=chunk):
            found[kind] = found.get(kind, 0) + count
        assert found == {"samples": 101, "events": 37, "histogram": 3, "summaries": 1}
    assert kinds(data) == [("samples", 100), ("events", 37), ("samples", 1), ("histogram", 3), ("summaries", 1)]


def test_interleaved_samples_and_sojourn_samples_are_two_runs() -> None:
    records = [sojourn_sample(0, 1000 * k, 2, k) + sample(0, 1000 * k, 1000, enqueued=k) for k in range(1, 40)]
    data = b"".join(records) + event(1, 2, 1, 0) + sample(2, 3, 1)
    sojourns, samples, *_ = read_taps(io.BytesIO(data), 4)
    assert isinstance(sojourns, Run) and isinstance(samples, Run)
    assert sojourns.records["packets"].tolist() == samples.records["enqueued"].tolist() == list(range(1, 40))
    assert kinds(data) == [("sojourns", 39), ("samples", 39), ("events", 1), ("samples", 1)]
    for chunk in (1, 63, 64, 100, 161):
        assert [
            sum(n for kind, n in kinds(data, chunk=chunk) if kind == wanted) for wanted in ("sojourns", "samples")
        ] == [
            39,
            40,
        ]
    with pytest.raises(TapError, match="queue 3"):
        kinds(records[0] + sample(3, 5, 1), queues=3)


def test_batches_do_not_reference_the_chunk() -> None:
    data = histogram(0, 5, 1514, [1, 2]) + histogram(0, 5, 1514, [3], at_bound=True) + sojourn(0, 5, 2, {7: 1})
    batches = list(read_taps(io.BytesIO(data), 1))
    kept = [batch.ns for batch in batches if isinstance(batch, Histogram)]
    kept += [batch.counts for batch in batches if isinstance(batch, Sojourn)]
    assert [part.tolist() for part in kept] == [[1, 2], [3], [1]]
    assert all(part.flags.owndata for part in kept)


@pytest.mark.parametrize("rows", [1, 3, 1 << 17])
def test_idle_intervals_expand_into_samples(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taps, "SPREAD_ROWS", rows)
    busy = {
        "byte_ns": 7,
        "min_bytes": 1,
        "max_bytes": 9,
        "enqueued": 4,
        "dequeued": 3,
        "dropped": 2,
        "marked": 1,
        "dequeued_bytes": 4542,
    }
    still = {"byte_ns": 15_000, "packet_ns": 20, "min_bytes": 1500, "max_bytes": 1500}
    still |= {"min_packets": 2, "max_packets": 2}
    held = {"steady_bytes": 1500, "steady_packets": 2}
    runs: tuple[list[tuple[int, int, dict[str, int], int]], ...] = (
        [(0, 10, busy, 0), (1, 10, {}, 3), (0, 20, busy, 2), (2, 20, busy, 0)],
        [(2, 10, {}, 40)],
        [(3, 10, {}, 0)],
    )
    data = b"".join(
        b"".join(
            sample(queue, at, 10, **fields, **(held | {"steady": steady} if steady else {}))
            for queue, at, fields, steady in run
        )
        + summary(0, 0)
        for run in runs
    )
    plain = b"".join(
        sample(queue, at + 10 * number, 10, **(still if number else fields))
        for run in runs
        for queue, at, fields, steady in run
        for number in range(steady + 1)
    )
    found = [batch for batch in read_taps(io.BytesIO(data), 4) if isinstance(batch, Run)]
    samples = [batch.records for batch in found if batch.kind == "samples"]
    assert b"".join(records.tobytes() for records in samples) == plain
    assert max(map(len, samples)) <= rows


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (sample(0, 1, 1)[:-1], "ends inside the record at byte 0"),
        (sample(0, 1, 1) + b"\1", "ends inside the record at byte 96"),
        (sample(7, 1, 1), "names queue 7, but the plan has 4"),
        (header(10, 16, 0, 0), "unknown record type 10"),
        (header(1, 72, 0, 0) + bytes(56), "has 72 bytes, not 96"),
        (event(0, 0, 6, 0), "unknown operation"),
        (sample(0, 1, 1, steady=1000), "has more than 1000 samples"),
        (header(4, 32, 0, 0) + struct.pack("<IIQ", 1514, 2, 0), "has 2 bins"),
        (sojourn(7, 1, 0, {3: 1}), "names queue 7, but the plan has 4"),
        (sojourn(0, 1, 257, {3: 1}), "has class 257"),
        (sojourn(0, 1, 0, {2240: 1}), "has 1 bins from bin 2240 on in 64 bytes"),
        (sojourn(0, 1, 0, {3: 1})[:48] + bytes(16), "has 0 bins from bin 3 on"),
        (header(7, 48, 0, 0) + bytes(32), "has 48 bytes"),
        (sojourn_sample(0, 1, 300, 1), "has class 300"),
        (header(4, 24, 0, 0) + struct.pack("<II", 0, 0), "0 bins of 0 bytes"),
    ],
)
def test_malformed_stream_raises_a_precise_error(data: bytes, message: str) -> None:
    with pytest.raises(TapError, match=message):
        kinds(data)


@given(st.binary(max_size=400), st.integers(1, 200))
def test_garbage_is_a_tap_error(data: bytes, chunk: int) -> None:
    try:
        kinds(data, chunk=chunk)
    except TapError:
        return
    assert not data or len(data) % 8 == 0


RECORD = st.one_of(
    st.builds(sample, st.integers(0, 3), st.integers(-(2**62), 2**62), st.integers(0, 2**62)),
    st.builds(event, st.integers(0, 3), st.integers(-(2**62), 2**62), st.integers(1, 4), st.integers(0, 2**62)),
    st.builds(summary, st.integers(0, 3), st.integers(0, 2**62)),
    st.builds(
        sojourn,
        st.integers(0, 3),
        st.integers(0, 2**62),
        st.integers(0, 256),
        st.dictionaries(st.integers(0, 200), st.integers(0, 2**50), max_size=5),
        at_bound=st.booleans(),
    ),
    st.builds(sojourn_sample, st.integers(0, 3), st.integers(0, 2**62), st.integers(0, 256), st.integers(0, 2**32 - 1)),
    st.builds(
        histogram, st.integers(0, 3), st.integers(0, 2**62), st.just(1514), st.lists(st.integers(0, 2**62), max_size=5)
    ),
)


@given(st.lists(RECORD, max_size=12), st.integers(1, 300), st.integers(0, 2000), st.integers(0, 255))
def test_damage_never_escapes_as_another_error(records: list[bytes], chunk: int, place: int, value: int) -> None:
    stream = b"".join(records)
    assert sum(count if kind != "histogram" else 1 for kind, count in kinds(stream, chunk=chunk)) == len(records)
    damaged = bytearray(stream)
    if place < len(damaged):
        damaged[place] = value
    try:
        kinds(bytes(damaged), chunk=chunk)
    except TapError as error:
        assert str(error)
