# SPDX-License-Identifier: Apache-2.0
"""Points of every measurement, for tests of the dashboards."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from influx import Server, served

from qbed.live.claims import claim_points
from qbed.live.moments import event_points
from qbed.live.points import MAX_FLOWS, Origin, Points, Queue, flow_points, queue_points
from qbed.live.results import (
    cell_numbers,
    cell_points,
    limit_points,
    machine_points,
    planned_points,
    progress_points,
    result_points,
    run_points,
    total_points,
)
from qbed.live.sinks.influx import Influx
from qbed.schemes.declaration import registry
from qbed.telemetry import tables

BEGUN_NS = 1_700_000_000 * 10**9
ORIGIN = Origin("look", "look-1", BEGUN_NS, 3)
QUEUES = [Queue("s1", f"s1>{name} (eth/{index}.0)", name, 10**9) for index, name in enumerate(registry())]
STEP_NS = 10_000
SAMPLES = 500
AXES: dict[str, list[Any]] = {"scheme": ["ecn", "abq"], "senders": [100, 20], "seed": [1]}
PARAMETERS = [
    {"name": f"switch ports: {name}", "where": where, "value": "x", "packets": 20.0, "bytes": 3e4, "time_ns": 1e5}
    for name, where in (("threshold", "scheme ecn; senders 20, 100"), ("target", "scheme abq"), ("buffer", ""))
]

ESTIMATES: list[dict[str, Any]] = [
    {"name": "drops", "group": {"scheme": "ecn"}, "bound": "-40 % to 50 %", "seeds": 3, "point_estimate": -7.0}
    | {"low": -8.0, "high": -6.0, "lower_bound": -0.4, "upper_bound": 0.5},
    {"name": "rate", "seeds": 1, "point_estimate": 2.5},
]


def table(name: str, rows: list[dict[str, Any]]) -> Any:
    return pa.Table.from_pylist(rows, schema=tables.CELL_SCHEMAS[name])


def all_points() -> Iterator[Points]:
    """Points of every measurement, of a cell with a queue of every scheme, sampled every 10 us."""
    yield from run_points(AXES, PARAMETERS, ORIGIN)
    yield planned_points(SAMPLES * STEP_NS, ORIGIN)
    yield progress_points({"cells": 4, "cells_ended": 3, "cells_running": 1, "left_s": 2.0}, 3, ORIGIN, BEGUN_NS + 5)
    rows: list[dict[str, Any]] = [
        dict[str, Any].fromkeys(tables.CELL_SCHEMAS["queue_series"].names, 0)
        | {"queue": queue, "port": QUEUES[queue].port, "time_ns": (step + 1) * STEP_NS, "interval_ns": STEP_NS}
        | {"mean_packets": float(step), "mean_bytes": 1514.0 * step, "max_packets": step, "dequeued": 8}
        | {"marked": step % 2, "dropped": int(step % 3 == 0)}
        for queue in range(len(QUEUES))
        for step in range(SAMPLES)
    ]
    yield queue_points(table("queue_series", rows), ORIGIN, QUEUES)
    times = range(STEP_NS, SAMPLES * STEP_NS, 100_000)
    kinds: dict[str, dict[str, Any]] = {
        "tcp_info": {"cwnd": 10, "rtt_ns": 20_000, "state": "open"},
        "rates": {"rate_bps": 10**9},
    }
    for index, (name, values) in enumerate(kinds.items()):
        flows = [{"flow": index, "time_ns": at, "acked_bytes": at // 8, **values} for at in times]
        yield flow_points(table(name, [*flows, {"flow": MAX_FLOWS, "time_ns": 1}]), ORIGIN, ["h1>h2"])
    queues = [
        {
            "queue": index, "node": queue.node, "port": queue.port, "discipline": queue.scheme,
            "rate_bps": 10**9, "duration_ns": 10**9, "sent_bytes": 250_000,
            "mean_bytes": 10.0, "mean_packets": 1.0,
            "xstats": [(statistic.name, 7.0) for statistic in registry()[queue.scheme].statistics] or None,
            **dict.fromkeys(("sent_packets", "max_bytes", "max_packets", "dropped_packets", "marked_packets"), 5),
            "offered_packets": 5,
        }
        for index, queue in enumerate(QUEUES)
    ]  # fmt: skip
    flows = [
        {"fct_ns": ns, "slowdown": 1.5, "goodput_bps": 8e9 / ns, "start_ns": 10**6, "end_ns": 10**6 + ns, "src": "h1"}
        for ns in (1_000_000, 4_000_000)
    ]
    row: dict[str, Any] = {"status": "complete", "seed": 1, "scheme": "ecn", "senders": 20, "flows": 2}
    row |= {"goodput_bps": 1e9, "dropped_packets": 1, "marked_packets": 3, "duration_ns": 10**9, "end_ns": 10**9}
    row |= {"evidence": json.dumps({"wall": {"late_p99_ns": 2500}})}
    yield from total_points(table("queues", queues), ORIGIN, 4_000_000)
    numbers = cell_numbers(row, table("flows", flows), table("queues", queues))
    yield result_points(numbers, row, AXES, ORIGIN)
    yield cell_points(numbers, row, table("flows", flows), AXES, ORIGIN)
    found = limit_points(PARAMETERS, row, 5_000_000, AXES, ORIGIN)
    assert found is not None
    yield found
    events = event_points([(10**6, "flow start", f"h{sender}>h1") for sender in range(9)], ORIGIN)
    assert events is not None and events.fields["text"].to_pylist() == ["h0>h1, h1>h1, h2>h1 and 6 more"]
    yield events
    verdict = {"name": "c", "verdict": "holds", "contradicted": False, "paper": 'It "holds",\nalways'}
    unexpected = {"name": "d", "verdict": "refuted", "contradicted": True, "paper": "It never drops."}
    yield from claim_points([verdict | {"estimates": ESTIMATES}, unexpected], ORIGIN)
    machine = ("cells_running", "cells_ended", "cells_waiting", "load", "cores", "memory_free_bytes", "disk_free_bytes")
    for second in range(60):
        measured = dict.fromkeys(machine, 1.0) | {"stolen_s": second / 10}
        yield machine_points(measured, "a-host", ORIGIN, BEGUN_NS + second * 10**9)


@contextmanager
def served_points(folder: Path) -> Iterator[Server]:
    """An InfluxDB with all points in the database `qbed`."""
    with served(folder) as server:
        sink: Influx = server.sink("qbed")
        for points in all_points():
            sink.write(sink.encode(points))
        yield server
