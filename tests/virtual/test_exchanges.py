# SPDX-License-Identifier: Apache-2.0
"""Requests and bursts in closed loops: latencies equal computed times, and pauses are drawn from the seed."""

from __future__ import annotations

import struct
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from qbed.testing import CellOutput, run_lab, store_tables

from qbed_testing.pcap import read_pcap

LAB = """
name: exchanges
topology: {dumbbell: {left: 2, right: 3}}
links: {default: {rate: 1 Gbit/s, delay: 10 us}}
switches: {default: {scheme: droptail, buffer: 100 KB}}
hosts: {default: {tcp: cubic}}
workload:
  - requests: {clients: h1, servers: h3, request: 100 B, response: 1000 B, think: 50 us, exchanges: 3, label: one}
  - requests: {pairs: [[h1, h3]], request: 100 B, response: 1000 B, connections: new,
      think: 100 us, start: 5 ms, stop: 6 ms, dscp: AF41, label: new}
  - requests: {clients: h1, servers: h3..h5, fanout: all, request: 100 B, response: 1 KB, think: {exponential: 100 us},
      start: 10 ms, stop: 14 ms, connect: before, label: all}
  - requests: {clients: h1, servers: h3..h5, fanout: 2, request: 1 KB, response: {uniform: [1 KB, 60 KB]},
      outstanding: 2, exchanges: 10, start: 20 ms, label: some}
  - onoff: {from: h2, to: h4, size: 50 KB, off: 1 ms, start: 40 ms, bursts: 3, dscp: CS1, label: bytes}
  - onoff: {from: h2, to: h5, on: 2 ms, off: {uniform: [1 ms, 2 ms]}, start: 50 ms, label: times}
capture: [h1>s1, h2>s1]
duration: 70 ms
"""
HEADERS = 14 + 20 + 32  # Ethernet, IP, TCP with its time stamps
SYN = 14 + 20 + 40
HOPS, DELAY_NS, NS_PER_BYTE = 3, 10_000, 8


def path_ns(frame: int) -> int:
    """The time of a frame over three idle links, store-and-forward."""
    return HOPS * (DELAY_NS + frame * NS_PER_BYTE)


ROUND_NS = path_ns(100 + HEADERS) + path_ns(1000 + HEADERS)
HANDSHAKE_NS = 2 * path_ns(SYN)
# The handshake's last ACK is sent before the request, and a quick ACK before the response.
FIRST_NS = HANDSHAKE_NS + ROUND_NS + 2 * HEADERS * NS_PER_BYTE

Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory) -> CellOutput:
    return run_lab(Path(tmp_path_factory.mktemp("cell")), LAB)


@pytest.fixture(scope="module")
def rows(cell: CellOutput, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Rows]:
    row, table = store_tables(cell, Path(tmp_path_factory.mktemp("tables")))
    assert (row["status"], row["contradictions"], row["flows"]) == ("complete", [], 0)
    found = table("exchanges")
    return lambda label: [row for row in found if row["label"] == label]


def test_an_exchange_takes_the_computed_time(rows: Callable[[str], Rows]) -> None:
    first, second, third = rows("one")
    assert first["connected_ns"] == HANDSHAKE_NS
    assert first["latency_ns"] == FIRST_NS
    assert [row["latency_ns"] for row in (second, third)] == [ROUND_NS, ROUND_NS]
    assert second["start_ns"] == first["end_ns"] + 50_000 and third["start_ns"] == second["end_ns"] + 50_000
    assert [(row["client"], row["server"], row["exchange"], row["connection"]) for row in (first, second, third)] == [
        ("h1", "h3", number, 0) for number in range(3)
    ]
    assert all(row["first_byte_ns"] == row["end_ns"] and row["query_ns"] == row["latency_ns"] for row in (first, third))
    assert (second["connected_ns"], second["request_bytes"], second["response_bytes"]) == (None, 100, 1000)


def test_a_new_connection_takes_a_handshake_per_exchange(rows: Callable[[str], Rows]) -> None:
    found = rows("new")
    assert [row["connection"] for row in found] == list(range(len(found))) and len(found) > 2
    assert {row["connected_ns"] - row["start_ns"] for row in found} == {HANDSHAKE_NS}
    ends = [row["end_ns"] for row in found]
    assert [row["start_ns"] for row in found] == [5_000_000, *(end + 100_000 for end in ends[:-1])]
    assert found[-1]["start_ns"] < 6_000_000 <= ends[-1] + 100_000, "no exchange starts after the stop"
    assert {row["latency_ns"] for row in found} == {FIRST_NS}


def test_a_query_ends_with_its_last_response(rows: Callable[[str], Rows]) -> None:
    found = rows("all")
    queries: dict[int, Rows] = {}
    for row in found:
        queries.setdefault(row["exchange"], []).append(row)
    assert len(queries) > 5
    gap = (1000 + HEADERS) * NS_PER_BYTE
    for query in queries.values():
        assert {row["server"] for row in query} == {"h3", "h4", "h5"} and {row["connected_ns"] for row in query} == {
            None
        }
        ends = [row["end_ns"] for row in query]
        assert [b - a for a, b in pairwise(ends)] == [gap, gap], "the responses share the last link"
        assert [row["query_ns"] for row in query] == [None, None, ends[-1] - query[0]["start_ns"]]
    pauses = {after[0]["start_ns"] - before[-1]["end_ns"] for before, after in pairwise(queries.values())}
    assert len(pauses) == len(queries) - 1, "each pause is drawn"


def test_a_client_has_several_outstanding_exchanges(rows: Callable[[str], Rows]) -> None:
    found = rows("some")
    assert {row["session"] for row in found} == {0, 1} and len(found) == 2 * 2 * 10
    for session in (0, 1):
        of_session = [row for row in found if row["session"] == session]
        assert len({(row["exchange"], row["server"]) for row in of_session}) == 20
        assert {row["server"] for row in of_session} == {"h3", "h4", "h5"}
        assert {row["connection"] for row in of_session} == {0, 1, 2}
    assert all(1_000 <= row["response_bytes"] <= 60_000 and row["first_byte_ns"] < row["end_ns"] for row in found)
    assert [row["response_bytes"] for row in found if row["session"] == 0] != [
        row["response_bytes"] for row in found if row["session"] == 1
    ]


def test_bursts_are_sequential(rows: Callable[[str], Rows]) -> None:
    sized, timed = rows("bytes"), rows("times")
    assert [(row["request_bytes"], row["response_bytes"], row["exchange"]) for row in sized] == [
        (50_000, 0, number) for number in range(3)
    ]
    back, ack = path_ns(8 + HEADERS), HEADERS * NS_PER_BYTE
    for before, after in pairwise(sized):
        # A burst ends with the receiver's confirmation, which may follow a delayed ACK.
        assert after["start_ns"] - before["end_ns"] - 1_000_000 in (back, back + ack)
    finished = [row for row in timed if row["status"] == "complete"]
    assert len(finished) > 2
    for before, after in pairwise(finished):
        assert 1_000_000 <= after["start_ns"] - before["end_ns"] - back <= 2_000_000 + ack
    # The data of 2 ms and of the socket's buffer.
    assert all(2_000_000 < row["latency_ns"] < 3_500_000 for row in finished[1:])
    assert all(200_000 < row["request_bytes"] < 400_000 for row in finished[1:])


def test_all_packets_of_requests_have_their_dscp_in_both_directions(cell: CellOutput) -> None:
    labels = {workload.port: workload.label for workload in cell.plan.workloads}
    classes: dict[str, set[tuple[str, int]]] = {label: set() for label in labels.values()}
    for host in ("h1", "h2"):
        for packet in read_pcap(cell.out / f"{host}-eth0.pcap"):
            if packet.data[12:14] != b"\x08\x00" or packet.data[23] != 6:
                continue
            source, destination = struct.unpack_from("!HH", packet.data, 34)
            direction = "back" if source in labels else "there"
            classes[labels[source if direction == "back" else destination]].add((direction, packet.data[15] >> 2))
    wanted = {label: {"new": 34, "bytes": 8}.get(label, 0) for label in classes}
    assert classes == {label: {("there", dscp), ("back", dscp)} for label, dscp in wanted.items()}
