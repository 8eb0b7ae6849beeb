# SPDX-License-Identifier: Apache-2.0
"""Results as points: links' use, spans, limits and the progress of a run."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from qbed.live.points import Origin
from qbed.live.results import (
    MAX_STATISTICS,
    active_span,
    effective_parameters,
    limit_points,
    panel_ms,
    planned_points,
    run_points,
    total_points,
)
from qbed.telemetry.tables import CELL_SCHEMAS

ORIGIN = Origin("c", "c-1", 0)
MS = 1_000_000


def flows(*rows: tuple[int, int | None]) -> pa.Table:
    named = [{"start_ns": start, "end_ns": end} for start, end in rows]
    return pa.Table.from_pylist(named, schema=CELL_SCHEMAS["flows"])


def test_a_cell_is_as_long_as_its_flows() -> None:
    row = {"duration_ns": 100 * MS, "end_ns": 100 * MS}
    assert active_span(flows((10 * MS, 12 * MS), (11 * MS, 16 * MS)), row) == (10 * MS, 16 * MS, 6 * MS)
    assert active_span(flows((10 * MS, 12 * MS), (11 * MS, None)), row) == (10 * MS, 100 * MS, 90 * MS)
    assert active_span(flows(), row) == active_span(None, row) == (0, 100 * MS, 100 * MS)


def test_the_range_and_interval_of_a_panel_follow_from_the_length() -> None:
    fields = {name: array[0].as_py() for name, array in planned_points(20_000 * MS, ORIGIN).fields.items()}
    assert fields["end_ms"] - fields["begin_ms"] == 20_000_000 == 400 * fields["bin_ms"]
    assert (fields["first_ms"] - fields["begin_ms"], fields["end_ms"] - fields["last_ms"]) == (10_000, 10_000)
    assert fields["begin_ms"] == panel_ms(0)


def test_limits_are_those_that_apply_to_the_cell() -> None:
    content: dict[str, Any] = {
        "groups": [
            {"name": "switch ports", "parameters": [
                {"name": "threshold", "lines": [
                    {"where": "scheme ecn, red; hosts linux", "value": "40 packets", "packets": 40, "bytes": 6e4},
                    {"where": "scheme abq", "value": "20 packets", "packets": 20, "bytes": 3e4, "time_ns": 1000},
                ]},
                {"name": "buffer", "lines": [{"where": "", "value": "128 KB", "packets": 84.5, "bytes": 128e3}]},
                {"name": "scheme", "lines": [{"where": "", "value": "ecn"}]},
            ]},
            {"name": "TCP", "parameters": [{"name": "window", "lines": [{"where": "", "value": "2", "packets": 2}]}]},
        ]
    }  # fmt: skip
    parameters = effective_parameters(content)
    found, curves = {}, {}
    for scheme in ("red", "abq"):
        row = {"scheme": scheme, "hosts": "linux", "senders": 20}
        points = limit_points(parameters, row, 7 * MS, row, ORIGIN)
        assert points is not None
        names, packets = [tag["parameter"] for tag in points.tags], points.fields["packets"].to_pylist()
        found[scheme] = dict(zip(names, packets, strict=True))
        assert (points.time_ns[1].as_py() - points.time_ns[0].as_py()) // 1000 == 7 * MS
        assert points.fields["number_senders"].to_pylist() == [20.0] * 4 and "number_scheme" not in points.fields
        curves[scheme] = dict.fromkeys(points.fields["limit_senders"].to_pylist()).keys()
    assert found == {"red": {"threshold": 40, "buffer": 84.5}, "abq": {"threshold": 20, "buffer": 84.5}}
    assert curves == {
        "red": {"limit: threshold (ecn, red; linux)", "limit: buffer"},
        "abq": {"limit: threshold (abq)", "limit: buffer"},
    }
    assert limit_points([], {}, 1, (), ORIGIN) is None


def test_a_limit_that_depends_on_the_axis_is_one_curve_over_it() -> None:
    line = {"value": "", "bytes": 3e4, "time_ns": 1e5, "name": "switch ports: threshold"}
    parameters = [
        line | {"where": f"scheme ecn; senders {senders}", "packets": packets}
        for senders, packets in ((10, 20.0), (20, 40.0))
    ]
    found = []
    for senders in (10, 20):
        row = {"scheme": "ecn", "senders": senders}
        points = limit_points(parameters, row, MS, row, ORIGIN)
        assert points is not None
        found += [points.fields[name][0].as_py() for name in ("limit_senders", "number_senders", "packets")]
    name = "limit: threshold (ecn)"
    assert found == [name, 10.0, 20.0, name, 20.0, 40.0]


def test_axes_of_one_value_are_constant() -> None:
    axes: dict[str, list[Any]] = {"seed": [1], "senders": [10, 20], "scheme": ["a", "b"], "on": [True, False]}
    (points,) = [points for points in run_points(axes, [], ORIGIN) if points.measurement == "axis"]
    assert {tag["axis"]: tag["kind"] for tag in points.tags} == {
        "seed": "constant", "senders": "number", "scheme": "text", "on": "text",
    }  # fmt: skip


def test_a_figure_has_an_axis_for_its_curves() -> None:
    (points,) = [p for p in run_points({"seed": [1], "senders": [10, 20]}, [], ORIGIN) if p.measurement == "axis"]
    assert {tag["axis"]: tag["kind"] for tag in points.tags} == {"seed": "text", "senders": "number"}


def test_statistics_are_bounded_and_of_queues_that_were_used() -> None:
    queue = {
        "node": "s1", "discipline": "ecn", "rate_bps": 10**9, "duration_ns": 10**9, "max_bytes": 0, "mean_bytes": 0.0,
        "sent_bytes": 10**9, "xstats": [(f"s{number}", 1.0) for number in range(10)],
    }  # fmt: skip
    rows = [queue | {"queue": n, "port": f"s1>h{n}", "offered_packets": n % 2} for n in range(1000)]
    totals, statistics = total_points(pa.Table.from_pylist(rows, schema=CELL_SCHEMAS["queues"]), ORIGIN, None)
    assert len(totals) == 1000 and len(statistics) == MAX_STATISTICS
    assert "s1>h0" not in {tag["queue"] for tag in statistics.tags}
    assert totals.fields["use_percent"].to_pylist()[0] == 100 and totals.fields["target"][7].as_py() == "h7"
