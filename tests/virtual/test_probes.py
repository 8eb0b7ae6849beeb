# SPDX-License-Identifier: Apache-2.0
"""Probes in virtual time: latencies equal computed times, losses are counted, both directions have the DSCP."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from qbed.testing import CellOutput, run_lab, store_tables

from qbed_testing.pcap import Packet, read_pcap

Tables = Callable[[str], list[dict[str, Any]]]
LAB = """
name: probes
topology: {star: {hosts: 3}}
links: {default: {rate: 1 Gbit/s, delay: 5 us}, h2-s1: {rate: 100 Mbit/s, delay: 20 us}}
addressing: both
switches: {default: {scheme: droptail, buffer: 4 packets}}
hosts: {default: {tcp: cubic, rto_min: 2 ms}}
workload:
  - probes: {pairs: [[h1, h2]], interval: 1 ms, size: 100 B, dscp: EF, stop: 20 ms, label: idle}
  - probes: {from: h3, to: h2, interval: 333333 ns, size: 32 B, family: 6, dscp: LE, start: 200 us, stop: 5 ms,
            label: six}
  - flow: {from: h1, to: h2, size: 100 KB, start: 30 ms, dscp: AF41, label: tcp}
  - udp: {from: h3, to: h1, rate: 1 Mbit/s, size: 3 KB, start: 30 ms, dscp: CS1, label: udp}
  - probes: {from: h1, to: h2, interval: 100 us, size: 1 KB, start: 60 ms, stop: 80 ms, label: crowded}
  - udp: {from: h3, to: h2, rate: 150 Mbit/s, start: 61 ms, stop: 71 ms, label: crowd}
events:
  - {at: 9500 us, link: h2-s1, state: down}
  - {at: 12500 us, link: h2-s1, state: up}
capture: [h1>s1, h2>s1]
duration: 80050 us
"""


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory) -> CellOutput:
    return run_lab(Path(tmp_path_factory.mktemp("cell")), LAB)


@pytest.fixture(scope="module")
def tables(cell: CellOutput, tmp_path_factory: pytest.TempPathFactory) -> Tables:
    row, table = store_tables(cell, Path(tmp_path_factory.mktemp("tables")))
    assert (row["status"], row["contradictions"]) == ("complete", [])
    return table


def probes(tables: Tables, label: str) -> list[dict[str, Any]]:
    return sorted((row for row in tables("probes") if row["label"] == label), key=lambda row: int(row["probe"]))


def test_idle_latency_is_serialisation_and_propagation(tables: Tables) -> None:
    for label, headers, payload, delay_ns in (("idle", 42, 100, 25_000), ("six", 62, 32, 25_000)):
        frame = (headers + payload) * 8
        one_way = frame * 1 + frame * 10 + delay_ns  # ns per bit: 1 Gbit/s to the switch, 100 Mbit/s after it
        back = [row for row in probes(tables, label) if not row["lost"]]
        assert len(back) > 10
        for row in back:
            assert (row["forward_ns"], row["reverse_ns"], row["rtt_ns"]) == (one_way, one_way, 2 * one_way)


def test_each_probe_is_sent_at_its_time(tables: Tables) -> None:
    idle, six = (probes(tables, label) for label in ("idle", "six"))
    assert [row["sent_ns"] for row in idle] == [1_000_000 * number for number in range(20)]
    assert [row["sent_ns"] for row in six] == [200_000 + 333_333 * number for number in range(15)]
    assert {(row["src"], row["dst"], row["dscp"], row["workload"]) for row in idle} == {("h1", "h2", 46, 0)}
    assert {(row["src"], row["dst"], row["dscp"], row["workload"]) for row in six} == {("h3", "h2", 1, 1)}


def test_probes_on_a_failed_link_are_lost(tables: Tables) -> None:
    idle = probes(tables, "idle")
    assert [row["probe"] for row in idle if row["lost"]] == [10, 11, 12]
    assert all(row["rtt_ns"] is None and row["forward_ns"] is None for row in idle if row["lost"])
    # A probe has no delay variation if the previous one is lost.
    assert [row["probe"] for row in idle if row["ipdv_ns"] is None] == [0, 10, 11, 12, 13]
    (flow,) = (row for row in tables("flows") if row["label"] == "idle")
    assert (flow["segments_sent"], flow["segments_received"], flow["status"]) == (20, 17, "complete")
    assert flow["min_rtt_ns"] == flow["rtt_ns"] == idle[0]["rtt_ns"]


def test_queueing_adds_to_one_direction_and_drops_are_losses(cell: CellOutput, tables: Tables) -> None:
    crowded = probes(tables, "crowded")
    idle = min(row["rtt_ns"] for row in crowded if not row["lost"] and row["rtt_ns"])
    waited = [row for row in crowded if row["rtt_ns"] is not None and row["rtt_ns"] > idle]
    assert len(waited) > 10
    assert all(row["forward_ns"] - (row["rtt_ns"] - row["forward_ns"]) == row["rtt_ns"] - idle for row in waited)
    (flow,) = (row for row in tables("flows") if row["label"] == "crowded")
    lost = sum(row["lost"] is True for row in crowded)
    assert lost > 0 and flow["segments_sent"] == 200 == len(crowded)
    # The last probe is in flight at the lab's end: neither returned nor lost.
    assert crowded[-1]["lost"] is None and crowded[-1]["sent_ns"] == 79_900_000
    assert flow["segments_received"] == 200 - lost
    assert all(
        row["ipdv_ns"] == row["forward_ns"] - before["forward_ns"]
        for before, row in itertools.pairwise(crowded)
        if before["forward_ns"] is not None and row["forward_ns"] is not None
    )


def classes(packets: list[Packet], protocol: int) -> set[int]:
    ipv4 = [packet.data for packet in packets if packet.data[12:14] == b"\x08\x00" and packet.data[23] == protocol]
    return {data[15] >> 2 for data in ipv4}


def test_all_packets_of_a_workload_have_its_dscp_in_both_directions(cell: CellOutput) -> None:
    captures = [read_pcap(cell.out / f"{host}-eth0.pcap") for host in ("h1", "h2")]
    for packets in captures:
        assert classes(packets, 6) == {34}, "data, acknowledgements, SYN and FIN"
    tcp = [packet for packet in captures[0] if packet.data[12:14] == b"\x08\x00" and packet.data[23] == 6]
    assert len({packet.source for packet in tcp}) == 2
    assert classes(captures[0], 17) == {46, 8, 0}
    six = [packet.data for packet in captures[1] if packet.data[12:14] == b"\x86\xdd" and packet.data[20] == 17]
    assert {(data[14] & 15) << 2 | data[15] >> 6 for data in six} == {1}


def test_two_runs_with_probes_are_equal(cell: CellOutput, tmp_path: Path) -> None:
    assert run_lab(tmp_path, LAB).digest() == cell.digest()
