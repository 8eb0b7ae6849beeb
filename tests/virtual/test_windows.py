# SPDX-License-Identifier: Apache-2.0
"""Windows: sums of queues exact to the nanosecond and of flows to the byte; they do not change the run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qbed.telemetry.taps import OPERATIONS
from qbed.testing import CellOutput, run_lab, store_tables

LAB = """
name: windows
topology: {dumbbell: {left: 2, right: 2}}
links: {default: {rate: 1 Gbit/s, delay: 5 us}}
switches: {default: {scheme: ecn, buffer: 40 packets, threshold: 20 packets}}
hosts: {default: {tcp: dctcp, rto_min: 2 ms, controller: timely}, h2: {tcp: cubic, ecn: "off"}}
workload:
  - flows: {pairs: [[h1, h3], [h2, h4]], size: unlimited, start: 100 us, label: tcp}
  - udp: {from: h1, to: h4, rate: 90 Mbit/s, packet: 1000 B, start: 1 ms, label: udp}
  - flow: {from: h2, to: h3, size: 200 KB, start: 2 ms, transport: rate, label: rate}
observe: {queues: every packet, WINDOWS}
duration: 20 ms
"""
WINDOWS = "from: 1000123 ns, until: 13 ms, windows: {early: {until: 7 ms}, late: {from: 7 ms}}"
BEGIN, END = 1_000_123, 13_000_000
PORT = "s1>s2"


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory) -> CellOutput:
    return run_lab(Path(tmp_path_factory.mktemp("cell")), LAB.replace("WINDOWS", WINDOWS))


@pytest.fixture(scope="module")
def tables(cell: CellOutput, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[dict[str, Any]]]:
    row, table = store_tables(cell, Path(tmp_path_factory.mktemp("tables")))
    assert (row["status"], row["contradictions"]) == ("complete", [])
    return table


def test_a_queues_window_equals_sums_over_its_events(
    cell: CellOutput, tables: Callable[[str], list[dict[str, Any]]]
) -> None:
    found = next(row for row in tables("queue_windows") if row["port"] == PORT and row["span"] == "main")
    events = np.concatenate(cell.taps(PORT)["events"])
    times, inside = events["time_ns"], (events["time_ns"] >= BEGIN) & (events["time_ns"] < END)
    # the queue's length from each event to the next one, within the window
    spans = np.clip(np.append(times[1:], END), BEGIN, END) - np.clip(times, BEGIN, END)
    assert spans.sum() == END - BEGIN == found["duration_ns"]
    assert found["byte_ns"] == int((events["queue_bytes"].astype(np.int64) * spans).sum())
    assert found["packet_ns"] == int((events["queue_packets"].astype(np.int64) * spans).sum())
    states = events[spans > 0]
    assert found["max_packets"] == states["queue_packets"].max() and found["max_bytes"] == states["queue_bytes"].max()
    bins = np.bincount(events["queue_bytes"] // found["bin_bytes"], spans).astype(int)
    assert found["histogram_ns"] == list(np.trim_zeros(bins, "b"))
    for name, op in (("sent_packets", "dequeue"), ("marked_packets", "mark"), ("dropped_packets", "drop")):
        assert found[name] == int((inside & (events["op"] == OPERATIONS.index(op))).sum())
    assert found["marked_packets"] > 0 and found["dropped_packets"] > 0, "the lab has no marks or drops"


def test_two_windows_add_up_to_the_run(tables: Callable[[str], list[dict[str, Any]]]) -> None:
    halves = [row for row in tables("queue_windows") if row["span"] in ("early", "late")]
    for total in tables("queues"):
        early, late = (row for row in halves if row["queue"] == total["queue"])
        for name in ("byte_ns", "packet_ns", "duration_ns", "sent_bytes", "dropped_packets", "marked_packets"):
            assert early[name] + late[name] == total[name], (total["port"], name)
        assert max(early["max_packets"], late["max_packets"]) == total["max_packets"]
        assert sum(early["histogram_ns"]) + sum(late["histogram_ns"]) == sum(total["histogram_ns"])
    spans = {row["span"]: row for row in tables("windows")}
    flows = {row["flow"]: row for row in tables("flows")}
    assert {row["transport"] for row in flows.values()} == {"tcp", "udp", "rate"}
    for number, flow in flows.items():
        parts = {row["span"]: row for row in tables("flow_windows") if row["flow"] == number}
        assert parts["early"]["received_bytes"] > 0
        received = sum(parts[name]["received_bytes"] for name in ("early", "late") if name in parts)
        assert received == flow["received_bytes"], flow["label"]
    received = sum(flow["received_bytes"] for flow in flows.values())
    assert spans["early"]["received_bytes"] + spans["late"]["received_bytes"] == received
    assert spans["early"]["flows_started"] == 4 and spans["late"]["flows_started"] == 0


def test_received_bytes_passed_the_last_queue(cell: CellOutput, tables: Callable[[str], list[dict[str, Any]]]) -> None:
    """Except for some packets in flight or out of order at the ends of the window."""
    received = {row["dst"]: row for row in tables("flow_windows") if row["span"] == "main" and row["label"] == "tcp"}
    for port, host in (("s2>h3", "h3"), ("s2>h4", "h4")):
        events = np.concatenate(cell.taps(port)["events"])
        passed = events[(events["op"] == 2) & (events["time_ns"] >= BEGIN) & (events["time_ns"] < END)]
        passed = passed[passed["protocol"] == 6]
        payload = int(passed["payload"].sum())
        assert payload > 100_000 and abs(received[host]["received_bytes"] - payload) < 45 * 1448


def test_windows_do_not_change_the_run(run_cell: Callable[[str], CellOutput], cell: CellOutput) -> None:
    plain = run_cell(LAB.replace(", WINDOWS", ""))
    assert plain.flows() == cell.flows()
    for port in (PORT, "s2>h3"):
        with_windows, without_windows = (np.concatenate(run.taps(port)["events"]) for run in (cell, plain))
        assert with_windows.tobytes() == without_windows.tobytes()
    assert not (plain.out / "windows.ndjson").exists()
