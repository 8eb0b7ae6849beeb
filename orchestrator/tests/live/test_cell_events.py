# SPDX-License-Identifier: Apache-2.0
"""A viewer gets the same of a cell while it runs and when it has ended."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from campaigns import LAB, write_lab
from synthetic import FULL, event, flow_sample, sample, write_out

from qbed.base.errors import MissingError
from qbed.base.json_files import write_sealed
from qbed.cells.arrow import read_cell
from qbed.cells.store_cell import store_cell
from qbed.live.cell_events import CellTail, Event, ended_cell
from qbed.live.cell_tables import totals
from qbed.network.load import load_lab
from qbed.plan.compile import compile_lab
from qbed.plan.model import Plan
from qbed.telemetry.tables import SCHEMAS, write_table


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run folder without cells."""
    (tmp_path / "run/cells").mkdir(parents=True)
    write_sealed(tmp_path / "run/campaign.json", {"substrate": {"name": "virtual", "dilation": 1}})
    return tmp_path / "run"


def packets_of(plan: Plan) -> int:
    """A queue without a series."""
    return max(index for index, queue in enumerate(plan.queues) if not queue.observe.interval_ns)


def start(run: Path) -> tuple[Path, Plan]:
    """A running cell with its files: samples of queues, one of which represents idle intervals, packets, and flows."""
    lab = LAB.replace("queues: 1 ms", "queues: 1 ms, flows: 1 ms")
    plan = compile_lab(load_lab(write_lab(run.parent / "lab", lab=lab)))
    cell = run / "cells/000003.tmp"
    (cell / "work").mkdir(parents=True)
    (cell / "work/plan.json").write_text(plan.dumps())
    write_out(plan, cell / "work")
    with (cell / "work/out/taps.bin").open("ab") as taps:
        taps.write(
            sample(
                0, 1_000_000, 1_000_000, dequeued=3, dequeued_bytes=3000, steady=18, steady_bytes=9, steady_packets=1
            )
        )
        packet = packets_of(plan)
        taps.write(
            event(packet, 2_000_000, 1, 0) + event(packet, 2_100_000, 4, 0) + event(packet, 5_000_000, 2, 0, 100)
        )
    rates = (flow_sample("tcp_info", at % 2, at * 10_000, delivery_bps=at * 7, ssthresh=None) for at in range(2000))
    (cell / "work/out/flow_samples.bin").write_bytes(b"".join(rates))
    return cell, plan


def watched(tail: CellTail) -> list[Event]:
    """All events until the cell's end."""
    events: list[Event] = []
    while not events or events[-1][0] != "cell-end":
        events += tail.poll()
    return events


def together(events: list[Event]) -> dict[tuple[str, int, int], list[float]]:
    """The columns of queues and the rates of flows, as the page puts them together."""
    found: dict[tuple[str, int, int], list[float]] = {}
    for kind, data in events:
        for key, column, *values in zip(*data.values(), strict=True) if kind in ("queues", "flows") else ():
            series = found.setdefault((kind, key, column), values)
            if kind == "flows":
                series[:] = values
            elif series is not values:
                ns = series[0] + values[0]
                mean = (series[2] * series[0] + values[2] * values[0]) / ns if ns else 0
                sums = [a + b for a, b in zip(series[4:], values[4:], strict=True)]
                series[:] = [ns, min(series[1], values[1]), mean, max(series[3], values[3]), *sums]
    return found


def assert_equal(first: dict[Any, list[float]], second: dict[Any, list[float]]) -> None:
    """Equal but for the means, which events have with one decimal."""
    assert first.keys() == second.keys()
    assert all(values == pytest.approx(second[key], abs=0.1) for key, values in first.items())


def test_an_ended_cell_gives_the_events_of_the_running_one(run: Path) -> None:
    cell, plan = start(run)
    tail = CellTail(run)
    first = tail.poll()
    assert [name for name, _ in first] == ["cell"] and not tail.awaited
    tables = run.parent / "tables"
    tables.mkdir()
    store_cell(cell / "work", plan, tables)
    ended = run / "cells/000003"
    shutil.copytree(tables, ended)
    shutil.rmtree(cell)
    seen = first + watched(tail)
    again = list(ended_cell(run, 3))
    assert again[0] == seen[0] and again[-1] == seen[-1] == ("cell-end", {"cell": 3})
    description = seen[0][1]
    nodes = description["nodes"]
    links = [(nodes[link["a"]], nodes[link["b"]], *link["queues"], link["rate_bps"]) for link in description["links"]]
    ends = [(link.a, link.b) for link in plan.links]
    names = [node.name for node in plan.nodes]
    assert sorted(links) == sorted((names[a.node], names[b.node], a.queue, b.queue, a.rate_bps) for a, b in ends)
    assert {kind for kind, _, _ in together(again)} == {"queues", "flows"}
    assert_equal(together(again), together(seen))
    number = packets_of(plan)
    queue = [values for (kind, key, _), values in sorted(together(again).items()) if kind == "queues" and key == number]
    assert sum(values[0] for values in queue) == plan.duration_ns, "its length is known from the start to the end"
    assert [sum(values[at] for values in queue) for at in (4, 5, 7)] == [1, 100, 1]
    assert_window(run, together(again), number)
    whole = totals(run, 3)
    assert whole["queues"]["port"] == description["queues"] and whole["flow_count"] == len(whole["flows"]["src"]) == 2
    # After the merge the run's tables have the cell among others.
    for name in ("queues", "queue_series", "queue_events", "tcp_info", "flows"):
        both = [batch for number in (2, 3) for batch in read_cell(ended / f"{name}.arrow", number)]
        write_table(run / f"{name}.parquet", SCHEMAS[name], both)
    shutil.rmtree(ended)
    assert totals(run, 3) == whole
    merged = list(ended_cell(run, 3))
    assert merged[0] == again[0]
    assert_equal(together(merged), together(seen))
    for missing in (ended_cell, totals):
        with pytest.raises(MissingError):
            missing(run, 4)


def test_a_cell_that_ended_before_its_files_were_opened_is_read_from_its_tables(run: Path) -> None:
    cell, plan = start(run)
    out = cell / "work/out"
    out.rename(run.parent / "out")  # the samples' files do not exist yet
    tail = CellTail(run)
    first = tail.poll()
    assert [name for name, _ in first] == ["cell"] and tail.awaited
    (run.parent / "out").rename(out)
    store_cell(cell / "work", plan, cell)
    shutil.rmtree(cell / "work")
    assert tail.poll() == []  # its folder does not have its final name yet
    cell.rename(run / "cells/000003")
    again = list(ended_cell(run, 3))
    assert watched(tail) == again and again[0] == first[0] and len(again) > 3


def test_a_cell_that_failed_before_its_files_were_opened_ends(run: Path) -> None:
    cell, _ = start(run)
    shutil.rmtree(cell / "work/out")
    tail = CellTail(run)
    assert [name for name, _ in tail.poll()] == ["cell"]
    cell.rename(run / "cells/000003.failed")
    assert watched(tail) == [("cell-end", {"cell": 3})]
    assert tail.poll() == []


def assert_window(run: Path, whole: dict[Any, list[float]], packets: int) -> None:
    """A window of ended cells has finer columns of the same samples."""
    name, description = next(events := ended_cell(run, 3, (4_000_000, 6_000_000)))
    assert name == "cell" and (description["from_ns"], description["bin_ns"]) == (4_000_000, 4_000)
    fine = together([*events])
    queue = {column: values for (kind, key, column), values in fine.items() if (kind, key) == ("queues", packets)}
    assert sum(values[0] for values in queue.values()) == 2_000_000 and max(queue) == 499
    assert [sum(values[at] for values in queue.values()) for at in (4, 5, 7)] == [1, 100, 0], "the mark was before it"
    assert queue[0][1:4] == [FULL] * 3 and queue[499][1:4] == [100] * 3
    rates = {column for kind, _, column in fine if kind == "flows"}
    assert len(rates) > len({column for kind, _, column in whole if kind == "flows" and 100 <= column < 150})


def test_invalid_files_end_a_viewers_cell(run: Path) -> None:
    cell, _ = start(run)
    with (cell / "work/out/flow_samples.bin").open("ab") as flows:
        flows.write(bytes(96))
    tail = CellTail(run)
    assert [name for name, _ in watched(tail)] == ["cell", "cell-end"]
