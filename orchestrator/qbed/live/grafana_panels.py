# SPDX-License-Identifier: Apache-2.0
"""Parts of a dashboard in Grafana's JSON (schema version 42): required fields, and others that differ from their
defaults.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from qbed.live.points import EPOCH_NS

Json = dict[str, Any]

SOURCE = {"type": "influxdb", "uid": "qbed"}
WIDTH = 24
FINEST = "10ms"
"""Minimum interval of grouped samples, in stretched time: 10 us of lab time."""
REFRESH = "5s"
"""Interval of queries. A loaded machine does not answer all queries of a dashboard within 1 or 2 s."""
EPOCH_MS = EPOCH_NS // 10**6
NEUTRAL, MARK = "blue", "red"


@dataclass(frozen=True)
class Variable:
    """A variable of a dashboard: the values of a query. `follows`: it has one value, which each refresh asks again.

    `sort`: 1 by alphabet, 2 from its end, 4 by number with the largest first, 7 with numbers by value.
    """

    name: str
    query: str
    several: bool = False
    sort: Literal[1, 2, 4, 7] = 7
    follows: bool = False
    hidden: bool = False

    def json(self) -> Json:
        return {
            "name": self.name, "label": self.name, "type": "query", "datasource": SOURCE, "query": self.query,
            "refresh": 2 if self.follows else 1, "sort": 0 if self.follows else self.sort,
            **({"hide": 2} if self.hidden else {}),
            **({"multi": True, "includeAll": True, "allValue": ".*"} if self.several else {}),
            **({"current": {"text": ["All"], "value": ["$__all"]}} if self.several else {}),
        }  # fmt: skip


def tag_values(tag: str, measurement: str, where: str = "") -> str:
    """A query of a tag's values."""
    return f'SHOW TAG VALUES FROM "{measurement}" WITH KEY = "{tag}"' + (f" WHERE {where}" if where else "")


def chosen(*names: str) -> str:
    """The condition that the tags of these names have the values of the variables."""
    return " AND ".join(f'"{name}" =~ /^${{{name}:regex}}$/' for name in names)


Kind = Literal["timeseries", "trend", "heatmap", "stat", "table", "barchart", "nodeGraph"]
_LEGEND: Json = {"calcs": [], "displayMode": "list", "placement": "bottom", "showLegend": True}
_TIMES: Json = {"legend": _LEGEND, "tooltip": {"mode": "multi", "sort": "desc"}}
_REDUCE: Json = {"calcs": ["lastNotNull"], "values": False}
_OPTIONS: dict[str, Json] = {
    "timeseries": _TIMES,
    "trend": _TIMES,
    "heatmap": {
        "calculate": False, "cellGap": 0,
        "color": {"mode": "scheme", "scheme": "Viridis", "steps": 64, "exponent": 0.5},
        "exemplars": {"color": "orange"}, "filterValues": {"le": 1e-9}, "legend": {"show": True}, "showValue": "never",
        "tooltip": {"mode": "single", "yHistogram": False}, "yAxis": {"axisPlacement": "left"},
    },
    "stat": {
        "reduceOptions": _REDUCE, "orientation": "auto", "colorMode": "value", "graphMode": "area",
        "justifyMode": "auto", "textMode": "auto", "wideLayout": True, "showPercentChange": False,
        "percentChangeColorMode": "standard",
    },
    "table": {"showHeader": True, "cellHeight": "sm"},
    "barchart": {
        "orientation": "auto", "showValue": "auto", "stacking": "none", "groupWidth": 0.7, "barWidth": 0.9,
        "xTickLabelRotation": 0, "xTickLabelSpacing": 0, "fullHighlight": False, **_TIMES,
    },
    "nodeGraph": {"edges": {"mainStatUnit": "%"}},
}  # fmt: skip
_CUSTOM: dict[str, Json] = {
    "timeseries": {"spanNulls": True, "lineWidth": 1, "showPoints": "auto"},
    "trend": {"spanNulls": True, "lineWidth": 1, "showPoints": "auto"},
    "table": {"align": "auto", "cellOptions": {"type": "auto"}, "inspect": False},
}

_EMPTY_CELLS: tuple[Json, ...] = (
    {"matcher": {"id": "byRegexp", "options": "/.*/"}, "properties": [{"id": "noValue", "value": ""}]},
)
"""A cell without a value is empty: Grafana would write into it what the panel shows without data."""


@dataclass(frozen=True)
class Panel:
    """A panel with InfluxQL queries by the names of their series. `wide` and `high` are in grid units; a row has 24.

    `rows`: the result of a query is a table. `empty`: what the panel shows without data. `signed`: values may be
    negative, so that the axis begins at 0 only if none is.
    """

    title: str
    help: str
    queries: Mapping[str, str]
    kind: Kind = "timeseries"
    unit: str = "short"
    wide: int = 12
    high: int = 8
    rows: bool = False
    signed: bool = False
    empty: str = ""
    custom: Json = field(default_factory=dict)
    options: Json = field(default_factory=dict)
    overrides: Sequence[Json] = ()
    transformations: Sequence[Json] = ()
    links: Sequence[Json] = ()

    def json(self, number: int, x: int, y: int) -> Json:
        as_table = self.rows or self.kind in ("table", "barchart", "nodeGraph")
        targets = [
            {
                "refId": chr(ord("A") + index), "rawQuery": True, "query": query,
                "resultFormat": "table" if as_table else "time_series",
                **({"alias": alias} if alias and not as_table else {}),
            }
            for index, (alias, query) in enumerate(self.queries.items())
        ]  # fmt: skip
        plain = self.kind in ("barchart", "stat")
        empty_cells = _EMPTY_CELLS if self.kind == "table" else ()
        defaults = {
            "unit": self.unit,
            "custom": {
                **_CUSTOM.get(self.kind, {}), **({"axisSoftMin": 0} if self.signed else {}), **self.custom,
            },
            **({"min": 0} if self.kind not in ("table", "nodeGraph") and not self.signed else {}),
            "thresholds": {"mode": "absolute", "steps": [{"color": NEUTRAL, "value": None}]},
            **({"color": {"mode": "fixed", "fixedColor": NEUTRAL}} if plain else {}),
            **({"noValue": self.empty} if self.empty else {}),
            **({"links": [*self.links]} if self.links else {}),
        }  # fmt: skip
        return {
            "id": number, "type": self.kind, "title": self.title, "description": self.help, "datasource": SOURCE,
            "gridPos": {"x": x, "y": y, "w": self.wide, "h": self.high}, "interval": FINEST, "targets": targets,
            "fieldConfig": {"defaults": defaults, "overrides": [*empty_cells, *self.overrides]},
            "options": {**_OPTIONS[self.kind], **self.options},
            **({"transformations": [*self.transformations]} if self.transformations else {}),
        }  # fmt: skip


def transform(id_: str, **options: Any) -> Json:
    """A transformation of a query's result."""
    return {"id": id_, "options": options}


def columns(*names: str, **renamed: str) -> Json:
    """The columns of a table in their order, without the time. `renamed`: by their names in the query's result."""
    order = {name: index for index, name in enumerate((*names, *renamed))}
    return transform("organize", excludeByName={"Time": True}, indexByName=order, renameByName=renamed)


def column(name: str, **properties: Any) -> Json:
    """Properties of one column or series. `__` in a name is a dot."""
    values = [{"id": id_.replace("__", "."), "value": value} for id_, value in properties.items()]
    return {"matcher": {"id": "byName", "options": name}, "properties": values}


def as_numbers(name: str) -> Json:
    """A column as numbers."""
    return transform("convertFieldType", fields={}, conversions=[{"targetField": name, "destinationType": "number"}])


def matrix(column_field: str, row_field: str, value_field: str) -> Json:
    """A table of one value by two others."""
    return transform(
        "groupingToMatrix", columnField=column_field, rowField=row_field, valueField=value_field, emptyValue="null"
    )


LAB_TIME = "time in the lab"
ON_LAB_TIME = (
    transform("joinByField", byField="Time", mode="outer"),
    as_numbers("Time"),
    transform(
        "calculateField", mode="binary", alias=LAB_TIME, replaceFields=False,
        binary={"left": {"matcher": {"id": "byName", "options": "Time"}}, "operator": "-",
                "right": {"fixed": str(EPOCH_MS)}},
    ),
    transform("organize", excludeByName={"Time": True}, indexByName={LAB_TIME: 0}, renameByName={}),
)  # fmt: skip
"""The lab's time in microseconds as a numeric axis, which fits the data: it replaces the time of the panel."""
LAB_TIME_UNIT = column(LAB_TIME, unit="µs")


def link(title: str, url: str) -> Json:
    """A link in the header of a dashboard."""
    return {
        "type": "link", "title": title, "url": url, "icon": "bolt", "tooltip": "", "tags": [], "asDropdown": False,
        "includeVars": False, "keepTime": False, "targetBlank": False,
    }  # fmt: skip


def data_link(title: str, url: str) -> Json:
    """A link of a value."""
    return {"title": title, "url": url, "targetBlank": False}


@dataclass(frozen=True)
class Dashboard:
    """A dashboard. `span`: initial time range; `annotations`: queries of texts at times, by name."""

    uid: str
    title: str
    variables: Sequence[Variable]
    panels: Sequence[Panel]
    span: tuple[str, str]
    links: Sequence[Json] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    time_picker: bool = True

    def json(self) -> Json:
        panels, x, y, row = [], 0, 0, 0
        for number, panel in enumerate(self.panels, 1):
            if x + panel.wide > WIDTH:
                x, y, row = 0, y + row, 0
            panels.append(panel.json(number, x, y))
            x, row = x + panel.wide, max(row, panel.high)
        notes = [
            {
                "name": name, "datasource": SOURCE, "enable": True, "iconColor": NEUTRAL,
                "target": {
                    "refId": "Anno", "query": query, "rawQuery": True, "fromAnnotations": True, "textColumn": "text",
                    "tagsColumn": "kind",
                },
            }
            for name, query in self.annotations.items()
        ]  # fmt: skip
        return {
            "uid": self.uid, "title": self.title, "tags": ["qbed"], "schemaVersion": 42, "version": 1,
            "editable": True, "graphTooltip": 1, "timezone": "utc", "refresh": REFRESH,
            "time": {"from": self.span[0], "to": self.span[1]},
            "timepicker": {
                "refresh_intervals": [REFRESH, "30s", "5m"], **({} if self.time_picker else {"hidden": True}),
            },
            "links": [*self.links, _OTHERS, _PAGE],
            "annotations": {"list": notes},
            "templating": {"list": [variable.json() for variable in self.variables]}, "panels": panels,
        }  # fmt: skip


_OTHERS: Json = {
    "type": "dashboards", "title": "qbed", "tags": ["qbed"], "asDropdown": True, "icon": "external link",
    "tooltip": "the other dashboards, of the same run", "includeVars": True, "keepTime": False, "targetBlank": False,
}  # fmt: skip
"""Without the time range: samples have times in the year 2000, other points the current time."""
_PAGE = link("the page of qbed", "http://localhost:8410/")
"""The page of `qbed serve` at its default port."""


def dumps(value: Any, indent: str = "", width: int = 160) -> str:
    """JSON in filled lines, so that a change of a panel is a change of few lines."""
    text = json.dumps(value, ensure_ascii=False)
    if not value or not isinstance(value, dict | list) or len(indent) + len(text) <= width:
        return text
    inner = indent + " "
    if isinstance(value, dict):
        parts = [f"{json.dumps(name)}: {dumps(item, inner, width)}" for name, item in value.items()]
    else:
        parts = [dumps(item, inner, width) for item in value]
    lines = [parts[0]]
    for part in parts[1:]:
        joined = f"{lines[-1]}, {part}"
        lines[-1:] = [joined] if "\n" not in joined and len(inner) + len(joined) < width else [f"{lines[-1]},", part]
    begin, end = "{}" if isinstance(value, dict) else "[]"
    return f"{begin}\n{inner}" + f"\n{inner}".join(lines) + f"\n{indent}{end}"
