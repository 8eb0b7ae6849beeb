# SPDX-License-Identifier: Apache-2.0
"""The dashboards, and their queries as Grafana sends them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from itertools import dropwhile
from pathlib import Path
from typing import Any

import duckdb
from influx import Server

FOLDER = Path(__file__).parents[2] / "dashboards"
Json = dict[str, Any]


def dashboards() -> dict[str, Json]:
    """The dashboards, by name."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}


def panel(name: str, title: str) -> Json:
    """A panel of a dashboard."""
    (found,) = (panel for panel in dashboards()[name]["panels"] if panel["title"] == title)
    return dict(found)


def filled(query: str, chosen: Mapping[str, str], span: str, interval: str = "1s") -> str:
    """A query with the values of variables."""

    def value(match: re.Match[str]) -> str:
        selected = chosen[match[1]]
        if match[2] != "regex":
            return selected
        return ".*" if selected == "$__all" else re.sub(r"([.*+?^${}()|[\]\\/])", r"\\\1", selected)

    query = re.sub(r"\$\{(\w+)(?::(\w+))?\}", value, query)
    query = query.replace("$timeFilter", span).replace("$__interval", interval)
    assert "$" not in query.replace("$/", "").replace(")$", ""), query
    return query


def spans(dashboard: Json, begun_ns: int) -> str:
    """The range of a dashboard as a condition; of the time of day, around the start of a run."""
    if dashboard["time"]["to"] == "now":
        return f"time >= {begun_ns - 10**9} and time <= {begun_ns + 3600 * 10**9}"
    return f"time >= '{dashboard['time']['from']}' and time <= '{dashboard['time']['to']}'"


def values_of(server: Server, database: str, query: str) -> list[str]:
    """The values of a variable: of a tag, or the first field of a row."""
    rows = server.query(query, database)
    return list(dict.fromkeys(str(row["value"] if "value" in row else [*row.values()][1]) for row in rows))


def select(
    server: Server, database: str, dashboard: Json, fixed: Mapping[str, str] | None = None, *, all_: bool = False
) -> dict[str, str]:
    """Grafana's selection: the first of each variable's values, or all of them; `fixed`: by the address."""
    chosen: dict[str, str] = {}
    for variable in dashboard["templating"]["list"]:
        values = values_of(server, database, filled(variable["query"], chosen, ""))
        several = all_ and variable.get("includeAll")
        first = (fixed or {}).get(variable["name"]) or (values[0] if values else "")
        chosen[variable["name"]] = "$__all" if several else first
    return chosen


def panels_without_rows(server: Server, database: str, run: Path) -> list[str]:
    """Panels of a delivered run without a row, though the run has what they show. `run`: its folder."""
    present = {path.stem for path in run.glob("*.parquet")}
    count = {name: duckdb.sql(f"SELECT count(*) FROM '{run}/{name}.parquet'").fetchall()[0][0] for name in present}
    statistics = duckdb.sql(f"SELECT max(cardinality(xstats)) FROM '{run}/queues.parquet' WHERE cell = 0").fetchall()
    has = {
        "queue": any(count.get(name) for name in ("queue_series", "queue_events")),
        "flow": any(count.get(name) for name in ("tcp_info", "rates")),
        "statistic": statistics[0][0],
        "measure": any(verdict["estimates"] for verdict in json.loads((run / "claims.json").read_text())),
    }
    missing = []
    begun_ns = _begun_ns(server, database)
    for name, dashboard in dashboards().items():
        chosen = select(server, database, dashboard, {"cell": "0"} if name == "schemes" else {}, all_=True)
        for found in dashboard["panels"]:
            targets = [target["query"] for target in found["targets"]]
            (measurement,) = {re.findall('FROM "([a-z]+)"', query)[0] for query in targets[:1]}
            needs_number = '"number_' in targets[0] and not chosen["x"]
            tcp = '"cwnd"' in targets[0] and not count.get("tcp_info")
            late = '"late_p99_us"' in targets[0]  # of the wall clock
            if measurement == "machine" or not has.get(measurement, True) or needs_number or tcp or late:
                continue
            span = spans(dashboard, begun_ns)
            queries = [filled(query, chosen, span, _interval(dashboard)) for query in targets]
            if not any(server.query(query, database) for query in queries):
                missing.append(f"{name}: {found['title']}")
    return missing


def _begun_ns(server: Server, database: str) -> int:
    return int(server.query('SELECT last("run_name") FROM "run"', database)[0]["time"])


def answers(
    server: Server, database: str, dashboard: Json, found: Json, interval: str = "", *, all_: bool = False
) -> list[list[Json]]:
    """The rows of each query of a panel; without those before the first value, which Grafana does not draw."""
    chosen = select(server, database, dashboard, all_=all_)
    span = spans(dashboard, _begun_ns(server, database))
    interval = interval or _interval(dashboard)
    queries = [filled(target["query"], chosen, span, interval) for target in found["targets"]]
    return [
        [*dropwhile(_is_before_first, rows)] if "fill(previous)" in query else rows
        for query in queries
        for rows in [server.query(query, database)]
    ]


def _is_before_first(row: Json) -> bool:
    return row["last"] is None


def _interval(dashboard: Json) -> str:
    """The resolution of a panel: of times of the day, and of stretched time."""
    return "1s" if dashboard["time"]["to"] == "now" else "10ms"
