# SPDX-License-Identifier: Apache-2.0
"""Parts of a dashboard in Grafana's JSON (12.1, schema version 41): required fields, and others that differ from their
defaults.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

Json = dict[str, Any]

SOURCE = {"type": "influxdb", "uid": "qbed"}
WIDTH = 24
FINEST = "10ms"
"""Minimum interval of grouped samples, in stretched time: 10 us of lab time."""


@dataclass(frozen=True)
class Variable:
    """A drop-down of a dashboard: the values of a tag in the points that match the preceding variables."""

    name: str
    measurement: str
    several: bool = False

    def json(self, before: Sequence[Variable]) -> Json:
        query = f'SHOW TAG VALUES FROM "{self.measurement}" WITH KEY = "{self.name}"'
        preceding = [variable for variable in before if variable.measurement == self.measurement]
        if preceding:
            query += f" WHERE {chosen(*(variable.name for variable in preceding))}"
        return {
            "name": self.name, "label": self.name, "type": "query", "datasource": SOURCE, "query": query,
            "refresh": 2, "sort": 3, "multi": self.several, "includeAll": self.several,
            **({"allValue": ".*", "current": {"text": ["All"], "value": ["$__all"]}} if self.several else {}),
        }  # fmt: skip


_LEGEND = {"calcs": [], "displayMode": "list", "placement": "bottom"}
_TIMES: Json = {"legend": {**_LEGEND, "showLegend": True}, "tooltip": {"mode": "multi", "sort": "desc"}}
_NUMBERS: Json = {"reduceOptions": {"calcs": ["lastNotNull"], "values": False}, "orientation": "horizontal"}
_OPTIONS: dict[str, Json] = {
    "timeseries": _TIMES,
    "state-timeline": {**_TIMES, "rowHeight": 0.9, "showValue": "auto"},
    "table": {"frameIndex": 0, "showHeader": True},
    "bargauge": {
        **_NUMBERS, "displayMode": "basic", "valueMode": "color", "namePlacement": "auto", "showUnfilled": True,
        "sizing": "auto", "minVizWidth": 8, "minVizHeight": 16, "maxVizHeight": 300,
        "legend": {**_LEGEND, "showLegend": False},
    },
}  # fmt: skip
_CUSTOM: dict[str, Json] = {
    "timeseries": {"spanNulls": True, "lineWidth": 1, "showPoints": "auto"},
    "table": {"align": "auto", "cellOptions": {"type": "auto"}, "inspect": False},
}


@dataclass(frozen=True)
class Panel:
    """A panel with InfluxQL queries by the names of their series. `wide` and `high` are in grid units; a row has 24."""

    title: str
    help: str
    queries: dict[str, str]
    kind: Literal["timeseries", "table", "bargauge", "state-timeline"] = "timeseries"
    unit: str = "short"
    wide: int = 12
    high: int = 8

    def json(self, number: int, x: int, y: int) -> Json:
        table = self.kind == "table"
        targets = [
            {
                "refId": chr(ord("A") + index), "datasource": SOURCE, "rawQuery": True, "query": query,
                "resultFormat": "table" if table else "time_series", **({"alias": alias} if alias else {}),
            }
            for index, (alias, query) in enumerate(self.queries.items())
        ]  # fmt: skip
        return {
            "id": number, "type": self.kind, "title": self.title, "description": self.help, "datasource": SOURCE,
            "gridPos": {"x": x, "y": y, "w": self.wide, "h": self.high}, "interval": FINEST, "targets": targets,
            "fieldConfig": {"defaults": {"unit": self.unit, "custom": _CUSTOM.get(self.kind, {})}, "overrides": []},
            "options": _OPTIONS[self.kind],
        }  # fmt: skip


@dataclass(frozen=True)
class Text:
    """A panel with text."""

    markdown: str
    wide: int = WIDTH
    high: int = 3

    def json(self, number: int, x: int, y: int) -> Json:
        place = {"x": x, "y": y, "w": self.wide, "h": self.high}
        return {
            "id": number, "type": "text", "title": "", "gridPos": place,
            "options": {"mode": "markdown", "content": self.markdown},
        }  # fmt: skip


@dataclass(frozen=True)
class Dashboard:
    """A dashboard. `span`: initial time range; `refresh`: interval of queries."""

    uid: str
    title: str
    variables: Sequence[Variable]
    panels: Sequence[Panel | Text]
    span: tuple[str, str]
    refresh: str

    def json(self) -> Json:
        panels, x, y, row = [], 0, 0, 0
        for number, panel in enumerate(self.panels, 1):
            if x + panel.wide > WIDTH:
                x, y, row = 0, y + row, 0
            panels.append(panel.json(number, x, y))
            x, row = x + panel.wide, max(row, panel.high)
        variables = [variable.json(self.variables[:index]) for index, variable in enumerate(self.variables)]
        return {
            "uid": self.uid, "title": self.title, "tags": ["qbed"], "schemaVersion": 41, "version": 1,
            "editable": True, "graphTooltip": 1, "timezone": "utc", "refresh": self.refresh,
            "time": {"from": self.span[0], "to": self.span[1]},
            "timepicker": {"refresh_intervals": ["1s", "5s", "30s", "5m"]},
            "links": [_LINK],
            "templating": {"list": variables}, "panels": panels,
        }  # fmt: skip


_LINK: Json = {
    "type": "dashboards", "title": "qbed", "tags": ["qbed"], "asDropdown": True, "icon": "external link",
    "tooltip": "the other dashboards, of the same run", "includeVars": True, "keepTime": False, "targetBlank": False,
}  # fmt: skip
"""Without the time range: samples have times in the year 2000, other points the current time."""


def chosen(*variables: str) -> str:
    """SQL condition that selects the current values of variables."""
    return " AND ".join(f'"{name}" =~ /^${{{name}:regex}}$/' for name in variables)
