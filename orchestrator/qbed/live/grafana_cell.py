# SPDX-License-Identifier: Apache-2.0
"""The dashboards of one cell: the newest one, which is the home page, and any other one."""

from __future__ import annotations

from qbed.live.grafana_panels import (
    EPOCH_MS,
    LAB_TIME,
    LAB_TIME_UNIT,
    MARK,
    ON_LAB_TIME,
    Dashboard,
    Json,
    Panel,
    Variable,
    chosen,
    column,
    columns,
    data_link,
    link,
    tag_values,
    transform,
)
from qbed.live.points import EPOCH_NS, STRETCH
from qbed.live.results import panel_ms

_RUN = chosen("campaign", "run")
_CELL = chosen("campaign", "run", "cell")
_QUEUES = chosen("campaign", "run", "cell", "queue")
_SPAN = "time >= ${begin}ms AND time <= ${end}ms"
_NO_SERIES = "no series of queues"
_A_SECOND = '/ sum("interval_ns") * 1000000000'
_GOODPUT = 'non_negative_derivative(last("acked_bytes"), 1s) * 8000'  # 1 s is 1 ms of the lab
_HELP = "The horizontal axis is the time in the lab."
_AXES = "A millisecond on the axes is a microsecond of the lab, which begins at 00:00:00."
OF_CELL = "${campaign:queryparam}&${run:queryparam}&${cell:queryparam}"
CLAIMS = {
    "verdict": column(
        "verdict", custom__width=110,
        mappings=[{"type": "value", "options": {"undecided": {"text": "undecided", "color": "text"}}}],
    ),
    "as_expected": column(
        "as expected", custom__width=150, custom__cellOptions={"type": "color-text"},
        mappings=[{"type": "value", "options": {
            "0": {"text": "✗ not as expected", "color": MARK}, "1": {"text": "as expected", "color": "text"},
        }}],
    ),
    "sentence": column("sentence", custom__cellOptions={"type": "auto", "wrapText": True}),
    "claim": column("claim", custom__width=240),
}  # fmt: skip
"""Columns of claims: only results that are not as expected have a colour."""


def claims(wide: int = 24, high: int = 8) -> Panel:
    """The claims of the run."""
    selected = ", ".join(f'last("{name}") AS "{name}"' for name in ("verdict", "as_expected", "sentence"))
    return Panel(
        "Claims", "The sentences of the paper, and whether they hold here. They are judged at the end of the run.",
        {"": f'SELECT {selected} FROM "claim" WHERE {_RUN} GROUP BY "claim"'}, "table", wide=wide, high=high,
        overrides=[*CLAIMS.values()], empty="not judged yet",
        transformations=[columns("claim", "verdict", as_expected="as expected", sentence="sentence")],
    )  # fmt: skip


def topology(wide: int = 12, high: int = 12) -> Panel:
    """The links of a cell that has ended, coloured by use."""
    fields = {"port": "id", "source": "source", "target": "target", "use_percent": "mainstat", "color": "color"}
    selected = ", ".join(f'last("{field}") AS "{name}"' for field, name in fields.items())
    return Panel(
        "Topology", "Each edge is a queue that has sent packets, when the cell has ended. Its number and its colour are"
        " the use of its link, from grey to red.",
        {"": f'SELECT {selected} FROM "total" WHERE {_CELL} AND "sent_packets" > 0 GROUP BY "queue"'}, "nodeGraph",
        wide=wide, high=high, transformations=[columns("id")],
    )  # fmt: skip


def _binned(field: str, measurement: str = "queue", by: str = "") -> str:
    group = f', "{by}"' if by else ""
    where = f"{_CELL} AND {_SPAN}"
    return f'SELECT {field} FROM "{measurement}" WHERE {where} GROUP BY time(${{bin}}ms){group} fill(none)'


def _limits(field: str) -> str:
    return f'SELECT "{field}" FROM "limit" WHERE {_CELL} GROUP BY "parameter"'


def _tile(title: str, help_: str, field: str, unit: str, calculation: str) -> Panel:
    return Panel(
        title, help_, {title: _binned(field)}, "stat", unit=unit, wide=4, high=5, empty=_NO_SERIES,
        options={"reduceOptions": {"calcs": [calculation], "values": False}}, transformations=[columns()],
    )  # fmt: skip


def _curve(title: str, help_: str, unit: str = "short", high: int = 8, **queries: str) -> Panel:
    named = {name.replace("tag_", "$tag_"): query for name, query in queries.items()}
    return Panel(
        title, f"{help_} {_HELP}", named, "trend", unit=unit, high=high, empty="no series",
        options={"xField": LAB_TIME}, overrides=[LAB_TIME_UNIT], transformations=ON_LAB_TIME,
    )  # fmt: skip


def _of_progress(*fields: str) -> dict[str, str]:
    return {name: f'SELECT last("{name}") FROM "progress" WHERE {_RUN}' for name in fields}


def now() -> Dashboard:
    """The newest cell of the newest run, followed: the home page."""
    ended = _of_progress("cells_ended", "cells")
    panels = [
        Panel(
            "Cells", "Those that have ended, of all cells of the run.",
            {"ended": ended["cells_ended"], "of": ended["cells"]}, "stat", wide=4, high=5,
            options={"graphMode": "none"},
        ),
        Panel(
            "Time left", "At the pace of the cells that have ended.", _of_progress("left_s"), "stat", unit="s", wide=4,
            high=5, empty="no cell has ended", options={"graphMode": "none"},
        ),
        _tile("Deepest queue", "The most packets in a queue.", 'max("max_packets")', "short", "max"),
        _tile("Drops", "Packets dropped by queues.", 'sum("dropped")', "short", "sum"),
        _tile("Marks", "Packets marked by queues (ECN CE).", 'sum("marked")', "short", "sum"),
        _tile(
            "Queueing delay, 99th percentile", "Of each interval's longest delay: mean length over the link's rate.",
            'max("delay_us")', "µs", "p99",
        ),
        Panel(
            "Queues", f"The most packets in each queue. {_HELP} Select a queue for its samples.",
            {"$tag_queue": _binned('max("max_packets")', by="queue")}, "heatmap", high=11, empty=_NO_SERIES,
            overrides=[LAB_TIME_UNIT], transformations=ON_LAB_TIME,
            links=[data_link("samples of the queue", f"/d/qbed-live?{OF_CELL}&var-queue=${{__field.name}}"
                                                     "&from=${begin}&to=${end}")],
        ),
        _curve(
            "Deepest queue, packets", "The most packets in a queue; when the cell has ended, thresholds and buffers.",
            high=11, deepest=_binned('max("max_packets")'), tag_parameter=_limits("packets"),
        ),
        _curve(
            "Drops and marks", "In a second of the lab.", "pps",
            drops=_binned(f'sum("dropped") {_A_SECOND}'), marks=_binned(f'sum("marked") {_A_SECOND}'),
        ),
        _curve("Goodput", "Acknowledged bytes of each flow.", "bps", tag_flow=_binned(_GOODPUT, "flow", "flow")),
        claims(),
        topology(wide=24),
    ]  # fmt: skip
    of_cell = {name: f'SELECT last("{name}_ms") FROM "cell" WHERE {_CELL}' for name in _SPAN_NAMES}
    variables = [
        Variable("campaign", 'SELECT last("campaign_name") FROM "run"', follows=True),
        Variable("run", 'SELECT last("run_name") FROM "run"', follows=True),
        Variable("cell", f'SELECT last("cell_name") FROM "progress" WHERE {_RUN}', follows=True),
        *(Variable(name, query, follows=True, hidden=True) for name, query in of_cell.items()),
    ]
    return Dashboard(
        "qbed-now", "qbed: now", variables, panels, ("now-1h", "now"), links=_ranges(), time_picker=False
    )  # fmt: skip


_SPAN_NAMES = ("begin", "first", "last", "end", "bin")


def _ranges() -> list[Json]:
    """Links to parts of the cell, whose times are measurements."""
    parts = {"whole lab": ("begin", "end"), "first 10 ms": ("begin", "first"), "last 10 ms": ("last", "end")}
    return [
        link(title, f"/d/qbed-live?{OF_CELL}&from=${{{begin}}}&to=${{{end}}}") for title, (begin, end) in parts.items()
    ]


def _sampled(field: str, measurement: str = "queue", by: str = "queue") -> str:
    where = _QUEUES if measurement == "queue" else _CELL
    grouped = f'GROUP BY time($__interval), "{by}" fill(none)'
    return f'SELECT {field} FROM "{measurement}" WHERE {where} AND $timeFilter {grouped}'


def live() -> Dashboard:
    """The samples of one cell, in any part of its time."""
    queue, flow = "$tag_queue", "$tag_flow"
    panels = [
        Panel(
            "Packets in the queue", f"The most in an interval; thresholds and buffers when the cell has ended. {_AXES}",
            {queue: _sampled('max("max_packets")'), "$tag_parameter": _limits("packets")}, empty=_NO_SERIES,
        ),
        Panel(
            "Queueing delay", "Mean length of the queue over the rate of its link.",
            {queue: _sampled('mean("delay_us")'), "$tag_parameter": _limits("delay_us")}, unit="µs", empty=_NO_SERIES,
        ),
        Panel(
            "Queues", "The most packets in each queue.", {queue: _sampled('max("max_packets")')}, "heatmap",
            empty=_NO_SERIES, high=10,
        ),
        _queues(),
        Panel(
            "Marks", "Marked packets (ECN CE) in a second of the lab.",
            {queue: _sampled(f'sum("marked") {_A_SECOND}')}, unit="pps", wide=8, empty=_NO_SERIES,
        ),
        Panel(
            "Drops", "Dropped packets in a second of the lab.",
            {queue: _sampled(f'sum("dropped") {_A_SECOND}')}, unit="pps", wide=8, empty=_NO_SERIES,
        ),
        Panel(
            "Packets through the link", "Packets that left the queue, in a second of the lab.",
            {queue: _sampled(f'sum("dequeued") {_A_SECOND}')}, unit="pps", wide=8, empty=_NO_SERIES,
        ),
        Panel(
            "Goodput and rate", "What was acknowledged; for the transport `rate` also what the controller allows.",
            {
                flow: _sampled(_GOODPUT, "flow", "flow"),
                f"{flow}, allowed": _sampled('mean("rate_bps")', "flow", "flow"),
            },
            unit="bps", empty="no series of flows",
        ),
        Panel(
            "Round-trip time", "As the sender measures it.", {flow: _sampled('mean("rtt_ns")', "flow", "flow")},
            unit="ns", empty="no series of flows",
        ),
        Panel(
            "Congestion window, packets", "Flows over TCP.", {flow: _sampled('mean("cwnd")', "flow", "flow")},
            empty="no series of TCP flows",
        ),
        topology(),
    ]  # fmt: skip
    of_cell = {name: f'SELECT last("{name}_ms") FROM "cell" WHERE {_CELL}' for name in _SPAN_NAMES if name != "bin"}
    variables = [
        Variable("campaign", tag_values("campaign", "run"), sort=1),
        Variable("run", tag_values("run", "run", chosen("campaign")), sort=2),
        Variable("cell", tag_values("cell", "cell", _RUN), sort=4),
        Variable("queue", f'SHOW TAG VALUES FROM /^(queue|total)$/ WITH KEY = "queue" WHERE {_CELL}', several=True),
        *(Variable(name, query, hidden=True) for name, query in of_cell.items()),
    ]
    events = f'SELECT "text", "kind" FROM "event" WHERE {_CELL} AND $timeFilter'
    span = (_instant(0), _instant(100_000_000))
    return Dashboard(
        "qbed-live", "qbed: cell", variables, panels, span, links=_ranges(), annotations={"events": events}
    )  # fmt: skip


def _queues() -> Panel:
    """The queues of a cell that has ended, the deepest ones first."""
    shown: dict[str, tuple[str, Json]] = {
        "use_percent": (
            "use",
            {"unit": "percent", "max": 100, "custom.cellOptions": {"type": "gauge", "mode": "basic"}},
        ),
        "max_packets": ("most packets", {}),
        "mean_delay_us": ("mean delay", {"unit": "µs"}),
        "max_delay_us": ("longest delay", {"unit": "µs"}),
        "dropped_packets": ("drops", {}),
        "marked_packets": ("marks", {}),
    }
    selected = ", ".join(f'last("{name}") AS "{name}"' for name in shown)
    overrides = [
        {"matcher": {"id": "byName", "options": title}, "properties": [{"id": i, "value": v} for i, v in units.items()]}
        for title, units in shown.values()
        if units
    ]
    series = f"/d/qbed-live?{OF_CELL}&var-queue=${{__value.raw}}&from=${{begin}}&to=${{end}}"
    overrides.append(column("queue", links=[data_link("its series", series)]))
    return Panel(
        "Queues when the cell has ended", "The use of a link is that of the time from the first to the last flow.",
        {"": f'SELECT {selected} FROM "total" WHERE {_CELL} AND "sent_packets" > 0 GROUP BY "queue", "scheme"'},
        "table",
        high=10, overrides=overrides, empty="the cell runs",
        transformations=[
            columns("queue", "scheme", **{name: title for name, (title, _) in shown.items()}),
            transform("sortBy", sort=[{"field": "most packets", "desc": True}]),
        ],
    )  # fmt: skip


def _instant(time_ns: int) -> str:
    from datetime import UTC, datetime

    assert panel_ms(0) == EPOCH_MS
    seconds = (EPOCH_NS + time_ns * STRETCH) / 1e9
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
