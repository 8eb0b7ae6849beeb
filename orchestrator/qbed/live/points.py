# SPDX-License-Identifier: Apache-2.0
"""A cell's tables as points of time series; docs/service.md names the measurements, tags and fields.

A measurement has the same tags in every point, and no field has a tag's name: InfluxDB 3 makes tables of them. Points
with equal tags and times are one point, and equal cells give equal points: what is sent twice is there once.

Samples have stretched time: a nanosecond of the lab is a microsecond after `EPOCH_NS`. Grafana cuts times to
milliseconds (grafana#6252), of which 10 us of a lab are ten; and as no run's samples have anything to do with the time
of day, all begin at the same instant, so that one range of a dashboard shows any run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from qbed.telemetry.taps import SAMPLE_FIELDS

EPOCH_NS = 946_684_800 * 10**9
"""2000-01-01, midnight in UTC: the beginning of every cell."""
STRETCH = 1_000
QUEUE_TAGS = ("campaign", "run", "cell", "node", "queue", "scheme")
_RUN_TAGS = ("campaign", "run")
_CELL_TAGS = (*_RUN_TAGS, "cell")
TAGS = {
    "queue": QUEUE_TAGS,
    "flow": (*_CELL_TAGS, "flow"),
    "event": (*_CELL_TAGS, "kind"),
    "limit": (*_CELL_TAGS, "parameter"),
    "total": QUEUE_TAGS,
    "statistic": (*QUEUE_TAGS, "statistic"),
    "result": (*_CELL_TAGS, "axis", "value"),
    "cell": _CELL_TAGS,
    "claim": (*_RUN_TAGS, "claim"),
    "measure": (*_RUN_TAGS, "claim", "measure"),
    "run": _RUN_TAGS,
    "axis": (*_RUN_TAGS, "axis", "kind"),
    "parameter": (*_RUN_TAGS, "parameter", "applies"),
    "progress": _RUN_TAGS,
    "machine": (*_RUN_TAGS, "host"),
}
"""The tags of each measurement."""
MAX_SERIES = 200_000
"""The most series of samples, totals and statistics of one run. Of cells beyond, only results are sent."""
MAX_FLOWS = 100
"""Number of flows of a cell with sent samples: those that began first."""


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
    """A queue as tags have it: its switch or host, its port (`s1>h1`), its scheme. `rate_bps`: the rate of its link."""

    node: str
    port: str
    scheme: str
    rate_bps: int | None = None

    @property
    def tags(self) -> dict[str, str]:
        return {"node": self.node, "queue": self.port, "scheme": self.scheme}

    @property
    def ends(self) -> tuple[str, str]:
        """The nodes at both ends of its link, the one with the queue first."""
        source, _, target = self.port.partition(" ")[0].partition(">")
        return source, target


def queue_points(table: pa.Table, origin: Origin, queues: list[Queue]) -> Points:
    """Rows of `queue_series`, with the time that the mean length takes at the rate of the link."""
    tags = [origin.tags | queue.tags for queue in queues]
    fields = {"t_us": _us(table["time_ns"]), **{name: one(table[name]) for name in SAMPLE_FIELDS}}
    index = one(table["queue"])
    us_per_byte = pa.array([8e6 / queue.rate_bps if queue.rate_bps else None for queue in queues], pa.float64())
    fields["delay_us"] = pc.multiply(fields["mean_bytes"], us_per_byte.take(index))
    return Points("queue", tags, index, fields, stretched(table["time_ns"]))


def flow_points(table: pa.Table, origin: Origin, names: Sequence[str] = ()) -> Points:
    """Rows of `tcp_info` or `rates`, of the flows that are sent. `names`: of the first flows."""
    table = table.filter(pc.less(table["flow"], MAX_FLOWS))
    fields = {"t_us": _us(table["time_ns"])}
    fields |= {name: one(table[name]) for name in table.column_names if name not in ("cell", "flow", "time_ns")}
    tags = [
        origin.tags | {"flow": f"{flow} {names[flow]}" if flow < len(names) else str(flow)} for flow in range(MAX_FLOWS)
    ]
    return Points("flow", tags, one(table["flow"]), fields, stretched(table["time_ns"]))


def queues_of(table: pa.Table) -> list[Queue]:
    """The queues that a cell's table `queues` names, by their index."""
    columns = (table[name].to_pylist() for name in ("node", "port", "discipline", "rate_bps"))
    return [Queue(*row) for row in zip(*columns, strict=True)]


def same_time(
    measurement: str, tags: list[dict[str, str]], fields: Mapping[str, Any], origin: Origin, after_ns: int = 0
) -> Points:
    """A point for each of `tags`, at the beginning of the run or `after_ns` later."""
    times = pa.repeat(pa.scalar(origin.begun_ns + after_ns, pa.int64()), len(tags))
    return Points(measurement, tags, pa.array(range(len(tags)), pa.int64()), fields, times)


def one(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column as one array."""
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return column.dictionary_decode() if isinstance(column, pa.DictionaryArray) else column


def _us(times: pa.Array) -> pa.Array:
    return pc.divide(pc.cast(one(times), pa.float64()), 1e3)


def stretched(times: pa.Array) -> pa.Array:
    return pc.add(pc.multiply(one(times), STRETCH), EPOCH_NS)
