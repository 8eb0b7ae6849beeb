# SPDX-License-Identifier: Apache-2.0
"""The dashboards are as their code says, and every query of every panel has an answer of the right shape from a real
InfluxDB, with the variables filled in as Grafana does.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import yaml
from influx import Server, served

from qbed.live.grafana import texts
from qbed.live.grafana_panels import SOURCE
from qbed.live.points import (
    EPOCH_NS,
    MAX_FLOWS,
    STRETCH,
    TAGS,
    Origin,
    Points,
    Queue,
    claim_points,
    flow_points,
    machine_points,
    queue_points,
    result_points,
    total_points,
)
from qbed.live.sinks.influx import Influx
from qbed.schemes.declaration import registry
from qbed.telemetry import tables

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "dashboards"
BEGUN_NS = 1_700_000_000 * 10**9
ORIGIN = Origin("look", "look-1", BEGUN_NS, 3)
QUEUES = [Queue("s1", f"s1>{name} (eth/{index}.0)", name) for index, name in enumerate(registry())]
STEP_NS = 10_000
SAMPLES = 500


def table(name: str, rows: list[dict[str, Any]]) -> Any:
    return pa.Table.from_pylist(rows, schema=tables.CELL_SCHEMAS[name])


def all_points() -> Iterator[Points]:
    """Points of every measurement, of a cell with a queue of every scheme, sampled every 10 us."""
    rows: list[dict[str, Any]] = [
        dict[str, Any].fromkeys(tables.CELL_SCHEMAS["queue_series"].names, 0)
        | {"queue": queue, "port": QUEUES[queue].port, "time_ns": (step + 1) * STEP_NS, "interval_ns": STEP_NS}
        | {"mean_packets": float(step), "mean_bytes": 1514.0 * step, "max_packets": step, "dequeued": 8}
        | {"marked": step % 2, "dropped": int(step % 3 == 0)}
        for queue in range(len(QUEUES))
        for step in range(SAMPLES)
    ]
    yield queue_points(table("queue_series", rows), ORIGIN, QUEUES)
    times = range(STEP_NS, SAMPLES * STEP_NS, 100_000)
    kinds: dict[str, dict[str, Any]] = {
        "tcp_info": {"cwnd": 10, "rtt_ns": 20_000, "state": "open"},
        "rates": {"rate_bps": 10**9},
    }
    for index, (name, values) in enumerate(kinds.items()):
        flows = [{"flow": index, "time_ns": at, "acked_bytes": at // 8, **values} for at in times]
        yield flow_points(table(name, [*flows, {"flow": MAX_FLOWS, "time_ns": 1}]), ORIGIN)
    queues = [
        {
            "queue": index, "node": queue.node, "port": queue.port, "discipline": queue.scheme,
            "rate_bps": 10**9, "duration_ns": 10**6, "sent_bytes": 125_000 // 2,
            "xstats": [(statistic.name, 7.0) for statistic in registry()[queue.scheme].statistics] or None,
            **dict.fromkeys(("sent_packets", "max_bytes", "dropped_packets", "marked_packets"), 5),
        }
        for index, queue in enumerate(QUEUES)
    ]  # fmt: skip
    yield from total_points(table("queues", queues), ORIGIN)
    row: dict[str, Any] = {
        "status": "complete",
        "seed": 1,
        "scheme": "ecn",
        "flows": 2,
        "goodput_bps": 1e9,
        "dropped_packets": 1,
    }
    row |= {"marked_packets": 3, "evidence": json.dumps({"wall": {"late_p99_ns": 2500}})}
    flows = [{"fct_ns": took, "slowdown": 1.5, "goodput_bps": 8e9 / took} for took in (1_000_000, 3_000_000)]
    yield result_points(row, table("flows", flows), table("queues", queues), ["scheme", "seed"], ORIGIN)
    verdict = {
        "name": "c",
        "verdict": "holds",
        "expect": "holds",
        "contradicted": False,
        "paper": 'It "holds",\nalways',
    }
    yield claim_points([verdict], ORIGIN)
    numbers = ("cells_running", "cells_ended", "cells_waiting", "load", "cores", "memory_free_bytes", "disk_free_bytes")
    for second in range(60):
        measured = dict.fromkeys(numbers, 1.0) | {"stolen_s": second / 10}
        yield machine_points(measured, "a-host", ORIGIN, BEGUN_NS + second * 10**9)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with served(tmp_path_factory.mktemp("influx")) as server:
        sink: Influx = server.sink("qbed")
        for points in all_points():
            sink.write(sink.encode(points))
        yield server


def dashboards() -> dict[str, dict[str, Any]]:
    return {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}


def test_the_dashboards_are_up_to_date() -> None:
    assert {path.name: path.read_text() for path in FOLDER.glob("*.json")} == texts(), "make generate"


def test_grafana_would_find_them() -> None:
    found = dashboards()
    assert len({dashboard["uid"] for dashboard in found.values()}) == len(found) == 4
    source = yaml.safe_load((FOLDER / "provisioning/datasources/qbed.yml").read_text())["datasources"][0]
    assert {name: source[name] for name in ("type", "uid")} == SOURCE
    assert "a microsecond of the lab" in found["live"]["panels"][0]["options"]["content"]
    for dashboard in found.values():
        places = [panel["gridPos"] for panel in dashboard["panels"]]
        cells = [(x, y) for p in places for x in range(p["x"], p["x"] + p["w"]) for y in range(p["y"], p["y"] + p["h"])]
        assert len(cells) == len(set(cells)) and max(x for x, _ in cells) < 24, dashboard["title"]
        assert len({panel["id"] for panel in dashboard["panels"]}) == len(places)


# Required and optional fields of objects of Grafana 12.1, from its public schema (packages/grafana-schema: the kind
# Dashboard, and of each kind of panel its options and its field configuration), for the objects of these dashboards.
MUST_MAY = {
    "dashboard": (
        "schemaVersion",
        "annotations description editable fiscalYearStartMonth graphTooltip id links liveNow panels preload refresh"
        " snapshot tags templating time timepicker timezone title uid version weekStart",
    ),
    "timepicker": ("", "hidden nowDelay quick_ranges refresh_intervals"),
    "link": ("asDropdown icon includeVars keepTime tags targetBlank title tooltip type", "placement url"),
    "variable": (
        "name type",
        "allValue allowCustomValue current datasource description hide includeAll label multi options query refresh"
        " regex skipUrlSync sort staticOptions",
    ),
    "current": ("text value", "selected"),
    "panel": (
        "type",
        "cacheTimeout datasource description fieldConfig gridPos hideTimeOverride id interval libraryPanel links"
        " maxDataPoints maxPerRow options pluginVersion queryCachingTTL repeat repeatDirection targets timeFrom"
        " timeShift title transformations transparent",
    ),
    "gridPos": ("h w x y", "static"),
    "fieldConfig": ("defaults overrides", ""),
    "defaults": (
        "",
        "actions color custom decimals description displayName displayNameFromDS fieldMinMax filterable links mappings"
        " max min noValue path thresholds unit writeable",
    ),
    "legend": ("calcs displayMode placement showLegend", "asTable isVisible sortBy sortDesc width"),
    "tooltip": ("mode sort", "hideZeros maxHeight maxWidth"),
    "reduceOptions": ("calcs", "fields limit values"),
    "options of timeseries": ("legend tooltip", "orientation timezone"),
    "options of state-timeline": ("legend tooltip rowHeight showValue", "alignValue mergeValues perPage timezone"),
    "options of table": ("frameIndex showHeader", "cellHeight enablePagination footer showTypeIcons sortBy"),
    "options of bargauge": (
        "displayMode legend maxVizHeight minVizHeight minVizWidth namePlacement orientation reduceOptions showUnfilled"
        " sizing valueMode",
        "text",
    ),
    "options of text": ("content mode", "code"),
    "custom of table": (
        "align cellOptions inspect", "filterable hidden hideHeader minWidth width wrapHeaderText",
    ),
    "custom of timeseries": ("", "lineWidth showPoints spanNulls"),
    "custom of state-timeline": ("", "fillOpacity hideFrom lineWidth"),
    "custom of bargauge": ("", ""),
}  # fmt: skip


def objects(dashboard: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects of a dashboard, with what they are."""
    yield "dashboard", dashboard
    yield "timepicker", dashboard["timepicker"]
    yield from (("link", link) for link in dashboard["links"])
    for variable in dashboard["templating"]["list"]:
        yield "variable", variable
        yield from (("current", variable["current"]) for _ in range("current" in variable))
    for panel in dashboard["panels"]:
        kind, options = panel["type"], panel["options"]
        yield "panel", panel
        yield "gridPos", panel["gridPos"]
        yield f"options of {kind}", options
        yield from ((name, options[name]) for name in ("legend", "tooltip", "reduceOptions") if name in options)
        if "fieldConfig" in panel:
            yield "fieldConfig", panel["fieldConfig"]
            yield "defaults", panel["fieldConfig"]["defaults"]
            yield f"custom of {kind}", panel["fieldConfig"]["defaults"]["custom"]


@pytest.mark.parametrize("name", sorted(dashboards()))
def test_every_object_has_what_grafanas_schema_requires_and_nothing_else(name: str) -> None:
    for kind, found in objects(dashboards()[name]):
        must, may = (set(names.split()) for names in MUST_MAY[kind])
        assert must <= set(found), (kind, must - set(found))
        assert set(found) <= must | may, (kind, set(found) - must - may)
    for target in (target for panel in dashboards()[name]["panels"] for target in panel.get("targets", ())):
        assert target["refId"] and target["datasource"] == SOURCE


def filled(query: str, chosen: Mapping[str, str], span: str, interval: str = "10ms") -> str:
    def value(match: re.Match[str]) -> str:
        selected = chosen[match[1]]
        return ".*" if selected == "$__all" else re.sub(r"([.*+?^${}()|[\]\\/])", r"\\\1", selected)

    query = re.sub(r"\$\{(\w+):regex\}", value, query)
    query = query.replace("$timeFilter", span).replace("$__interval", interval)
    assert "$" not in query.replace("$/", ""), query
    return query


def spans(dashboard: dict[str, Any]) -> str:
    if dashboard["time"]["to"] == "now":
        return f"time >= {BEGUN_NS - 10**9} and time <= {BEGUN_NS + 3600 * 10**9}"
    return f"time >= '{dashboard['time']['from']}' and time <= '{dashboard['time']['to']}'"


def choices(server: Server, dashboard: dict[str, Any], *, all_: bool) -> dict[str, str]:
    """Grafana's selection: the first of each variable's values, or all of them."""
    chosen: dict[str, str] = {}
    for variable in dashboard["templating"]["list"]:
        values = [row["value"] for row in server.query(filled(variable["query"], chosen, ""), "qbed")]
        assert values, variable["query"]
        chosen[variable["name"]] = "$__all" if all_ and variable["includeAll"] else sorted(values)[0]
    return chosen


@pytest.mark.parametrize("name", sorted(dashboards()))
@pytest.mark.parametrize("all_", [True, False])
def test_every_query_of_every_panel_has_an_answer(server: Server, name: str, all_: bool) -> None:
    dashboard = dashboards()[name]
    chosen = choices(server, dashboard, all_=all_)
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            rows = server.query(filled(target["query"], chosen, spans(dashboard)), "qbed")
            assert rows, (panel["title"], target["query"])
            if panel["type"] == "table":
                assert all(len(row) > 2 for row in rows), panel["title"]
            else:
                fields = {key for row in rows for key in row if key != "time" and key not in sum(TAGS.values(), ())}
                assert len(fields) == 1 and all(isinstance(row[next(iter(fields))], int | float) for row in rows)
            for tag in re.findall(r"\$tag_(\w+)", target.get("alias", "")):
                assert tag in rows[0], (panel["title"], target["alias"])


def test_samples_every_10_us_are_all_there_and_differ(server: Server) -> None:
    """Truncation to milliseconds loses no point: as many points as samples, in their order."""
    dashboard = dashboards()["live"]
    occupancy = next(panel for panel in dashboard["panels"] if panel["title"] == "Occupancy, packets")
    chosen = choices(server, dashboard, all_=False)
    rows = server.query(filled(occupancy["targets"][0]["query"], chosen, spans(dashboard)), "qbed")
    assert [row["time"] // 10**6 for row in rows] == [
        EPOCH_NS // 10**6 + (step + 1) * STEP_NS * STRETCH // 10**6 for step in range(SAMPLES)
    ]
    assert [row["mean"] for row in rows] == list(np.arange(SAMPLES))
    through = next(panel for panel in dashboard["panels"] if panel["title"] == "Packets through the link")
    rows = server.query(filled(through["targets"][0]["query"], chosen, spans(dashboard), "1s"), "qbed")
    assert {round(value) for row in rows for key, value in row.items() if key.startswith("sum")} == {800_000}


def test_a_run_can_be_deleted(tmp_path: Path, server: Server) -> None:
    sink = server.sink("deleted")
    other = Origin("look", "look-2", time.time_ns())
    for run in (ORIGIN, other):
        points = queue_points(table("queue_series", [{"queue": 0, "time_ns": 1}]), run, QUEUES)
        sink.write(sink.encode(points))
    server.query("DROP SERIES WHERE \"run\" = 'look-1'", "deleted")
    assert [row["value"] for row in server.query('SHOW TAG VALUES WITH KEY = "run"', "deleted")] == ["look-2"]


def test_no_field_has_a_tags_name() -> None:
    """InfluxDB 3 refuses what has; a scheme's statistics are fields."""
    wrong = [
        (points.measurement, name)
        for points in all_points()
        for name in points.fields
        if name in TAGS[points.measurement] or name == "time"
    ]
    tags = [
        set(names) for points in all_points() for names in points.tags if set(names) != set(TAGS[points.measurement])
    ]
    assert (wrong, tags) == ([], [])
