# SPDX-License-Identifier: Apache-2.0
"""Windows: what a lab file may say, what the plan has of it, and sums that add up to the whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic import bound, histogram, write_out

from qbed.base.errors import LabError
from qbed.cells.store_cell import store_cell
from qbed.config.source import parse
from qbed.network.load import lab_from_source
from qbed.plan.compile import compile_lab
from qbed.plan.model import Plan
from qbed.telemetry.records import RecordError
from qbed.telemetry.tables import CELL_SCHEMAS

LAB = """\
name: small
topology: {star: {hosts: 2}}
links: {default: {rate: 10 Gbit/s, delay: 5 us}}
switches: {default: {scheme: droptail, buffer: 128 KB}}
workload: [flow: {from: h1, to: h2, size: 1 MB, start: 1 ms}]
observe: OBSERVE
duration: 10 ms
"""


def plan(observe: str) -> Plan:
    return compile_lab(lab_from_source(parse(LAB.replace("OBSERVE", observe), file="lab.yml")), 1)


def windows(observe: str) -> list[tuple[str, int, int]]:
    return [(w.name, w.from_ns, w.until_ns) for w in plan(observe).windows]


def test_windows_of_a_plan() -> None:
    assert windows("{from: 2 ms}") == [("main", 2_000_000, 10_000_000)]
    assert windows("{until: 2 ms}") == [("main", 0, 2_000_000)]
    several = "{from: 1 ms, until: 3 ms, windows: {late: {from: 9 ms}, all: {}}}"
    assert windows(several) == [("main", 1_000_000, 3_000_000), ("late", 9_000_000, 10_000_000), ("all", 0, 10_000_000)]
    assert plan(several).bounds_ns == [0, 1_000_000, 3_000_000, 9_000_000, 10_000_000]
    assert Plan.loads(plan(several).dumps()) == plan(several)


def test_a_plan_without_windows_does_not_speak_of_them() -> None:
    assert "windows" not in plan("{}").dumps()


@pytest.mark.parametrize(
    ("observe", "message"),
    [
        ("{from: 10 ms}", "lab.yml:6:17: observe.from: begins at 10 ms, but the lab ends at 10 ms"),
        ("{until: 11 ms}", "lab.yml:6:18: observe.until: 11 ms is after the lab's end at 10 ms"),
        (
            "{from: 2 ms, until: 1 ms}",
            "observe.until: expected a time after the window's beginning at 2 ms",
        ),
        (
            "{windows: {a: {from: 1 ms, untill: 2 ms}}}",
            "windows.a.untill: unknown field; did you mean `until`?",
        ),
        ("{windows: {a: {from: 3 ms, until: 3 ms}}}", "observe.windows.a.until: expected a time after the window's"),
        ("{windows: {a b: {}}}", 'observe.windows."a b": expected a name of letters, digits, `-` and `_`, got `a b`'),
        ("{from: 1 ms, windows: {main: {}}}", "observe.windows.main: `from` and `until` of `observe` are the window"),
        ("{from: 1}", "lab.yml:6:17: observe.from: expected a duration such as `5 us`, got `1`"),
    ],
)
def test_errors_name_the_field(observe: str, message: str) -> None:
    with pytest.raises(LabError) as error:
        plan(observe)
    assert len(error.value.messages) == 1 and message in error.value.messages[0]


def table(folder: Path, name: str) -> list[dict[str, Any]]:
    with pa.memory_map(str(folder / f"{name}.arrow")) as file:
        rows: list[dict[str, Any]] = pa.ipc.open_stream(file).read_all().to_pylist()
    return rows


def cell(tmp_path: Path, given_plan: Plan) -> Path:
    into = tmp_path / "tables"
    into.mkdir()
    store_cell(tmp_path, given_plan, into)
    return into


THREE = "{windows: {before: {until: 3 ms}, behind: {from: 3 ms}, whole: {}}}"


def test_parts_add_up_to_the_whole(tmp_path: Path) -> None:
    lab = plan(THREE)
    write_out(lab, tmp_path)
    out = tmp_path / "out"
    taps = (out / "taps.bin").read_bytes()
    # One queue that had 4 packets when the second window began, and dropped 2 in the first one, 5 in the second.
    readings = {0: (0, 0, 0, [0]), 3_000_000: (100, 2, 4, [10, 5]), 10_000_000: (900, 7, 0, [10, 20, 1, 0])}
    for at, (offered, dropped, waiting, ns) in readings.items():
        counts = {"offered_packets": offered, "dropped_packets": dropped, "queue_packets": waiting}
        counts |= {"sent_packets": offered - dropped - waiting, "duration_ns": at, "max_packets": at // 1_000_000}
        taps += bound(0, at, **counts) + histogram(0, at, 1514, ns, at_bound=True)
    (out / "taps.bin").write_bytes(taps)
    row = json.loads((out / "flows.ndjson").read_text())
    assert row["received_bytes"] == 1_000_000 and row["end_ns"] < 3_000_000
    (out / "flows.ndjson").write_text(json.dumps(row | {"end_ns": 4_000_000}) + "\n")
    (out / "windows.ndjson").write_text(json.dumps({"time_ns": 3_000_000, "flow": 0, "received_bytes": 400_000}) + "\n")
    folder = cell(tmp_path, lab)
    queues = {found["span"]: found for found in table(folder, "queue_windows") if found["queue"] == 0}
    before, behind, complete = (queues[name] for name in ("before", "behind", "whole"))
    for name in ("offered_packets", "sent_packets", "dropped_packets", "duration_ns"):
        assert before[name] + behind[name] == complete[name]
    assert (before["dropped_packets"], behind["dropped_packets"]) == (2, 5)
    assert (behind["start_queue_packets"], behind["queue_packets"], complete["start_queue_packets"]) == (4, 0, 0)
    assert [found["max_packets"] for found in (before, behind, complete)] == [3, 10, 10]
    assert [found["histogram_ns"] for found in (before, behind, complete)] == [[10, 5], [0, 15, 1], [10, 20, 1]]
    flows = {found["span"]: found for found in table(folder, "flow_windows")}
    assert {name: found["received_bytes"] for name, found in flows.items()} == {
        "before": 400_000, "behind": 600_000, "whole": 1_000_000,
    }  # fmt: skip
    assert [flows[name]["active_ns"] for name in ("before", "behind", "whole")] == [2_000_000, 1_000_000, 3_000_000]
    assert flows["behind"]["goodput_bps"] == 600_000 * 8 * 1000
    sums = {found["span"]: found for found in table(folder, "windows")}
    assert (sums["behind"]["flows_started"], sums["behind"]["flows_complete"]) == (0, 1)
    assert sums["behind"]["goodput_bps"] == pytest.approx(600_000 * 8 / 7e-3)
    assert (sums["whole"]["dropped_packets"], sums["before"]["flows_started"]) == (7, 1)


def test_a_bound_without_a_record_is_an_error(tmp_path: Path) -> None:
    write_out(plan("{}"), tmp_path)
    with pytest.raises(RecordError, match="queue 0 lacks 1000000 ns"):
        cell(tmp_path, plan("{from: 1 ms}"))


def test_a_bound_that_no_window_has_is_refused(tmp_path: Path) -> None:
    write_out(plan("{from: 1 ms}"), tmp_path)
    with pytest.raises(RecordError, match="queue 0 has a record at 1000000 ns"):
        cell(tmp_path, plan("{from: 2 ms}"))


def test_tables_are_there_only_where_windows_are(tmp_path: Path) -> None:
    lab = plan("{}")
    write_out(lab, tmp_path)
    names = {path.stem for path in cell(tmp_path, lab).glob("*.arrow")}
    assert names and not [name for name in names if "windows" in name]
    assert {"windows", "queue_windows", "flow_windows"} <= CELL_SCHEMAS.keys()


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 10)), max_size=12))
def test_any_windows_are_carried_out_or_refused(spans: list[tuple[int, int]]) -> None:
    listed = ", ".join(f"w{i}: {{from: {start} ms, until: {end} ms}}" for i, (start, end) in enumerate(spans))
    if all(start < end for start, end in spans):
        assert windows(f"{{windows: {{{listed}}}}}") == [
            (f"w{i}", start * 1_000_000, end * 1_000_000) for i, (start, end) in enumerate(spans)
        ]
    else:
        with pytest.raises(LabError):
            plan(f"{{windows: {{{listed}}}}}")
