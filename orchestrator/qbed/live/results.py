# SPDX-License-Identifier: Apache-2.0
"""The results of a run as points: a cell's totals, numbers and statistics, the parameters in effect, the progress of
the run and the state of the machine.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeGuard

import numpy as np
import pyarrow as pa

from qbed.base.json_files import Row
from qbed.live.points import EPOCH_NS, STRETCH, Origin, Points, one, queues_of, same_time

MAX_STATISTICS = 1_000
"""The most statistics of schemes of one cell that are sent."""
MAX_PARAMETERS = 100
LIMIT = "limit: "
"""The beginning of the name of a limit's curve among the curves of measurements."""
EDGE_NS = 10_000_000
"""Length of the first and last part of a lab to which dashboards link."""
BINS = 400
"""Intervals of a lab's length on the dashboard of the newest cell."""
MS = 1_000_000
_TOTAL = ("mean_bytes", "mean_packets", "max_bytes", "max_packets", "sent_packets", "sent_bytes", "dropped_packets")
_COLORS = ("#9db4c0", "#5b8fb9", "#f2b134", "#ed7d31", "#b3001b")
"""Colours of a link by its use in fifths."""
_INTEGERS = ("complete", "flows", "flows_complete", "flows_failed", "retransmits", "timeouts")


def total_points(table: pa.Table, origin: Origin, active_ns: int | None) -> Iterator[Points]:
    """Each queue's totals and its scheme's statistics, from the table `queues`. `active_ns`: the time with flows."""
    queues = queues_of(table)
    rows = table.to_pylist()
    tags = [origin.tags | queue.tags for queue in queues]
    fields = {name: one(table[name]) for name in ("sent_packets", *_TOTAL, "marked_packets", "offered_packets")}
    used = [_use(row, active_ns) for row in rows]
    fields["use_percent"] = pa.array(used, pa.float64())
    for name in ("mean", "max"):
        delays = [_delay_us(row, f"{name}_bytes") for row in rows]
        fields[f"{name}_delay_us"] = pa.array(delays, pa.float64())
    fields["port"] = pa.array([queue.port for queue in queues])
    fields |= {name: pa.array([queue.ends[end] for queue in queues]) for end, name in enumerate(("source", "target"))}
    fields["color"] = pa.array([_COLORS[min(int((use or 0) // 20), 4)] for use in used])
    yield same_time("total", tags, fields, origin)
    statistics = [
        (tag | {"statistic": name}, float(value))
        for tag, row in zip(tags, rows, strict=True)
        if row["offered_packets"]
        for name, value in row["xstats"] or ()
    ][:MAX_STATISTICS]
    if statistics:
        names, values = zip(*statistics, strict=True)
        yield same_time("statistic", list(names), {"value": pa.array(values, pa.float64())}, origin)


def cell_numbers(row: Row, flows: pa.Table | None, totals: pa.Table | None) -> dict[str, Any]:
    """A cell's numbers, as arrays of one value. `row`: of `cells`; `flows` and `totals`: its tables, if it has them."""
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
        rows = totals.to_pylist()
        used = [use for total in rows if (use := _use(total, active_span(flows, row)[2])) is not None]
        numbers["use_percent"] = max(used, default=None)
        for name in ("mean_packets", "max_packets"):
            numbers[name] = max((total[name] for total in rows if total[name] is not None), default=None)
        for name in ("mean", "max"):
            delays = [delay for total in rows if (delay := _delay_us(total, f"{name}_bytes")) is not None]
            numbers[f"{name}_delay_us"] = max(delays, default=None)
    return {
        name: pa.array([value], pa.int64() if name in _INTEGERS or name.endswith("d_packets") else pa.float64())
        for name, value in numbers.items()
    }


def result_points(numbers: Mapping[str, Any], row: Row, axes: Mapping[str, list[Any]], origin: Origin) -> Points:
    """A cell's numbers, once for each axis with its value there and the value's position in the campaign: bars by any
    axis can be drawn in its order.
    """
    fields = {name: pa.repeat(array[0], len(axes)) for name, array in numbers.items()}
    positions = [[str(value) for value in values] for values in axes.values()]
    found = [str(row.get(axis)) for axis in axes]
    fields["position"] = pa.array(
        [known.index(value) if value in known else len(known) for known, value in zip(positions, found, strict=True)],
        pa.int64(),
    )
    tags = [origin.tags | {"axis": axis, "value": str(row.get(axis))} for axis in axes]
    return same_time("result", tags, fields, origin)


def planned_points(duration_ns: int, origin: Origin) -> Points:
    """A cell that begins."""
    return same_time("cell", [origin.tags], _span(0, duration_ns), origin)


def cell_points(
    numbers: Mapping[str, Any], row: Row, flows: pa.Table | None, axes: Iterable[str], origin: Origin
) -> Points:
    """A cell's numbers with its values of all axes: as text, and as a number if it is one."""
    fields = dict(numbers)
    for axis in axes:
        value = row.get(axis)
        fields[f"axis_{axis}"] = pa.array([str(value)])
        if is_number(value):
            fields[f"number_{axis}"] = pa.array([float(value)])
    begin_ns, end_ns, _ = active_span(flows, row)
    return same_time("cell", [origin.tags], fields | _span(begin_ns, end_ns), origin, after_ns=1)


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value of an axis is a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def active_span(flows: pa.Table | None, row: Row) -> tuple[int, int, int]:
    """When the first flow began and the last one ended, and the time between them; without flows, the whole cell."""
    end_ns = int(row.get("end_ns") or row.get("duration_ns") or 1)
    begin_ns = 0
    if flows is not None and flows.num_rows:
        starts, ends = (flows[name].drop_null().to_numpy() for name in ("start_ns", "end_ns"))
        begin_ns = max(int(starts.min()), 0) if len(starts) else 0
        if len(ends) == flows.num_rows:
            end_ns = int(ends.max())
    end_ns = max(end_ns, begin_ns + 1)
    return begin_ns, end_ns, end_ns - begin_ns


def _span(begin_ns: int, end_ns: int) -> dict[str, Any]:
    """Times on dashboards, in milliseconds of stretched time, and the length of an interval there."""
    edge = min(EDGE_NS, end_ns - begin_ns)
    times = {"begin": begin_ns, "first": begin_ns + edge, "last": end_ns - edge, "end": end_ns}
    fields = {f"{name}_ms": pa.array([panel_ms(time_ns)], pa.int64()) for name, time_ns in times.items()}
    bin_ms = -(-(end_ns - begin_ns) * STRETCH // (BINS * MS))
    return fields | {"bin_ms": pa.array([max(bin_ms, 1)], pa.int64())}


def panel_ms(time_ns: int) -> int:
    """A lab's time as Grafana's, in milliseconds, rounded up."""
    return -(-(EPOCH_NS + time_ns * STRETCH) // MS)


def run_points(axes: Mapping[str, list[Any]], parameters: list[Row], origin: Origin) -> Iterator[Points]:
    """A run that begins: its name, its axes with their values, and its parameters in effect. Fields of `run` have the
    values of its tags, so that a variable of a dashboard can be the last one.
    """
    run = {"campaign": origin.campaign, "run": origin.run}
    names = {"campaign_name": pa.array([origin.campaign]), "run_name": pa.array([origin.run])}
    yield same_time("run", [run], names, origin)
    if not axes:
        return
    kinds = {axis: _kind(values) for axis, values in axes.items()}
    if "text" not in kinds.values():  # figures need an axis for their curves
        kinds = {axis: "text" if kind == "constant" else kind for axis, kind in kinds.items()}
    tags = [run | {"axis": axis, "kind": kind} for axis, kind in kinds.items()]
    yield same_time("axis", tags, {"values": pa.array([len(values) for values in axes.values()], pa.int64())}, origin)
    if parameters:
        tags = [run | {"parameter": row["name"], "applies": row["where"] or "all cells"} for row in parameters]
        yield same_time("parameter", tags, {"setting": pa.array([row["value"] for row in parameters])}
                        | _amounts(parameters), origin)  # fmt: skip


def _kind(values: list[Any]) -> str:
    if len(values) < 2:
        return "constant"
    return "number" if all(map(is_number, values)) else "text"


def effective_parameters(content: Row) -> list[Row]:
    """The lines of a run's `parameters.json`: of each parameter its name, its value, and where it applies."""
    lines = [
        {"name": f"{group['name']}: {parameter['name']}", **line}
        for group in content["groups"]
        for parameter in group["parameters"]
        for line in parameter["lines"]
    ]
    return [{"where": str(row.get("where", "")), "value": str(row["value"]), **row} for row in lines[:MAX_PARAMETERS]]


def limit_points(parameters: list[Row], row: Row, end_ns: int, axes: Iterable[str], origin: Origin) -> Points | None:
    """Thresholds, targets and buffers of a cell's switch ports: a point at its beginning and one at its end, with the
    cell's numeric values of axes.
    """
    limits = {
        line["name"].rpartition(": ")[2]: line
        for line in parameters
        if line["name"].startswith("switch ports") and line.get("packets") is not None and _applies(line["where"], row)
    }
    if not limits:
        return None
    tags = [origin.tags | {"parameter": name} for name in limits for _ in range(2)]
    fields = _amounts([line for line in limits.values() for _ in range(2)])
    for axis in axes:
        if is_number(value := row.get(axis)):
            curves = [_curve(name, line["where"], axis) for name, line in limits.items() for _ in range(2)]
            fields |= {f"number_{axis}": pa.repeat(float(value), len(tags)), f"limit_{axis}": pa.array(curves)}
    times = pa.array([EPOCH_NS + at * STRETCH for _ in limits for at in (0, end_ns)], pa.int64())
    return Points("limit", tags, pa.array(range(len(tags)), pa.int64()), fields, times)


def _curve(name: str, where: str, axis: str) -> str:
    """The name of a limit's curve over an axis: with the values of the other axes to which it applies."""
    values = "; ".join(", ".join(values) for other, values in _conditions(where) if other != axis)
    return f"{LIMIT}{name}" + (f" ({values})" if values else "")


def _amounts(parameters: list[Row]) -> dict[str, Any]:
    amounts: dict[str, Any] = {
        name: pa.array([row.get(name) for row in parameters], pa.float64()) for name in ("packets", "bytes")
    }
    times = [row.get("time_ns") for row in parameters]
    return amounts | {"delay_us": pa.array([None if ns is None else ns / 1e3 for ns in times], pa.float64())}


def _conditions(where: str) -> Iterator[tuple[str, list[str]]]:
    """The axes and values of a parameter's line: `scheme ecn, abq; hosts linux`."""
    for condition in filter(None, where.split("; ")):
        axis, _, values = condition.partition(" ")
        yield axis, values.split(", ")


def _applies(where: str, row: Row) -> bool:
    """Whether a parameter's line applies to a cell."""
    return all(str(row.get(axis)) in values for axis, values in _conditions(where))


def progress_points(numbers: Mapping[str, int | float | None], cell: int | None, origin: Origin, at_ns: int) -> Points:
    """How far a run is: `cells` in total, and those that have ended or run. `cell`: the newest with points."""
    fields: dict[str, Any] = {
        name: pa.array([value], pa.float64() if name == "left_s" else pa.int64()) for name, value in numbers.items()
    }
    fields["cell_name"] = pa.array([None if cell is None else str(cell)], pa.string())
    tags = [{"campaign": origin.campaign, "run": origin.run}]
    return Points("progress", tags, pa.array([0]), fields, pa.array([at_ns], pa.int64()))


def machine_points(numbers: Mapping[str, float], host: str, origin: Origin, now_ns: int) -> Points:
    """How this machine fares at one instant of its own clock."""
    tags = [{"campaign": origin.campaign, "run": origin.run, "host": host}]
    fields = {name: pa.array([float(value)]) for name, value in numbers.items()}
    return Points("machine", tags, pa.array([0]), fields, pa.array([now_ns], pa.int64()))


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
    try:
        value = json.loads(evidence or "{}")["wall"].get(name)
    except (KeyError, TypeError, ValueError):
        return None
    return None if value is None else float(value)


def _use(row: Row, active_ns: int | None) -> float | None:
    """The share of its link's rate that a queue sent while there were flows, in percent."""
    room = (row["rate_bps"] or 0) * (active_ns or row["duration_ns"] or 0)
    return min(row["sent_bytes"] * 8e11 / room, 100.0) if room else None


def _delay_us(row: Row, bytes_: str) -> float | None:
    """The time that this many bytes take at the rate of the link."""
    return row[bytes_] * 8e6 / row["rate_bps"] if row["rate_bps"] and row[bytes_] is not None else None
