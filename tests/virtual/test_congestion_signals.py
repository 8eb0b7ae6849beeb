# SPDX-License-Identifier: Apache-2.0
"""Signals from switches to senders of the transport `rate`: stamped queue lengths and QCN feedback."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from qbed.schemes.declaration import registry
from qbed.testing import CellOutput, store_tables

LAB = """
name: signals
topology: {{dumbbell: {{left: 3, right: 3}}}}
links: {{default: {{rate: 10 Gbit/s, delay: 5 us}}}}
switches: {{default: {switches}}}
hosts: {{default: {{controller: {controller}}}}}
addressing: {family}
workload: [flows: {{from: h1..h3, to: h4..h6, size: 8 MB, transport: rate}}]
observe: {{queues: 100 us, flows: 100 us}}
duration: 80 ms
"""


def statistics(cell: CellOutput, scheme: str, port: str = "s1>s2") -> dict[str, int]:
    return registry()[scheme].decode(bytes.fromhex(cell.counters().queues[cell.queue(port)].xstats))


@pytest.mark.parametrize("family", ["ipv4", "ipv6"])
@pytest.mark.parametrize("unit", ["packets", "bytes", "time"])
def test_stamped_signals_reach_the_senders(
    run_cell: Callable[..., CellOutput], tmp_path: Path, family: str, unit: str
) -> None:
    controller = f"{{name: timely, signal: max, unit: {unit}}}"
    switches = "{scheme: stamp, buffer: 200 packets}"
    cell = run_cell(LAB.format(switches=switches, controller=controller, family=family))
    row, table = store_tables(cell, tmp_path)
    assert (row["status"], row["contradictions"]) == ("complete", [])
    assert {flow["status"] for flow in table("flows")} == {"complete"}
    found = statistics(cell, "stamp")
    packets = cell.counters().queues[cell.queue("s1>s2")].packets
    assert packets - 4 <= found["stamped"] <= packets  # the others are of neighbour discovery
    assert found["left_out"] == found["malformed"] == 0
    # The largest stamped value is the bottleneck's longest queue without the departing packet.
    longest = int(cell.taps("s1>s2")["summary"]["max_packets"])
    unit_size = {"packets": 1, "bytes": 1514, "time": 1211.2}[unit]
    assert (longest - 2) * unit_size <= found["largest"] <= longest * unit_size + 1
    signals = [rate["signal"] for rate in table("rates") if rate["signal"] is not None]
    assert 0 < max(signals) <= max(found["largest"], 20 * unit_size)
    assert len(set(signals)) > 10


@pytest.mark.parametrize("family", ["ipv4", "ipv6"])
@pytest.mark.parametrize("reflect", [0, 1])
def test_feedback_of_a_congestion_point_lowers_the_rates(
    run_cell: Callable[..., CellOutput], tmp_path: Path, family: str, reflect: int
) -> None:
    """With `reflect` 1 the congestion point sends feedback, with 0 only the receivers do."""
    switches = f"{{scheme: qcn, buffer: 100 packets, reflect: {reflect}}}"
    text = LAB.format(switches=switches, controller="{name: reaction_point}", family=family)
    cell = run_cell(text)
    row, table = store_tables(cell, tmp_path)
    assert (row["status"], row["contradictions"]) == ("complete", [])
    assert {flow["status"] for flow in table("flows")} == {"complete"}
    found = statistics(cell, "qcn")
    assert found["written"] > 20
    assert (found["reflected"] > 0) == bool(reflect)
    assert found["unroutable"] == found["no_memory"] == found["malformed"] == 0
    # The senders start at line rate, three times the bottleneck's, and slow down.
    rates = [rate["rate_bps"] for rate in table("rates")]
    assert max(rates) > 9 * 10**9 and min(rates) < 5 * 10**9
    assert cell.digest() == run_cell(text).digest()


@pytest.mark.parametrize("family", ["ipv4", "ipv6"])
@pytest.mark.parametrize("forward", ["off", "on"])
def test_a_compact_header_shortens_data_and_acknowledgements(
    run_cell: Callable[..., CellOutput], tmp_path: Path, forward: str, family: str
) -> None:
    tables, found = {}, {}
    for header in ("full", "compact"):
        controller = f"{{name: timely, signal: max, bits: 4, forward: {forward}, header: {header}}}"
        switches = "{scheme: stamp, buffer: 200 packets}"
        cell = run_cell(LAB.format(switches=switches, controller=controller, family=family))
        folder = tmp_path / header
        folder.mkdir()
        row, table = store_tables(cell, folder)
        assert (row["status"], row["contradictions"], row["flows_complete"]) == ("complete", [], 3)
        tables[header], found[header] = table, statistics(cell, "stamp", "s2>s1")
    beneath = {"ipv4": 14 + 20 + 8, "ipv6": 14 + 40 + 8}[family]
    for header, length in (("full", 88), ("compact", 21)):
        queues = {queue["port"]: queue for queue in tables[header]("queues")}
        for flow in tables[header]("flows"):
            # IPv6 sends a few packets of neighbour discovery, too.
            data, acks = queues[f"{flow['src']}>s1"], queues[f"{flow['dst']}>s2"]
            others = {"ipv4": 0, "ipv6": 4}[family]
            assert 0 <= data["offered_packets"] - flow["segments_sent"] <= others
            expected = flow["sent_bytes"] + flow["segments_sent"] * (beneath + length)
            assert 0 <= data["offered_bytes"] - expected <= 100 * others
            assert 0 <= acks["offered_packets"] - flow["segments_received"] <= others
            expected = flow["segments_received"] * (beneath + length)
            assert 0 <= acks["offered_bytes"] - expected <= 100 * others
    # A forward signal ends at the receiver: the compact header has no second one to echo.
    acknowledgements = sum(flow["segments_received"] for flow in tables["compact"]("flows"))
    left = (found["compact"]["left_out"], found["compact"]["stamped"])
    assert left == ((acknowledgements, 0) if forward == "on" else (0, acknowledgements))
    assert found["full"]["left_out"] == 0
    signals = [{rate["signal"] for rate in tables[header]("rates")} - {None} for header in ("full", "compact")]
    # The lower bounds of 16 bins of 200 packets; a sender multiplies the share by the buffer.
    assert signals[1] <= {-(-200 * share // 16) for share in range(16)}
    assert len(signals[1]) > 4 and abs(max(signals[0]) - max(signals[1])) <= 13


def test_without_a_congestion_point_drops_are_more_frequent(
    run_cell: Callable[..., CellOutput], tmp_path: Path
) -> None:
    """Over drop-tail, the senders lose at least three times as many packets."""
    with_feedback, without_feedback = (
        run_cell(
            LAB.format(
                switches=f"{{scheme: {scheme}, buffer: 100 packets}}",
                controller="{name: reaction_point}",
                family="ipv4",
            )
        )
        for scheme in ("qcn", "droptail")
    )
    dropped = [int(cell.taps("s1>s2")["summary"]["dropped_packets"]) for cell in (with_feedback, without_feedback)]
    assert 0 < 3 * dropped[0] < dropped[1]
