# SPDX-License-Identifier: Apache-2.0
"""The dashboards are as their code says, follow Grafana's schema, and every query of every panel has an answer of the
right shape from a real InfluxDB, with the variables filled in as Grafana does.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from dashboard_points import BEGUN_NS, ORIGIN, QUEUES, SAMPLES, STEP_NS, all_points, served_points, table
from dashboards import FOLDER, answers, dashboards, filled, panel, select, spans
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard
from influx import Server

from qbed.live.grafana import texts
from qbed.live.grafana_panels import EPOCH_MS, NEUTRAL, REFRESH, SOURCE
from qbed.live.points import (
    EPOCH_NS,
    STRETCH,
    TAGS,
    Origin,
    queue_points,
)
from qbed.schemes.declaration import registry
from qbed.service.settings import Settings


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with served_points(tmp_path_factory.mktemp("influx")) as server:
        yield server


def panels() -> list[tuple[str, dict[str, Any]]]:
    return [(name, panel) for name, dashboard in dashboards().items() for panel in dashboard["panels"]]


def test_the_dashboards_are_up_to_date() -> None:
    assert {path.name: path.read_text() for path in FOLDER.glob("*.json")} == texts(), "make generate"


def test_grafana_would_find_them() -> None:
    found = dashboards()
    assert len({dashboard["uid"] for dashboard in found.values()}) == len(found) == 5
    source = yaml.safe_load((FOLDER / "provisioning/datasources/qbed.yml").read_text())["datasources"][0]
    assert {name: source[name] for name in ("type", "uid")} == SOURCE
    for dashboard in found.values():
        places = [panel["gridPos"] for panel in dashboard["panels"]]
        cells = [(x, y) for p in places for x in range(p["x"], p["x"] + p["w"]) for y in range(p["y"], p["y"] + p["h"])]
        assert len(cells) == len(set(cells)) and max(x for x, _ in cells) < 24, dashboard["title"]
        assert len({panel["id"] for panel in dashboard["panels"]}) == len(places)


@pytest.mark.parametrize("name", sorted(dashboards()))
def test_nothing_in_a_dashboard_is_unknown_to_grafanas_schema(name: str) -> None:
    """Grafana's types read a dashboard and write it again: all values are there, with the defaults of what is left
    out.
    """
    register_default_plugins()
    text = (FOLDER / f"{name}.json").read_text()
    written = json.loads(JSONEncoder().encode(Dashboard.from_json(json.loads(text))))

    def compare(mine: Any, theirs: Any, where: str) -> None:
        if isinstance(mine, dict):
            for key, value in mine.items():
                assert key in theirs or value is None, f"{where}/{key} is unknown to Grafana"
                compare(value, theirs.get(key), f"{where}/{key}")
        elif isinstance(mine, list):
            assert len(mine) == len(theirs), where
            for number, pair in enumerate(zip(mine, theirs, strict=True)):
                compare(*pair, f"{where}/{number}")
        else:
            assert mine == theirs, where

    compare(json.loads(text), written, name)
    assert written["schemaVersion"] == Dashboard().schema_version
    kinds = {panel["type"] for panel in json.loads(text)["panels"]}
    assert kinds <= {"timeseries", "trend", "heatmap", "stat", "table", "barchart", "nodeGraph"}, "known types only"


class TestFaults:
    """Each fault that was seen in a Grafana."""

    def test_now_and_the_machine_follow_the_newest_run(self) -> None:
        for name in ("now", "machine"):
            for variable in dashboards()[name]["templating"]["list"]:
                assert variable["query"].startswith("SELECT last(") and variable["refresh"] == 2, variable["name"]

    def test_selections_do_not_depend_on_samples_of_queues(self) -> None:
        """labs/incast has none while it runs."""
        for name, dashboard in dashboards().items():
            for variable in dashboard["templating"]["list"]:
                if variable["name"] in ("campaign", "run", "cell"):
                    assert re.search(r'FROM "(run|cell|progress)"', variable["query"]), (name, variable["query"])

    def test_refresh_is_5_s_and_asks_no_chain_of_lists(self) -> None:
        for name, dashboard in dashboards().items():
            assert dashboard["refresh"] == dashboard["timepicker"]["refresh_intervals"][0] == REFRESH == "5s"
            again = [v for v in dashboard["templating"]["list"] if v["refresh"] == 2]
            assert all("SHOW TAG VALUES" not in variable["query"] for variable in again), name
        compose = yaml.safe_load((FOLDER.parent / "docker-compose.yml").read_text())["services"]["grafana"]
        assert compose["environment"]["GF_DASHBOARDS_MIN_REFRESH_INTERVAL"] == REFRESH
        assert compose["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"].endswith("/now.json")

    def test_axes_and_bars_begin_at_0_in_a_neutral_colour(self) -> None:
        for name, found in panels():
            defaults = found["fieldConfig"]["defaults"]
            if found["title"] == "${claim} over runs":  # a measure may be negative
                assert "min" not in defaults and defaults["custom"]["axisSoftMin"] == 0
            elif found["type"] not in ("table", "nodeGraph"):
                assert defaults["min"] == 0, (name, found["title"])
            assert [step["color"] for step in defaults["thresholds"]["steps"]] == [NEUTRAL]
            if found["type"] in ("barchart", "stat"):
                assert defaults["color"] == {"mode": "fixed", "fixedColor": NEUTRAL}

    def test_the_axis_of_now_is_the_lab_s_time_and_fits_its_length(self, server: Server) -> None:
        dashboard = dashboards()["now"]
        chosen = select(server, "qbed", dashboard)
        assert [int(chosen[name]) - EPOCH_MS for name in ("begin", "end")] == [1_000, 5_000], "from flow to flow, us"
        assert int(chosen["bin"]) == 10 == (5_000 - 1_000) // 400
        for found in dashboard["panels"]:
            for target in found["targets"]:
                assert "$timeFilter" not in target["query"] and "$__interval" not in target["query"]
            if found["type"] == "trend":
                steps = {step["id"]: step["options"] for step in found["transformations"]}
                assert steps["calculateField"]["binary"]["right"]["fixed"] == str(EPOCH_MS)
                assert found["options"]["xField"] == steps["calculateField"]["alias"]

    def test_links_lead_to_parts_of_the_lab(self, server: Server) -> None:
        for name in ("now", "live"):
            dashboard = dashboards()[name]
            chosen = select(server, "qbed", dashboard)
            links = {link["title"]: link["url"] for link in dashboard["links"] if link["type"] == "link"}
            assert links.pop("the page of qbed") == f"http://localhost:{Settings.port}/"
            found = {
                title: [int(chosen[part]) - EPOCH_MS for part in re.findall(r"=\$\{(\w+)\}", url)]
                for title, url in links.items()
            }
            assert found == {"whole lab": [1000, 5000], "first 10 ms": [1000, 5000], "last 10 ms": [1000, 5000]}

    def test_tables_hide_the_time(self) -> None:
        for name, found in panels():
            if found["type"] == "table":
                hides = [
                    step
                    for step in found["transformations"]
                    if step["id"] == "groupingToMatrix" or step["options"].get("excludeByName", {}).get("Time")
                ]
                assert hides, (name, found["title"])

    def test_only_claims_that_are_not_as_expected_have_a_colour(self) -> None:
        for name in ("now", "campaign"):
            claims = panel(name, "Claims")
            overrides = {o["matcher"]["options"]: o["properties"] for o in claims["fieldConfig"]["overrides"]}
            properties = {p["id"]: p["value"] for p in overrides["as expected"]}
            colours = {key: value["color"] for key, value in properties["mappings"][0]["options"].items()}
            assert colours == {"0": "red", "1": "text"} and properties["custom.cellOptions"]["type"] == "color-text"
            assert "color" not in {p["id"] for p in overrides["verdict"]}
            sentence = {p["id"]: p["value"] for p in overrides["sentence"]}
            assert sentence["custom.cellOptions"]["wrapText"] is True

    def test_claims_over_runs_are_a_table_of_runs(self) -> None:
        (matrix,) = panel("campaign", "Claims over runs")["transformations"]
        assert (matrix["options"]["rowField"], matrix["options"]["columnField"]) == ("claim", "run")

    def test_schemes_have_one_panel(self, server: Server) -> None:
        (only,) = dashboards()["schemes"]["panels"]
        rows = answers(server, "qbed", dashboards()["schemes"], only, all_=True)[0]
        assert {row["queue"] for row in rows} == {q.port for q in QUEUES if registry()[q.scheme].statistics}

    def test_lists_and_bars_are_in_the_order_of_numbers(self, server: Server) -> None:
        natural, numeric, reverse = 7, 4, 2
        for dashboard in dashboards().values():
            for variable in dashboard["templating"]["list"]:
                if "SHOW TAG VALUES" in variable["query"]:
                    expected = {"campaign": 1, "run": reverse, "cell": numeric}.get(variable["name"], natural)
                    assert variable["sort"] == expected, variable["name"]
        for found in dashboards()["campaign"]["panels"]:
            if found["type"] == "barchart" and "$" in found["title"]:
                assert found["transformations"][0]["options"]["sort"] == [{"field": "position"}]
        rows = server.query('SELECT "position", "value" FROM "result" WHERE "axis" = \'senders\'', "qbed")
        assert [(row["position"], row["value"]) for row in rows] == [(1, "20")], "second in the campaign"

    def test_link_use_is_of_the_time_with_flows_and_deep_queues_are_first(self, server: Server) -> None:
        rows = server.query('SELECT "use_percent" FROM "total"', "qbed")
        assert {round(row["use_percent"]) for row in rows} == {50}, "250 kB in 4 ms of 1 Gbit/s"
        steps = panel("live", "Queues when the cell has ended")["transformations"]
        assert steps[-1]["options"]["sort"] == [{"field": "most packets", "desc": True}]

    def test_figures_of_queues_have_limits_by_the_parameters_in_effect(self, server: Server) -> None:
        """Grafana merges both queries, takes means by `x` and `line`, and draws a column for each value of `line`."""
        amounts = {"Deepest queue, packets over ${x}": 20.0, "Queueing delay, longest over ${x}": 100.0}
        for title, amount in amounts.items():
            found = panel("campaign", title)
            measured, limits = answers(server, "qbed", dashboards()["campaign"], found)
            assert {(row["x"], row["line"], row["value"]) for row in limits} == {
                (20.0, "limit: threshold (ecn)", amount), (20.0, "limit: buffer", amount),
            }  # fmt: skip
            assert measured[0].keys() == limits[0].keys() == {"time", "x", "line", "value", "cell"}
            steps = [step["id"] for step in found["transformations"]]
            assert steps == ["merge", "groupBy", "sortBy", "groupingToMatrix"]
            _, dashed = found["fieldConfig"]["overrides"]
            pattern = dashed["matcher"]["options"].strip("/")
            assert all(re.search(pattern, row["line"]) for row in limits)
            assert not any(re.search(pattern, row["line"]) for row in measured)
            assert dashed["properties"][0] == {"id": "custom.lineStyle", "value": {"fill": "dash", "dash": [8, 6]}}

    def test_a_claim_over_runs_has_its_bound_as_dashed_lines(self, server: Server) -> None:
        """The lines go on until now, so that one run has lines too."""
        found = panel("campaign", "${claim} over runs")
        measured, lower, upper = answers(server, "qbed", dashboards()["campaign"], found, "60s")
        assert [(row["measure"], row["last"]) for row in measured] == [("drops (scheme ecn)", -7.0), ("rate", 2.5)]
        for rows, bound in ((lower, -0.4), (upper, 0.5)):
            values = [row["last"] for row in rows if row["measure"] == "drops (scheme ecn)"]
            assert len(values) > 50 and set(values) == {bound}
        aliases = [target["alias"] for target in found["targets"]]
        (dashed,) = found["fieldConfig"]["overrides"]
        drawn = [bool(re.search(dashed["matcher"]["options"].strip("/"), alias)) for alias in aliases]
        assert drawn == [False, True, True] and dashed["properties"][0]["id"] == "custom.lineStyle"

    def test_queueing_delay_stands_beside_packets(self) -> None:
        pairs = {
            "campaign": [("Deepest queue, packets over ${x}", "Queueing delay, longest over ${x}"),
                         ("Deepest queue by ${axis}", "Queueing delay by ${axis}")],
            "live": [("Packets in the queue", "Queueing delay")],
        }  # fmt: skip
        for name, titles in pairs.items():
            for packets, delay in titles:
                left, right = panel(name, packets), panel(name, delay)
                assert left["gridPos"]["y"] == right["gridPos"]["y"], packets
                assert left["gridPos"]["x"] + left["gridPos"]["w"] == right["gridPos"]["x"], packets
                units = [found["fieldConfig"]["defaults"]["unit"] for found in (left, right)]
                assert units == ["short", "µs"], packets

    def test_a_queue_is_one_series_and_marks_do_not_depend_on_the_zoom(self, server: Server) -> None:
        dashboard = dashboards()["live"]
        for title in ("Marks", "Drops", "Packets through the link"):
            sizes = []
            for interval in ("10ms", "1s"):
                (rows,) = answers(server, "qbed", dashboard, panel("live", title), interval)
                fields = [key for key in rows[0] if key not in ("time", "queue")]
                assert len(fields) == 1
                values = [row[fields[0]] for row in rows if row["time"] < EPOCH_NS + 4_000_000 * STRETCH]
                sizes.append(sum(values) / len(values))
            assert sizes[0] == pytest.approx(sizes[1], rel=0.02) and sizes[0] > 0, title
        assert [alias["alias"] for alias in panel("live", "Packets in the queue")["targets"]] == [
            "$tag_queue",
            "$tag_parameter",
        ]

    def test_flows_have_names_and_no_text_is_first(self, server: Server) -> None:
        tags = {row["value"] for row in server.query('SHOW TAG VALUES FROM "flow" WITH KEY = "flow"', "qbed")}
        assert tags == {"0 h1>h2", "1"}
        assert "text" not in {found["type"] for _, found in panels()}

    def test_a_panel_without_data_says_why(self) -> None:
        """Panels that depend on what a lab observes."""
        for name, found in panels():
            if any(re.search(r'FROM "(queue|flow|statistic)"', target["query"]) for target in found["targets"]):
                assert found["fieldConfig"]["defaults"]["noValue"], (name, found["title"])


@pytest.mark.parametrize("name", sorted(dashboards()))
@pytest.mark.parametrize("all_", [True, False])
def test_every_query_of_every_panel_has_an_answer(server: Server, name: str, all_: bool) -> None:
    dashboard = dashboards()[name]
    for found in dashboard["panels"]:
        rows_of = answers(server, "qbed", dashboard, found, all_=all_)
        for target, rows in zip(found["targets"], rows_of, strict=True):
            assert rows, (found["title"], target["query"])
            assert all(value is not None for value in rows[0].values()), (found["title"], rows[0])
            if target["resultFormat"] == "time_series":
                fields = {key for row in rows for key in row if key != "time" and key not in sum(TAGS.values(), ())}
                assert len(fields) == 1 and all(isinstance(row[next(iter(fields))], int | float) for row in rows)
            for tag in re.findall(r"\$tag_(\w+)", target.get("alias", "")):
                assert tag in rows[0], (found["title"], target["alias"])


def test_the_topology_has_the_columns_of_edges(server: Server) -> None:
    """Grafana finds them by the names in the answer, not by those that a transformation gives."""
    for name in ("now", "live"):
        (rows,) = answers(server, "qbed", dashboards()[name], panel(name, "Topology"))
        assert {"id", "source", "target", "mainstat", "color"} <= set(rows[0]) and len(rows) == len(QUEUES)
        assert (rows[0]["id"], rows[0]["source"], rows[0]["target"]) == (QUEUES[0].port, "s1", QUEUES[0].scheme)
        assert round(rows[0]["mainstat"]) == 50 and rows[0]["color"] == "#f2b134"


def test_annotations_have_texts(server: Server) -> None:
    dashboard = dashboards()["live"]
    (events,) = dashboard["annotations"]["list"]
    query = filled(events["target"]["query"], select(server, "qbed", dashboard), spans(dashboard, BEGUN_NS))
    (row,) = server.query(query, "qbed")
    assert row[events["target"]["textColumn"]].startswith("h0>h1") and row["time"] == EPOCH_NS + 10**6 * STRETCH


def test_samples_every_10_us_are_all_there_and_differ(server: Server) -> None:
    """Truncation to milliseconds loses no point: as many points as samples, in their order."""
    dashboard = dashboards()["live"]
    occupancy, limits = answers(server, "qbed", dashboard, panel("live", "Packets in the queue"))
    assert [row["time"] // 10**6 for row in occupancy] == [
        EPOCH_NS // 10**6 + (step + 1) * STEP_NS * STRETCH // 10**6 for step in range(SAMPLES)
    ]
    assert [row["max"] for row in occupancy] == list(range(SAMPLES))
    assert {row["parameter"] for row in limits} == {"threshold", "buffer"}, "those that apply to the cell"
    (rows,) = answers(server, "qbed", dashboard, panel("live", "Packets through the link"), "1s")
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
    assert (wrong, tags, {points.measurement for points in all_points()}) == ([], [], set(TAGS))
