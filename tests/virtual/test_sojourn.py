# SPDX-License-Identifier: Apache-2.0
"""Sojourn times of any queue equal those computed from a record of every packet."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qbed.telemetry.sojourn import ECN, bin_from_ns
from qbed.telemetry.taps import OPERATIONS
from qbed.testing import CellOutput, run_lab, store_tables

QDISCS = {
    "s1>h1": "{scheme: ecn, buffer: 40 packets, threshold: 10 packets}",
    "s1>h2": '{qdisc: "fq_codel limit 100 target 500us interval 5ms ecn"}',
    "s1>h3": '{qdisc: "cake rtt 2ms"}',
    "s1>h4": '{qdisc: "prio"}',
    "s1>h5": "{scheme: rpm}",
    "s1>h6": '{qdisc: "netem delay 1ms 200us limit 50"}',
}
SLOW = ", ".join(f'"{port}": {{rate: 100 Mbit/s}}' for port in QDISCS)
FLOWS = ", ".join(f"[h{sender}, h{number}]" for number in range(1, len(QDISCS) + 1) for sender in (7, 8))
LAB = f"""
name: waits
topology: {{star: {{hosts: 8}}}}
links: {{default: {{rate: 1 Gbit/s, delay: 20 us}}, {SLOW}}}
switches: {{default: {{scheme: droptail}}, {", ".join(f'"{port}": {qdisc}' for port, qdisc in QDISCS.items())}}}
hosts: {{default: {{tcp: cubic, ecn: "on"}}, h8: {{tcp: cubic, ecn: "off"}}}}
workload:
  - flows: {{pairs: [{FLOWS}], size: unlimited, start: 100 us}}
  - udp: {{from: h7, to: h4, rate: 90 Mbit/s, packet: 1000 B, start: 1 ms}}
observe: OBSERVE
duration: 60 ms
"""
BOUND = 20_000_123
INTERVAL = 1_000_000

Waits = dict[tuple[str, str], list[tuple[int, int]]]
"""Departure time and sojourn time of each packet, by port and ECN field."""


@pytest.fixture(scope="module")
def every_packet(tmp_path_factory: pytest.TempPathFactory) -> CellOutput:
    return run_lab(Path(tmp_path_factory.mktemp("every")), LAB.replace("OBSERVE", "{queues: every packet}"))


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[dict[str, Any]]]:
    observe = f"{{queues: 1 ms, sojourn: true, windows: {{early: {{until: {BOUND} ns}}, late: {{from: {BOUND} ns}}}}}}"
    cell = run_lab(Path(tmp_path_factory.mktemp("cell")), LAB.replace("OBSERVE", observe))
    row, table = store_tables(cell, Path(tmp_path_factory.mktemp("tables")))
    assert (row["status"], row["contradictions"]) == ("complete", [])
    return table


@pytest.fixture(scope="module")
def waits(every_packet: CellOutput) -> Waits:
    found: Waits = defaultdict(list)
    for port in QDISCS:
        arrivals: dict[int, tuple[int, int]] = {}
        for event in np.concatenate(every_packet.taps(port)["events"]):
            if OPERATIONS[event["op"]] == "enqueue":
                ecn = (
                    2 if event["ecn"] == 3 else int(event["ecn"])
                )  # a packet that is marked on arrival arrived as ECT(0)
                arrivals[int(event["packet"])] = (int(event["time_ns"]), ecn)
            elif OPERATIONS[event["op"]] == "dequeue":
                at, ecn = arrivals[int(event["packet"])]
                found[port, ECN[ecn]].append((int(event["time_ns"]), int(event["time_ns"]) - at))
    return found


def assert_row(row: dict[str, Any], waited: list[int]) -> None:
    """Assert that a row describes the packets with these sojourn times."""
    values = np.sort(np.array(waited))
    assert (row["packets"], row["max_ns"]) == (len(values), values[-1])
    assert row["mean_ns"] == pytest.approx(values.mean(), rel=1e-12)
    for name, percent in (("p50_ns", 50), ("p99_ns", 99)):
        exact = values[-(-len(values) * percent // 100) - 1]
        assert exact <= row[name] <= exact + exact // 64, name
    if "bin_packets" in row:
        edges = np.array(row["bin_from_ns"])
        assert np.all(values <= row["bin_to_ns"][-1])
        places = np.searchsorted(edges, values, "right") - 1
        assert np.all(values <= np.array(row["bin_to_ns"])[places])
        assert list(np.bincount(places, minlength=len(edges))) == row["bin_packets"]


def test_sojourn_times_equal_those_of_all_packets(tables: Callable[[str], list[dict[str, Any]]], waits: Waits) -> None:
    rows = {(row["port"], row["ecn"]): row for row in tables("sojourns") if row["port"] in QDISCS}
    assert rows.keys() == waits.keys() and len({ecn for _, ecn in rows}) == 2
    for key, row in rows.items():
        assert_row(row, [ns for _, ns in waits[key]])
        assert row["dscp"] == 0 and row["role"] == "switch"
    by_port = {row["port"]: row for row in tables("queues")}
    for port in QDISCS:
        assert sum(row["packets"] for row in rows.values() if row["port"] == port) == by_port[port]["sent_packets"]
    assert rows["s1>h6", "ect0"]["bin_from_ns"][0] >= 700_000, "netem's delay is a wait"


def test_a_window_has_the_packets_that_left_in_it(tables: Callable[[str], list[dict[str, Any]]], waits: Waits) -> None:
    rows = {(row["span"], row["port"], row["ecn"]): row for row in tables("sojourn_windows") if row["port"] in QDISCS}
    for (port, ecn), left in waits.items():
        parts = {"early": [ns for at, ns in left if at < BOUND], "late": [ns for at, ns in left if at >= BOUND]}
        for span, waited in parts.items():
            if waited:
                assert_row(rows.pop((span, port, ecn)), waited)
    assert not rows


def test_a_series_has_the_packets_that_left_in_each_interval(
    tables: Callable[[str], list[dict[str, Any]]], waits: Waits
) -> None:
    rows = {(row["port"], row["ecn"], row["time_ns"]): row for row in tables("sojourn_series") if row["port"] in QDISCS}
    expected: dict[tuple[str, str, int], list[int]] = defaultdict(list)
    for (port, ecn), left in waits.items():
        for at, ns in left:
            expected[port, ecn, (at // INTERVAL + 1) * INTERVAL].append(ns)
    assert rows.keys() == expected.keys() and len(rows) > 300
    for key, waited in expected.items():
        assert_row(rows[key], waited)
        assert rows[key]["interval_ns"] == INTERVAL


ARRIVALS = """
name: arrivals
topology: {star: {hosts: 2}}
links: {default: {rate: 1 Gbit/s, delay: 5 us}, "s1>h2": {rate: 8336 kbit/s}}
switches: {default: {SWITCH}}
workload: [udp: {from: h1, to: h2, rate: 16 Mbit/s, packet: 1000 B, size: 20 kB}]
observe: {sojourn: true}
duration: 40 ms
"""


@pytest.mark.parametrize("switch", ["scheme: droptail", "scheme: droptail, kind: bmv2"])
def test_sojourn_times_equal_computed_times(run_cell: Callable[[str], CellOutput], tmp_path: Path, switch: str) -> None:
    """Packets of 1042 bytes arrive every 0.5 ms and take 1 ms each, so packet k waits k times 0.5 ms."""
    _, table = store_tables(run_cell(ARRIVALS.replace("SWITCH", switch)), tmp_path)
    (row,) = (row for row in table("sojourns") if row["port"] == "s1>h2")
    assert_row(row, [500_000 * k for k in range(20)])
    (host,) = (row for row in table("sojourns") if row["port"] == "h1>s1")
    assert (host["packets"], host["max_ns"], host["bin_from_ns"], host["bin_to_ns"]) == (20, 0, [0], [0])
    assert not (tmp_path / "sojourn_series.arrow").exists()


def test_bins_have_a_resolution_of_1_in_64() -> None:
    edges = bin_from_ns(np.arange(2241))
    assert edges[0] == 0 and edges[128] == 128 and edges[-1] == 1 << 40
    assert np.all(np.diff(edges) > 0) and np.all(np.diff(edges)[128:] * 64 <= edges[128:-1])
