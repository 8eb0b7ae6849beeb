# SPDX-License-Identifier: Apache-2.0
"""A cell's tables as points of time series; docs/service.md names the measurements, tags and fields.

A measurement has the same tags in every point, and no field has a tag's name: InfluxDB 3 makes tables of them. Points
with equal tags and times are one point, and equal cells give equal points: what is sent twice is there once.

Samples have stretched time: a nanosecond of the lab is a microsecond after `EPOCH_NS`. Grafana cuts times to
milliseconds (grafana#6252), of which 10 us of a lab are ten; and as no run's samples have anything to do with the time
of day, all begin at the same instant, so that one range of a dashboard shows any run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from qbed.base.json_files import Row
from qbed.telemetry.taps import SAMPLE_FIELDS

EPOCH_NS = 946_684_800 * 10**9
"""2000-01-01, midnight in UTC: the beginning of every cell."""
STRETCH = 1_000
QUEUE_TAGS = ("campaign", "run", "cell", "node", "queue", "scheme")
TAGS = {
    "queue": QUEUE_TAGS,
    "flow": ("campaign", "run", "cell", "flow"),
    "total": QUEUE_TAGS,
    "statistic": QUEUE_TAGS,
    "result": ("campaign", "run", "cell", "axis", "value"),
    "claim": ("campaign", "run", "claim"),
    "machine": ("campaign", "run", "host"),
}
"""The tags of each measurement."""
MAX_SERIES = 200_000
"""The most series of samples, totals and statistics of one run. Of cells beyond, only results are sent."""
MAX_FLOWS = 100
"""Number of flows of a cell with sent samples: those that began first."""
_TOTAL = ("mean_bytes", "mean_packets", "max_bytes", "max_packets", "sent_packets", "sent_bytes", "dropped_packets")


@dataclass(frozen=True)
class Points:
    """Points of one measurement. `series`: of each, the index of its tags. The first field has no nulls; other nulls,
    and floats that are no numbers, are left out.
    """

    measurement: str
    tags: list[dict[str, str]]
    series: Any
    fields: Mapping[str, Any]
    time_ns: Any

    def __len__(self) -> int:
        return len(self.time_ns)


@dataclass(frozen=True)
class Origin:
    """The source of points: a run of a campaign with its start, and a cell."""

    campaign: str
    run: str
    begun_ns: int
    cell: int = 0

    @property
    def tags(self) -> dict[str, str]:
        return {"campaign": self.campaign, "run": self.run, "cell": str(self.cell)}


@dataclass(frozen=True)
class Queue:
    """A queue as tags have it: its switch or host, its port (`s1>h1`), its scheme."""

    node: str
    port: str
    scheme: str

    @property
    def tags(self) -> dict[str, str]:
        return {"node": self.node, "queue": self.port, "scheme": self.scheme}


def queue_points(table: pa.Table, origin: Origin, queues: list[Queue]) -> Points:
    """Rows of `queue_series`."""
    tags = [origin.tags | queue.tags for queue in queues]
    fields = {"t_us": _us(table["time_ns"]), **{name: _one(table[name]) for name in SAMPLE_FIELDS}}
    return Points("queue", tags, _one(table["queue"]), fields, _stretched(table["time_ns"]))


def flow_points(table: pa.Table, origin: Origin) -> Points:
    """Rows of `tcp_info` or `rates`, of the flows that are sent."""
    table = table.filter(pc.less(table["flow"], MAX_FLOWS))
    fields = {"t_us": _us(table["time_ns"])}
    fields |= {name: _one(table[name]) for name in table.column_names if name not in ("cell", "flow", "time_ns")}
    tags = [origin.tags | {"flow": str(flow)} for flow in range(MAX_FLOWS)]
    return Points("flow", tags, _one(table["flow"]), fields, _stretched(table["time_ns"]))


def queues_of(table: pa.Table) -> list[Queue]:
    """The queues that a cell's table `queues` names, by their index."""
    columns = (table[name].to_pylist() for name in ("node", "port", "discipline"))
    return [Queue(*row) for row in zip(*columns, strict=True)]


def total_points(table: pa.Table, origin: Origin) -> Iterator[Points]:
    """Each queue's totals and its scheme's statistics, from the table `queues`."""
    queues = queues_of(table)
    rows = table.to_pylist()
    tags = [origin.tags | queue.tags for queue in queues]
    fields = {name: _one(table[name]) for name in ("sent_packets", *_TOTAL, "marked_packets", "offered_packets")}
    fields["use_percent"] = pa.array([_use(row) for row in rows], pa.float64())
    yield _at_once("total", tags, fields, origin)
    statistics = [dict(row["xstats"] or ()) for row in rows]
    for names in sorted({tuple(statistic_names) for statistic_names in statistics if statistic_names}):
        indices = [index for index, values in enumerate(statistics) if tuple(values) == names]
        columns = {name: pa.array([statistics[index][name] for index in indices], pa.float64()) for name in names}
        yield _at_once("statistic", [tags[index] for index in indices], columns, origin)


def result_points(row: Row, flows: pa.Table, totals: pa.Table, axes: list[str], origin: Origin) -> Points:
    """Return a cell's numbers: one point for each axis with the cell's value on it, so a query can select any axis.

    `row`: the cell's row of `cells`; `flows` and `totals`: its tables, or None if it has none.
    """
    evidence = row.get("evidence")
    numbers: Row = {
        "complete": int(row["status"] == "complete"),
        **{name: row.get(name) for name in ("flows", "flows_complete", "flows_failed", "goodput_bps")},
        **{name: row.get(name) for name in ("dropped_packets", "marked_packets", "retransmits", "timeouts")},
        "late_p99_us": _late(evidence),
        "frames_lost": _wall(evidence, "frames_lost"),
        **(_of_flows(flows) if flows is not None else {}),
    }
    if totals is not None:
        used = [use for total in totals.to_pylist() if (use := _use(total)) is not None]
        numbers["use_percent"] = max(used, default=None)
    integers = ("complete", "flows", "flows_complete", "flows_failed", "retransmits", "timeouts")
    kinds = {name: pa.int64() if name in integers or name.endswith("_packets") else pa.float64() for name in numbers}
    fields = {name: pa.array([value] * len(axes), kinds[name]) for name, value in numbers.items()}
    tags = [origin.tags | {"axis": axis, "value": str(row.get(axis))} for axis in axes]
    return _at_once("result", tags, fields, origin)


def claim_points(verdicts: list[Row], origin: Origin) -> Points:
    """The claims of a run: 1 for one that holds, 0 for another; `as_expected` is 0 if the results exclude the expected
    verdict.
    """
    run = {name: origin.tags[name] for name in ("campaign", "run")}
    tags = [run | {"claim": str(verdict["name"])} for verdict in verdicts]
    fields = {
        "holds": pa.array([int(verdict["verdict"] == "holds") for verdict in verdicts], pa.int64()),
        "as_expected": pa.array([int(not verdict["contradicted"]) for verdict in verdicts], pa.int64()),
        "verdict": pa.array([str(verdict["verdict"]) for verdict in verdicts], pa.string()),
        "sentence": pa.array([str(verdict["paper"]) for verdict in verdicts], pa.string()),
    }
    return _at_once("claim", tags, fields, origin)


def machine_points(numbers: Mapping[str, float], host: str, origin: Origin, now_ns: int) -> Points:
    """How this machine fares at one instant of its own clock."""
    tags = [{"campaign": origin.campaign, "run": origin.run, "host": host}]
    fields = {name: pa.array([float(value)]) for name, value in numbers.items()}
    return Points("machine", tags, pa.array([0]), fields, pa.array([now_ns], pa.int64()))


def _at_once(measurement: str, tags: list[dict[str, str]], fields: Mapping[str, Any], origin: Origin) -> Points:
    """A point for each of `tags`, at the beginning of the run."""
    times = pa.repeat(pa.scalar(origin.begun_ns, pa.int64()), len(tags))
    return Points(measurement, tags, pa.array(range(len(tags)), pa.int64()), fields, times)


def _of_flows(flows: pa.Table) -> Row:
    took = flows["fct_ns"].drop_null().to_numpy() / 1e6
    rates = flows["goodput_bps"].drop_null().to_numpy()
    slow = flows["slowdown"].drop_null().to_numpy()
    squares = float(np.sum(rates**2)) * len(rates)
    return {
        "fct_mean_ms": float(took.mean()) if len(took) else None,
        "fct_p50_ms": float(np.quantile(took, 0.5)) if len(took) else None,
        "fct_p99_ms": float(np.quantile(took, 0.99)) if len(took) else None,
        "slowdown_mean": float(slow.mean()) if len(slow) else None,
        "jain_index": float(np.sum(rates)) ** 2 / squares if squares else None,
    }


def _late(evidence: str | None) -> float | None:
    late = _wall(evidence, "late_p99_ns")
    return None if late is None else late / 1e3


def _wall(evidence: str | None, name: str) -> float | None:
    """A number of the evidence of a cell on the wall clock."""
    import json

    try:
        value = json.loads(evidence or "{}")["wall"].get(name)
    except (KeyError, TypeError, ValueError):
        return None
    return None if value is None else float(value)


def _use(row: Row) -> float | None:
    """The share of its link's rate that a queue sent, in percent."""
    room = (row["rate_bps"] or 0) * (row["duration_ns"] or 0)
    return row["sent_bytes"] * 8e11 / room if room else None


def _one(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column as one array."""
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return column.dictionary_decode() if isinstance(column, pa.DictionaryArray) else column


def _us(times: pa.Array) -> pa.Array:
    return pc.divide(pc.cast(_one(times), pa.float64()), 1e3)


def _stretched(times: pa.Array) -> pa.Array:
    return pc.add(pc.multiply(_one(times), STRETCH), EPOCH_NS)
