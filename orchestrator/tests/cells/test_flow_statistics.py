# SPDX-License-Identifier: Apache-2.0
"""The table `flow_statistics`, from records of the agent and the layout of congestion.yml."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qbed.cells.flow_statistics import FlowStatistics
from qbed.schemes.congestion import congestion_controls
from qbed.telemetry.flow_samples import ABSENT, DTYPES, STATISTICS, FlowSampleTail
from qbed.telemetry.records import RecordError

DECLARATIONS = {
    "cuts": "[{name: cuts, type: u32, unit: cuts, help: C.}, {name: grown, type: u32, unit: segments, help: G.}]",
    "wide": "[{name: marks, type: u32, unit: marks, help: M.}, {name: idle, unit: ns, help: I.}]",
}


@pytest.fixture(autouse=True)
def controls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two congestion controls with statistics."""
    monkeypatch.setenv("QBED_CONGESTION", str(tmp_path))
    for name, statistics in DECLARATIONS.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "congestion.yml").write_text(f"name: {name}\ntitle: T\nhelp: H.\nstatistics: {statistics}\n")
    assert list(congestion_controls()) == ["cuts", "wide"]
    yield


def record(flow: int, time_ns: int, control: int, layout: str, *values: int) -> bytes:
    payload = struct.pack(layout, *values)
    words = struct.unpack("<5I", payload.ljust(20, b"\0"))
    body = struct.pack("<10q", control, len(payload), *words, ABSENT, ABSENT, ABSENT)
    return struct.pack("<HHIq", 3, 96, flow, time_ns) + body


def rows(statistics: FlowStatistics, data: bytes) -> list[dict[str, Any]]:
    ((name, records),) = FlowSampleTail().feed(data)
    assert name == STATISTICS
    found: list[dict[str, Any]] = statistics.table(records).to_pylist()
    return found


def row(flow: int, control: str, time_ns: int, statistic: str, value: int) -> dict[str, Any]:
    return {
        "flow": flow, "congestion_control": control, "time_ns": time_ns, "statistic": statistic, "value": value,
    }  # fmt: skip


def test_records_of_two_controls_become_rows_in_the_order_of_time() -> None:
    data = (
        record(7, 10, 0, "<2I", 1, 2**32 - 1)
        + record(8, 10, 1, "<I4xQ", 3, 2**40 + 5)
        + record(7, 20, 0, "<2I", 2, 0)
        + record(8, 20, 1, "<I4xQ", 4, 2**64 - 1)
    )
    statistics = FlowStatistics(["cuts", "wide"])
    assert rows(statistics, data) == [
        row(7, "cuts", 10, "cuts", 1),
        row(7, "cuts", 10, "grown", 2**32 - 1),
        row(8, "wide", 10, "marks", 3),
        row(8, "wide", 10, "idle", 2**40 + 5),
        row(7, "cuts", 20, "cuts", 2),
        row(7, "cuts", 20, "grown", 0),
        row(8, "wide", 20, "marks", 4),
        row(8, "wide", 20, "idle", 2**63 - 1),
    ]
    assert statistics.warnings == []


def test_a_module_that_reports_other_statistics_is_a_warning() -> None:
    statistics = FlowStatistics(["cuts", "wide"])
    data = record(1, 10, 0, "") + record(2, 10, 1, "<I4xQ", 3, 4)
    assert [found["flow"] for found in rows(statistics, data + data)] == [2, 2, 2, 2]
    (warning,) = statistics.warnings
    assert warning.startswith("`get_info` of tcp_cuts returns 0 bytes of statistics, congestion.yml declares 8")


@pytest.mark.parametrize("control", [2, -1])
def test_a_control_that_the_plan_does_not_have_is_an_error(control: int) -> None:
    with pytest.raises(RecordError, match="a congestion control that the plan does not have"):
        rows(FlowStatistics(["cuts", "wide"]), record(1, 10, control, "<2I", 1, 2))


def test_no_record_is_an_empty_table() -> None:
    assert FlowStatistics([]).table(np.zeros(0, DTYPES[STATISTICS])).num_rows == 0
