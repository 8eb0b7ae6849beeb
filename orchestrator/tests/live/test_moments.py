# SPDX-License-Identifier: Apache-2.0
"""The events of a cell: from its plan while it runs, from its tables afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from campaigns import LAB, write_lab

from qbed.cells.arrow import CellFile
from qbed.live.moments import MAX_EVENTS, event_points, measured_moments, planned_moments
from qbed.live.points import Origin
from qbed.network.load import load_lab
from qbed.plan.compile import compile_lab
from qbed.telemetry.tables import CELL_SCHEMAS

ORIGIN = Origin("c", "c-1", 0)


def stored(folder: Path, name: str, rows: list[dict[str, Any]]) -> pa.Table:
    table = pa.Table.from_pylist(rows, schema=CELL_SCHEMAS[name])
    with CellFile(folder / f"{name}.arrow") as file:
        file.add(table)
    return table


def test_flows_the_first_drop_and_timeouts_are_events(tmp_path: Path) -> None:
    flows = stored(
        tmp_path, "flows",
        [{"flow": 0, "src": "h1", "dst": "h2", "start_ns": 5, "end_ns": 90},
         {"flow": 1, "src": "h3", "dst": "h2", "start_ns": 5, "end_ns": None}],
    )  # fmt: skip
    packet = {"saddr": bytes(16), "daddr": bytes(16), "queue": 0}
    drops = [(30, "s1>h3", "enqueue"), (50, "s1>h2", "drop"), (40, "s1>h2", "drop")]
    stored(tmp_path, "queue_events", [packet | dict(zip(("time_ns", "port", "op"), row, strict=True)) for row in drops])
    states = [(0, 10, "open"), (0, 20, "loss"), (0, 30, "loss"), (0, 40, "open"), (0, 50, "loss"), (1, 50, "recovery")]
    stored(tmp_path, "tcp_info", [dict(zip(("flow", "time_ns", "state"), row, strict=True)) for row in states])
    rates = [(1, 10, 0), (1, 20, 2), (1, 30, 2)]
    stored(tmp_path, "rates", [dict(zip(("flow", "time_ns", "timeouts"), row, strict=True)) for row in rates])
    assert sorted(measured_moments(tmp_path, 0, flows)) == [
        (5, "flow start", "h1>h2"), (5, "flow start", "h3>h2"), (20, "timeout", "h1>h2"), (20, "timeout", "h3>h2"),
        (40, "first drop", "s1>h2"), (50, "timeout", "h1>h2"), (90, "flow end", "h1>h2"),
    ]  # fmt: skip


def test_events_of_the_lab_file_are_known_when_the_cell_begins(tmp_path: Path) -> None:
    lab = LAB + "events:\n  - {at: 5 ms, link: s1-s2, state: down}\n  - {at: 9 ms, link: s1-s2, state: up}\n"
    plan = compile_lab(load_lab(write_lab(tmp_path, lab=lab)))
    assert list(planned_moments(plan)) == [(5_000_000, "link", "s1-s2 down"), (9_000_000, "link", "s1-s2 up")]


def test_the_number_of_events_is_bounded() -> None:
    points = event_points([(time, kind, "x") for time in range(1000) for kind in ("flow start", "flow end")], ORIGIN)
    assert points is not None and len(points) == 2 * MAX_EVENTS and max(points.time_ns.to_pylist()) < 10**18
    assert event_points([], ORIGIN) is None
