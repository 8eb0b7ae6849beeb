# SPDX-License-Identifier: Apache-2.0
"""Sums of recorded packets equal the samples that the tap would have made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from qbed.cells.arrow import CellFile
from qbed.live import sums
from qbed.live.sums import sums_of
from qbed.telemetry.tables import CELL_SCHEMAS

MS = 1_000_000


def events(*rows: tuple[int, int, str, int, int]) -> list[dict[str, Any]]:
    """Rows of `queue_events`: queue, time, operation, packets and bytes in the queue after it; each packet is 100 B."""
    names = ("queue", "time_ns", "op", "queue_packets", "queue_bytes")
    return [
        dict(zip(names, row, strict=True))
        | {"port": f"s1>h{row[0]}", "bytes": 100, "saddr": bytes(16), "daddr": bytes(16)}
        for row in rows
    ]


def stored(folder: Path, rows: list[dict[str, Any]]) -> None:
    with CellFile(folder / "queue_events.arrow") as file:
        file.add(pa.Table.from_pylist(rows, schema=CELL_SCHEMAS["queue_events"]))


def test_each_interval_has_its_counts_levels_and_means(tmp_path: Path) -> None:
    rows = events(
        (0, 5 * MS, "enqueue", 1, 100),
        (0, 5 * MS + 500_000, "enqueue", 2, 200),
        (0, 6 * MS, "drop", 2, 200),
        (0, 7 * MS + 250_000, "mark", 2, 200),
        (0, 7 * MS + 250_000, "dequeue", 1, 100),
        (0, 7 * MS + 750_000, "dequeue", 0, 0),
        (1, 5 * MS, "enqueue", 9, 900),
    )
    stored(tmp_path, rows)
    (found,) = sums_of(tmp_path, 0, {1})
    assert found.schema.equals(CELL_SCHEMAS["queue_series"]) and set(found["port"].to_pylist()) == {"s1>h0"}
    columns = (
        *("time_ns", "interval_ns", "mean_packets", "mean_bytes", "min_packets", "max_packets"),
        *("enqueued", "dequeued", "dropped", "marked", "dequeued_bytes"),
    )
    assert [tuple(row[name] for name in columns) for row in found.to_pylist()] == [
        (6 * MS, MS, 1.5, 150.0, 0, 2, 2, 0, 0, 0, 0),
        (7 * MS, MS, 2.0, 200.0, 2, 2, 0, 0, 1, 0, 0),
        (8 * MS, MS, 1.0, 100.0, 0, 2, 0, 2, 0, 1, 200),
    ]


def test_the_number_of_rows_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sums, "MAX_ROWS", 10)
    rows = events(*((queue, at * MS, "enqueue", 1, 100) for at in range(100) for queue in range(3)))
    stored(tmp_path, rows)
    found = list(sums_of(tmp_path, 0, set()))
    assert [table.num_rows for table in found] == [4, 4, 4] and sum(found[0]["enqueued"].to_pylist()) == 100
    assert set(found[0]["interval_ns"].to_pylist()) == {30 * MS}


def test_a_cell_without_recorded_packets_has_no_sums(tmp_path: Path) -> None:
    assert list(sums_of(tmp_path, 0, set())) == []
