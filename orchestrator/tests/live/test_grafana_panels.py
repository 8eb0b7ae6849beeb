# SPDX-License-Identifier: Apache-2.0
"""The panels as Grafana's own library (`@grafana/data`) shows the answers of a real InfluxDB."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from dashboard_points import QUEUES, served_points
from dashboards import Json, answers, dashboards

from qbed.live.points import TAGS

HERE = Path(__file__).parent
TOOLS = HERE.parents[2] / "tools" / "page-tools"
Shown = dict[str, list[Json]]


def frames(target: Json, rows: list[Json]) -> list[Json]:
    """The data frames of an answer as Grafana's data source makes them: one of a table, one of each series."""
    keys = list(rows[0])
    tags = [key for key in keys if key in sum(TAGS.values(), ()) and not isinstance(rows[0][key], int | float)]
    times = [row["time"] / 1e6 for row in rows]
    if target["resultFormat"] == "table":
        names = [key for key in keys if key != "time"]
        columns = [{"name": name, "type": kind(rows[0][name]), "values": [row[name] for row in rows]} for name in names]
        return [{"refId": target["refId"], "fields": [{"name": "Time", "type": "time", "values": times}, *columns]}]
    (field,) = [key for key in keys if key not in ("time", *tags)]
    series: dict[tuple[str, ...], list[Json]] = {}
    for row in rows:
        series.setdefault(tuple(row[tag] for tag in tags), []).append(row)
    return [
        {
            "refId": target["refId"],
            "fields": [
                {"name": "Time", "type": "time", "values": [row["time"] / 1e6 for row in found]},
                {
                    "name": "Value", "type": "number", "values": [row[field] for row in found],
                    "labels": dict(zip(tags, values, strict=True)),
                    "config": {"displayNameFromDS": alias(target, field, dict(zip(tags, values, strict=True)))},
                },
            ],
        }
        for values, found in series.items()
    ]  # fmt: skip


def kind(value: Any) -> str:
    return "number" if isinstance(value, int | float) else "string"


def alias(target: Json, field: str, tags: dict[str, str]) -> str:
    """The name of a series."""
    return re.sub(r"\$tag_(\w+)", lambda match: tags[match[1]], target.get("alias", field))


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    """The frames of each panel, by `DASHBOARD: TITLE`."""
    tools = subprocess.run([TOOLS], capture_output=True, text=True)
    if tools.returncode == 3:
        pytest.skip("there is no Node here")
    assert tools.returncode == 0, tools.stderr
    panels = {}
    with served_points(tmp_path_factory.mktemp("influx")) as server:
        for name, dashboard in dashboards().items():
            for panel in dashboard["panels"]:
                found = answers(server, "qbed", dashboard, panel, all_=True)
                pairs = zip(panel["targets"], found, strict=True)
                every = [frame for target, rows in pairs for frame in frames(target, rows)]
                panels[f"{name}: {panel['title']}"] = panel | {"frames": every}
    command = ["node", str(HERE / "grafana_panels.mjs"), f"{tools.stdout.strip()}/node_modules"]
    done = subprocess.run(command, input=json.dumps(panels), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def panels_of(*kinds: str) -> list[str]:
    return [
        f"{name}: {panel['title']}"
        for name, dashboard in dashboards().items()
        for panel in dashboard["panels"]
        if panel["type"] in kinds
    ]


def visible(frame: Json) -> list[Json]:
    return [field for field in frame["fields"] if not field["custom"].get("hideFrom", {}).get("viz")]


def test_every_panel_has_values_after_its_transformations(shown: Shown) -> None:
    assert len(shown) == sum(len(dashboard["panels"]) for dashboard in dashboards().values())
    for name, found in shown.items():
        assert found and all(frame["length"] > 0 for frame in found), name
        assert all(any(value is not None for value in field["value"]) for field in found[0]["fields"]), name


def test_tables_have_no_time_and_empty_cells_are_empty(shown: Shown) -> None:
    nulls = 0
    for name in panels_of("table"):
        (frame,) = shown[name]
        assert "Time" not in [field["name"] for field in frame["fields"]], name
        for field in frame["fields"]:
            empty = [text for value, text in zip(field["value"], field["text"], strict=True) if value is None]
            assert set(empty) <= {""}, (name, field["name"])
            nulls += len(empty)
    assert nulls > 10, "statistics of one scheme at the queue of another"


def test_only_a_claim_that_is_not_as_expected_is_red(shown: Shown) -> None:
    for name in ("now: Claims", "campaign: Claims"):
        (frame,) = shown[name]
        fields = {field["name"]: field for field in frame["fields"]}
        assert list(fields) == ["claim", "verdict", "as expected", "sentence"]
        by_claim = dict(zip(fields["claim"]["text"], fields["as expected"]["text"], strict=True))
        assert by_claim == {"c": "as expected", "d": "✗ not as expected"}
        colours = dict(zip(fields["claim"]["text"], fields["as expected"]["color"], strict=True))
        assert colours["d"] not in (colours["c"], fields["verdict"]["color"][0])


def test_measures_of_claims_stand_beside_their_bounds(shown: Shown) -> None:
    (frame,) = shown["campaign: Measures of the claims"]
    texts = {field["name"]: field["text"] for field in frame["fields"]}
    assert list(texts) == ["claim", "measure", "measured", "from", "to", "bound", "seeds"]
    assert [*zip(*texts.values(), strict=True)] == [
        ("c", "drops (scheme ecn)", "-7", "-8", "-6", "-40 % to 50 %", "3"), ("c", "rate", "2.50", "", "", "", "1"),
    ]  # fmt: skip


def test_the_axis_of_now_is_the_labs_time_in_order(shown: Shown) -> None:
    for name in panels_of("trend", "heatmap"):
        if name.startswith("now: "):
            (frame,) = shown[name]
            axis, *values = frame["fields"]
            assert (axis["name"], axis["type"]) == ("time in the lab", "number"), name
            assert axis["value"] == sorted(axis["value"]) and axis["value"][-1] < 10_000, name
            assert all(re.fullmatch(r"[\d.]+ (µs|ms)", text) for text in axis["text"]), (name, axis["text"][:3])
            assert values and {field["type"] for field in values} == {"number"}, name


def test_figures_have_a_column_of_each_line_and_bars_have_names(shown: Shown) -> None:
    assert [field["name"] for field in shown["campaign: Deepest queue, packets over ${x}"][0]["fields"]] == [
        "x\\line", "ecn", "limit: buffer", "limit: threshold (ecn)",
    ]  # fmt: skip
    for name in panels_of("barchart"):
        axis, *bars = visible(shown[name][0])
        assert axis["text"] == [str(value) for value in axis["value"]], name  # a name without a unit
        assert bars and {field["type"] for field in bars} == {"number"}, name


def test_series_have_the_names_of_queues_and_flows(shown: Shown) -> None:
    queues = {queue.port for queue in QUEUES}
    for title in ("Packets in the queue", "Marks", "Queues"):
        names = {frame["fields"][1]["name"] for frame in shown[f"live: {title}"]}
        assert queues <= names and not any("{" in name or "Value" in name for name in names), (title, names)
    assert {frame["fields"][1]["name"] for frame in shown["live: Round-trip time"]} == {"0 h1>h2"}


def test_the_edges_of_the_topology_are_complete(shown: Shown) -> None:
    for name in panels_of("nodeGraph"):
        (frame,) = shown[name]
        assert {"id", "source", "target", "mainstat", "color"} <= {field["name"] for field in frame["fields"]}
