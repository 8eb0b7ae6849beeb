# SPDX-License-Identifier: Apache-2.0
"""The dashboards: `python -m qbed.live.grafana FOLDER` writes a JSON file for each (`make generate`)."""

from __future__ import annotations

import sys
from pathlib import Path

from qbed.live.grafana_cell import claims, live, now
from qbed.live.grafana_panels import (
    Dashboard,
    Json,
    Panel,
    Variable,
    as_numbers,
    chosen,
    column,
    columns,
    data_link,
    dumps,
    matrix,
    tag_values,
    transform,
)
from qbed.live.results import LIMIT
from qbed.schemes.declaration import registry

_CAMPAIGN, _RUN = chosen("campaign"), chosen("campaign", "run")
_RUNS = [
    Variable("campaign", tag_values("campaign", "run"), sort=1),
    Variable("run", tag_values("run", "run", chosen("campaign")), sort=2),
]
_TO_CELL = "${campaign:queryparam}&${run:queryparam}&var-cell=${__data.fields.cell}"


def campaign() -> Dashboard:
    """The dashboard of a campaign's results, by any of its axes."""
    panels = [
        claims(high=9),
        _measures(),
        _measures_over_runs(),
        *(_figure(*figure) for figure in _FIGURES),
        *(_bars(*bars) for bars in _BARS),
        _cells(),
        Panel(
            "Parameters in effect", "Of switch ports, hosts and workloads, and the cells in which they apply.",
            {"": 'SELECT last("setting") AS "value", last("packets") AS "packets", last("bytes") AS "bytes",'
                 f' last("delay_us") AS "delay" FROM "parameter" WHERE {_RUN} GROUP BY "parameter", "applies"'},
            "table", overrides=[column("delay", unit="µs"), column("bytes", unit="bytes")],
            transformations=[columns("parameter", "value", "packets", "bytes", "delay", applies="applies to")],
        ),
        Panel(
            "Claims over runs", "A row for each claim, a column for each run.",
            {"": f'SELECT last("verdict") AS "verdict" FROM "claim" WHERE {_CAMPAIGN} GROUP BY "claim", "run"'},
            "table", transformations=[matrix("run", "claim", "verdict")],
        ),
    ]  # fmt: skip
    variables = [
        *_RUNS,
        Variable("axis", tag_values("axis", "axis", f"{_RUN} AND \"kind\" != 'constant'")),
        Variable("x", tag_values("axis", "axis", f"{_RUN} AND \"kind\" = 'number'")),
        Variable("line", tag_values("axis", "axis", f"{_RUN} AND \"kind\" = 'text'")),
        Variable("claim", tag_values("claim", "measure", _RUN)),
    ]
    return Dashboard("qbed-campaign", "qbed: campaign", variables, panels, ("now-30d", "now"))


def _measures() -> Panel:
    """The numbers of the claims of a run."""
    selected = {"point_estimate": "measured", "low": "from", "high": "to", "bound": "bound", "seeds": "seeds"}
    fields = ", ".join(f'last("{name}") AS "{name}"' for name in selected)
    return Panel(
        "Measures of the claims", "Averages over seeds, their 95 % confidence intervals, and the bounds of the claims.",
        {"": f'SELECT {fields} FROM "measure" WHERE {_RUN} GROUP BY "claim", "measure"'}, "table", high=9,
        empty="not judged yet", transformations=[columns("claim", "measure", **selected)],
    )  # fmt: skip


def _measures_over_runs() -> Panel:
    """The numbers of one claim in all runs of the campaign, with its bound as lines."""
    where = f"{chosen('campaign', 'claim')} AND $timeFilter GROUP BY"
    measured = f'SELECT last("point_estimate") FROM "measure" WHERE {where} time($__interval), "measure" fill(none)'
    bounds = {
        f"{title}$tag_measure": f'SELECT last("{name}") FROM "measure" WHERE {where} time($__interval), "measure"'
        " fill(previous)"
        for title, name in _BOUNDS.items()
    }
    return Panel(
        "${claim} over runs",
        "Averages over seeds. Dashed: the bounds of the claim, from the first run on.",
        {"$tag_measure": measured, **bounds},
        high=9,
        signed=True,
        empty="not judged yet",
        overrides=[_dashed(f"/^({'|'.join(_BOUNDS)})/")],
    )


_BOUNDS = {"at least: ": "lower_bound", "at most: ": "upper_bound"}
"""Fields of a bound's ends, by the beginning of the names of their series."""

_FIGURES = (
    ("Goodput", "goodput_bps", "bps", None),
    ("Completion time, 99th percentile", "fct_p99_ms", "ms", None),
    ("Deepest queue, packets", "max_packets", "short", "packets"),
    ("Queueing delay, longest", "max_delay_us", "µs", "delay_us"),
)
"""Title, field and unit, and the field of thresholds, targets and buffers."""


def _figure(title: str, field: str, unit: str, limit: str | None) -> Panel:
    """A field over the axis `x`, with a curve for each value of the axis `line`, and one for each limit."""
    help_ = "Mean over the cells with the same value of `x`, a curve for each value of `line`."
    queries = {"": _by_axes("axis_${line:raw}", field, "cell", ' AND "complete" = 1')}
    if limit is not None:
        help_ += " Dashed: thresholds, targets and buffers of switch ports, by the parameters in effect."
        queries["limits"] = _by_axes("limit_${x:raw}", limit, "limit")
    grouped = {"operation": "groupby", "aggregations": []}
    return Panel(
        f"{title} over ${{x}}", help_, queries, "trend", unit=unit, rows=True, empty="no axis of numbers",
        transformations=[
            *([transform("merge")] if limit else []),
            transform("groupBy", fields={"x": grouped, "line": grouped,
                                         "value": {"operation": "aggregate", "aggregations": ["mean"]}}),
            transform("sortBy", sort=[{"field": "x"}]),
            matrix("line", "x", "value (mean)"),
        ],
        options={"xField": "x\\line"},
        overrides=[column("x\\line", unit="none"), *([_dashed(f"/^{LIMIT}/")] if limit else [])],
    )  # fmt: skip


def _by_axes(curve: str, field: str, measurement: str, where: str = "") -> str:
    """Rows with their cell: Grafana merges rows of two queries that are equal."""
    return (
        f'SELECT "number_${{x:raw}}" AS "x", "{curve}" AS "line", "{field}" AS "value", "cell"'
        f' FROM "{measurement}" WHERE {_RUN}{where}'
    )


def _dashed(names: str) -> Json:
    """Dashed lines for the series with names that match a regular expression."""
    return {
        "matcher": {"id": "byRegexp", "options": names},
        "properties": [
            {"id": "custom.lineStyle", "value": {"fill": "dash", "dash": [8, 6]}},
            {"id": "custom.showPoints", "value": "never"},
        ],
    }


_BARS = (
    (
        "Flow completion time",
        "Mean and 99th percentile.",
        "ms",
        {"mean": "fct_mean_ms", "99th percentile": "fct_p99_ms"},
    ),
    ("Goodput", "All that was received, over the time of all flows.", "bps", {"goodput": "goodput_bps"}),
    ("Fairness", "Jain's index of the flows' goodput.", "none", {"Jain's index": "jain_index"}),
    ("Slowdown", "Completion time over that of an idle path.", "none", {"slowdown": "slowdown_mean"}),
    (
        "Deepest queue",
        "Packets: mean and maximum of the cell's queue that has the most.",
        "short",
        {"mean": "mean_packets", "most": "max_packets"},
    ),
    (
        "Queueing delay",
        "Mean and longest length of a queue over the rate of its link.",
        "µs",
        {"mean": "mean_delay_us", "longest": "max_delay_us"},
    ),
    ("Drops and marks", "Packets.", "short", {"drops": "dropped_packets", "marks": "marked_packets"}),
    ("Link use", "Of the busiest link while there are flows.", "percent", {"use": "use_percent"}),
)


def _bars(title: str, help_: str, unit: str, fields: dict[str, str]) -> Panel:
    """Means over the cells that have ended, by the values of the axis that is chosen, in its order."""
    means = ", ".join(f'mean("{field}") AS "{name}"' for name, field in fields.items())
    where = f"{_RUN} AND {chosen('axis')}"
    return Panel(
        f"{title} by ${{axis}}", help_,
        {"": f'SELECT {means}, min("position") AS "position" FROM "result" WHERE {where} GROUP BY "value"'},
        "barchart", unit=unit, wide=6, options={"xField": "value"},
        transformations=[
            transform("sortBy", sort=[{"field": "position"}]),
            transform("organize", excludeByName={"Time": True, "position": True}, indexByName={"value": 0},
                      renameByName={}),
        ],
    )  # fmt: skip


def _cells() -> Panel:
    """A bar for each cell, with a link to its samples."""
    span = "&from=${__data.fields.begin_ms}&to=${__data.fields.end_ms}"
    selected = ", ".join(f'last("{name}") AS "{name}"' for name in ("goodput_bps", "begin_ms", "end_ms"))
    return Panel(
        "Goodput of each cell", "Select a bar for the samples of its cell.",
        {"": f'SELECT {selected} FROM "cell" WHERE {_RUN} GROUP BY "cell"'}, "barchart", unit="bps", wide=24,
        options={"xField": "cell", "legend": {"calcs": [], "displayMode": "hidden", "placement": "bottom",
                                              "showLegend": False}},
        links=[data_link("samples of the cell", f"/d/qbed-live?{_TO_CELL}{span}")],
        overrides=[column("cell", unit="none"),
                   *(column(name, custom__hideFrom={"viz": True, "legend": True, "tooltip": True})
                     for name in ("begin_ms", "end_ms"))],
        transformations=[
            as_numbers("cell"),
            transform("sortBy", sort=[{"field": "cell"}]),
            columns("cell", "goodput_bps"),
        ],
    )  # fmt: skip


def schemes() -> Dashboard:
    """The dashboard of the schemes' statistics."""
    meanings = "\n".join(
        f"- {scheme.name}: " + "; ".join(f"`{s.name}` ({s.unit}) {s.help}" for s in scheme.statistics)
        for scheme in sorted(registry().values(), key=lambda scheme: scheme.name)
        if scheme.statistics
    )
    where = chosen("campaign", "run", "cell", "scheme")
    panels = [
        Panel(
            "Statistics of the queues", meanings,
            {"": f'SELECT last("value") AS "value" FROM "statistic" WHERE {where} GROUP BY "queue", "statistic"'},
            "table", wide=24, high=20, transformations=[matrix("statistic", "queue", "value")],
            empty="no queue of the cell has statistics",
        )
    ]  # fmt: skip
    variables = [
        *_RUNS,
        Variable("cell", tag_values("cell", "cell", _RUN), sort=4),
        Variable("scheme", tag_values("scheme", "statistic", f"{_RUN} AND {chosen('cell')}"), several=True),
    ]
    return Dashboard("qbed-schemes", "qbed: schemes", variables, panels, ("now-30d", "now"))


def machine() -> Dashboard:
    """Whether the testbed itself is healthy, during the newest run."""
    where = f"{_RUN} AND $timeFilter GROUP BY time($__interval) fill(none)"

    def numbers(*fields: str) -> dict[str, str]:
        return {name.replace("_", " "): f'SELECT mean("{name}") FROM "machine" WHERE {where}' for name in fields}

    stolen = f'SELECT non_negative_derivative(last("stolen_s"), 1s) FROM "machine" WHERE {where}'
    panels = [
        Panel("Cells", "How many run now, and how many have ended.", numbers("cells_running", "cells_ended")),
        Panel(
            "Spool", "Cells that have ended and whose points the server does not have all: it grows while it is down.",
            numbers("cells_waiting"),
        ),
        Panel("Load", "Processes that run or want to, and the cores that there are.", numbers("load", "cores")),
        Panel("Memory", "That is free or can be made so.", numbers("memory_free_bytes"), unit="bytes"),
        Panel("Disk", "Free where the run folder is.", numbers("disk_free_bytes"), unit="bytes"),
        Panel(
            "Stolen", "Seconds of this machine's cores that its host gave to others, in a second.", {"stolen": stolen},
            unit="s",
        ),
        Panel(
            "Lateness", "On the wall clock: how late a cell's timers ran, 99th percentile.",
            {"": f'SELECT last("late_p99_us") AS "late" FROM "cell" WHERE {_RUN} GROUP BY "cell"'}, "table", wide=24,
            overrides=[column("late", unit="µs")], transformations=[columns("cell", "late")],
            empty="none: virtual time is exact",
        ),
    ]  # fmt: skip
    variables = [
        Variable("campaign", 'SELECT last("campaign_name") FROM "run"', follows=True),
        Variable("run", 'SELECT last("run_name") FROM "run"', follows=True),
    ]
    return Dashboard("qbed-machine", "qbed: machine", variables, panels, ("now-15m", "now"))


def texts() -> dict[str, str]:
    """The files, by name."""
    made = {"now": now(), "live": live(), "campaign": campaign(), "schemes": schemes(), "machine": machine()}
    return {f"{name}.json": dumps(dashboard.json()) + "\n" for name, dashboard in made.items()}


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(exist_ok=True)
    for file, text in texts().items():
        (folder / file).write_text(text)
