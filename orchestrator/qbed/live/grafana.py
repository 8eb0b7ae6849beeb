# SPDX-License-Identifier: Apache-2.0
"""The dashboards: `python -m qbed.live.grafana FOLDER` writes a JSON file for each (`make generate`).

Schemes' own statistics come from `schemes/*/scheme.yml`: a new scheme has its panel without a line here.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from qbed.live.grafana_panels import Dashboard, Panel, Text, Variable, chosen
from qbed.live.points import EPOCH_NS, STRETCH
from qbed.schemes.declaration import registry

MS = 1_000_000
_STRETCHED = f"""\
**A millisecond here is a microsecond of the lab** (times are stretched by {STRETCH:,}), and every cell begins at \
2000-01-01 00:00:00 UTC: `00:00:01` is 1 ms of the lab, `00:01:40` is 100 ms. Grafana cuts times to milliseconds, of \
which samples every 10 us would be lost. Choose a longer range for a longer lab; zoom in for every sample."""
_CHOSEN = chosen("campaign", "run", "cell", "node", "queue")
_FLOWS = chosen("campaign", "run", "cell")


def _of_samples(field: str, measurement: str = "queue", by: str = "queue") -> str:
    where = _CHOSEN if measurement == "queue" else _FLOWS
    grouped = f'GROUP BY time($__interval), "{by}" fill(none)'
    return f'SELECT {field} FROM "{measurement}" WHERE {where} AND $timeFilter {grouped}'


def live() -> Dashboard:
    """The dashboard of one cell's queues, while it runs and afterwards."""
    flow = "$tag_flow"
    use = f'SELECT last("use_percent") FROM "total" WHERE {_CHOSEN} GROUP BY "queue"'
    rate = 'non_negative_derivative(last("acked_bytes"), 1s) * 8000'  # 1 s is 1 ms of the lab
    panels: list[Panel | Text] = [
        Text(_STRETCHED),
        Panel(
            "Occupancy, packets", "Time-weighted mean between two points, and the longest queue.",
            {"$tag_queue": _of_samples('mean("mean_packets")'), "$tag_queue, most": _of_samples('max("max_packets")')},
        ),
        Panel(
            "Occupancy, bytes", "Time-weighted mean.", {"$tag_queue": _of_samples('mean("mean_bytes")')}, unit="bytes",
        ),
        Panel("Marks", "Packets that were marked (ECN CE).", {"$tag_queue": _of_samples('sum("marked")')}),
        Panel("Drops", "Packets that were dropped.", {"$tag_queue": _of_samples('sum("dropped")')}),
        Panel(
            "Packets through the link", "What left the queue, in packets a second of the lab.",
            {"$tag_queue": _of_samples('sum("dequeued") / sum("interval_ns") * 1000000000')}, unit="pps",
        ),
        Panel(
            "Link use", "Bytes that left the queue, of what its link could carry; when the cell has ended.",
            {"$tag_queue": use}, kind="bargauge", unit="percent",
        ),
        Panel("Congestion window, packets", "Flows over TCP.", {flow: _of_samples('mean("cwnd")', "flow", "flow")}),
        Panel(
            "Round-trip time", "As the sender sees it.",
            {flow: _of_samples('mean("rtt_ns")', "flow", "flow")}, unit="ns",
        ),
        Panel("Goodput", "What was acknowledged.", {flow: _of_samples(rate, "flow", "flow")}, unit="bps"),
        Panel(
            "Rate", "Flows of the transport `rate`: what the controller allows.",
            {flow: _of_samples('mean("rate_bps")', "flow", "flow")}, unit="bps",
        ),
    ]  # fmt: skip
    names = ("campaign", "run", "cell")
    variables = [*(Variable(name, "queue") for name in names), *(Variable(n, "queue", True) for n in ("node", "queue"))]
    begin = _instant(EPOCH_NS)
    return Dashboard(
        "qbed-live", "qbed: live queues", variables, panels, (begin, _instant(EPOCH_NS + 100 * MS * STRETCH)), "1s"
    )


def _instant(time_ns: int) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(time_ns / 1e9, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")


def campaign() -> Dashboard:
    """The dashboard of a campaign's results, by any of its axes."""
    where = f"{chosen('campaign', 'run', 'axis')}"
    selected = ", ".join(f'last("{name}") AS "{name}"' for name in ("verdict", "as_expected", "sentence"))

    def by_value(field: str) -> str:
        return f'SELECT {field} FROM "result" WHERE {where} GROUP BY "value"'

    def bars(title: str, help_: str, unit: str, **queries: str) -> Panel:
        named = {f"$tag_value{' ' + name if name else ''}": by_value(query) for name, query in queries.items()}
        return Panel(title, help_, named, kind="bargauge", unit=unit, wide=8)

    panels: list[Panel | Text] = [
        Text("Numbers are means over the cells that have ended, grouped by the values of the axis that is chosen."),
        Panel(
            "Claims", "The sentences of the paper, and whether they hold here.",
            {"": f'SELECT {selected} FROM "claim" WHERE {chosen("campaign", "run")} GROUP BY "claim"'},
            kind="table", wide=24, high=9,
        ),
        bars(
            "Flow completion time", "Mean and 99th percentile.", "ms",
            mean='mean("fct_mean_ms")', p99='mean("fct_p99_ms")',
        ),
        bars("Goodput", "All that was received, over the time of all flows.", "bps", **{"": 'mean("goodput_bps")'}),
        bars("Fairness", "Jain's index of the flows' goodput.", "none", **{"": 'mean("jain_index")'}),
        bars("Slowdown", "Completion time over that of an idle path.", "none", **{"": 'mean("slowdown_mean")'}),
        bars("Drops and marks", "Packets.", "short", drops='mean("dropped_packets")', marks='mean("marked_packets")'),
        bars("Link use", "Of the busiest link.", "percent", **{"": 'mean("use_percent")'}),
        bars("Cells", "That are complete.", "none", **{"": 'sum("complete")'}),
        Panel(
            "Claims over runs", "1: holds. A point is a run, at its beginning.",
            {"$tag_claim": f'SELECT "holds" FROM "claim" WHERE {chosen("campaign")} AND $timeFilter GROUP BY "claim"'},
            kind="state-timeline", wide=16,
        ),
    ]  # fmt: skip
    variables = [Variable("campaign", "result"), Variable("run", "result"), Variable("axis", "result")]
    return Dashboard("qbed-campaign", "qbed: campaign", variables, panels, ("now-30d", "now"), "5s")


def schemes() -> Dashboard:
    """The dashboard of each scheme's statistics."""
    names = ("campaign", "run", "cell")
    panels: list[Panel | Text] = [
        Text("A table for each scheme; it is empty where no queue of the run has it.", high=2)
    ]
    for scheme in sorted(registry().values(), key=lambda scheme: scheme.name):
        if scheme.statistics:
            means = "\n".join(
                f"- `{statistic.name}` ({statistic.unit}): {statistic.help}" for statistic in scheme.statistics
            )
            columns = ", ".join(f'last("{statistic.name}") AS "{statistic.name}"' for statistic in scheme.statistics)
            query = (
                f'SELECT {columns} FROM "statistic" WHERE "scheme" = \'{scheme.name}\' AND {chosen(*names)}'
                ' GROUP BY "node", "queue"'
            )
            panels.append(Panel(f"{scheme.name}: {scheme.title}", means, {"": query}, kind="table", wide=24))
    variables = [Variable(name, "total") for name in names]
    return Dashboard("qbed-schemes", "qbed: schemes", variables, panels, ("now-30d", "now"), "5s")


def machine() -> Dashboard:
    """Whether the testbed itself is healthy."""
    where = f"{chosen('campaign', 'run', 'host')} AND $timeFilter GROUP BY time($__interval) fill(none)"

    def numbers(*fields: str) -> dict[str, str]:
        return {name.replace("_", " "): f'SELECT mean("{name}") FROM "machine" WHERE {where}' for name in fields}

    late = f'SELECT max("late_p99_us") FROM "result" WHERE {chosen("campaign", "run")} AND "axis" = \'seed\''
    panels = [
        Panel("Cells", "How many run now, and how many have ended.", numbers("cells_running", "cells_ended")),
        Panel(
            "Spool", "Cells that have ended and whose points the server does not have all: it grows while it is down.",
            numbers("cells_waiting"),
        ),
        Panel(
            "Lateness", "On the wall clock: how late a cell's timers ran, 99th percentile. Virtual time has none.",
            {"$tag_cell": f'{late} GROUP BY "cell"'}, kind="bargauge", unit="µs",
        ),
        Panel("Load", "Processes that run or want to, and the cores that there are.", numbers("load", "cores")),
        Panel("Memory", "That is free or can be made so.", numbers("memory_free_bytes"), unit="bytes"),
        Panel("Disk", "Free where the run folder is.", numbers("disk_free_bytes"), unit="bytes"),
        Panel(
            "Stolen", "Seconds of this machine's cores that its host gave to others, in a second.",
            {"stolen": f'SELECT non_negative_derivative(last("stolen_s"), 1s) FROM "machine" WHERE {where}'}, unit="s",
        ),
    ]  # fmt: skip
    variables = [Variable(name, "machine") for name in ("campaign", "run")]
    variables.append(Variable("host", "machine", True))
    return Dashboard("qbed-machine", "qbed: machine", variables, panels, ("now-15m", "now"), "5s")


def texts() -> dict[str, str]:
    """The files, by name."""
    made = {"live": live(), "campaign": campaign(), "schemes": schemes(), "machine": machine()}
    return {
        f"{name}.json": json.dumps(dashboard.json(), indent=1, ensure_ascii=False) + "\n"
        for name, dashboard in made.items()
    }


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(exist_ok=True)
    for file, text in texts().items():
        (folder / file).write_text(text)
