# SPDX-License-Identifier: Apache-2.0
"""`offload: tso`: TCP sends bursts to the host's queue, and the link carries them as back-to-back frames."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from qbed.base.errors import LabError
from qbed.substrates.containers.placement import Machine, place
from qbed.testing import CellOutput, store_tables, write_plan

from qbed_testing.pcap import read_pcap

STAR = """
name: offload
topology: {{star: {{hosts: 3}}}}
links: {{default: {{rate: 10 Gbit/s, delay: 5 us}}}}
switches: {{default: {{scheme: {scheme}}}}}
hosts: {{default: {{tcp: cubic, ecn: on, offload: {offload}}}}}
addressing: both
workload: [{{flows: {{from: h1..h2, to: h3, size: 16 MB, start: 1 ms, family: {family}}}}}]
capture: ["h1>s1"]
observe: {{ports: {{"h1>s1": every packet}}}}
duration: 200 ms
"""
FRAME = 1514


SCHEMES = [(4, "droptail, buffer: 200 KB"), (6, "rpm, target: 100 us, interval: 1 ms")]


@pytest.mark.parametrize(("family", "scheme"), SCHEMES)
def test_bursts_are_sent_as_frames(
    run_cell: Callable[..., CellOutput], tmp_path: Path, family: int, scheme: str
) -> None:
    cell = run_cell(STAR.format(offload="tso", family=family, scheme=scheme))
    row, _ = store_tables(cell, tmp_path)
    assert (row["status"], row["contradictions"]) == ("complete", [])
    assert {flow["status"] for flow in cell.flows()} == {"complete"}
    events = np.concatenate(cell.taps("h1>s1")["events"])
    sizes = events["bytes"][events["op"] == 2]
    assert sizes.max() > 60_000, "no burst was enqueued"

    # within a burst, each frame starts at the end of the previous one, to the nanosecond
    frames = [packet for packet in read_pcap(cell.out / "h1-eth0.pcap") if packet.length > 1000]
    assert max(packet.length for packet in frames) == FRAME
    assert sum(packet.length for packet in frames) > 16_000_000
    gaps = np.diff([packet.time_ns for packet in frames])
    frame_ns = np.array([packet.length for packet in frames[:-1]]) * 8 / 10
    assert (gaps >= np.floor(frame_ns)).all()
    assert (gaps <= np.ceil(frame_ns)).mean() > 0.6


def test_without_offload_each_packet_is_a_frame(run_cell: Callable[..., CellOutput]) -> None:
    cell = run_cell(STAR.format(offload='"off"', family=4, scheme="droptail, buffer: 200 KB"))
    events = np.concatenate(cell.taps("h1>s1")["events"])
    assert events["bytes"].max() == FRAME
    assert cell.plan.nodes[0].offload is None


@pytest.mark.parametrize("queue", ["128 KB", "20 packets", "{scheme: ecn}", "{qdisc: fq}"])
def test_offload_with_a_queue_that_signals_is_refused(tmp_path: Path, queue: str) -> None:
    lab = STAR.format(offload=f"tso, queue: {queue}", family=4, scheme="droptail")
    with pytest.raises(LabError, match="h1 has `offload: tso`: expected droptail of at least 1000 packets"):
        write_plan(tmp_path, lab)


def test_containers_have_no_offloads(tmp_path: Path) -> None:
    plan = write_plan(tmp_path, STAR.format(offload="tso", family=4, scheme="droptail"))
    with pytest.raises(LabError, match=r"h1.*h3: in containers every packet is a frame.*expected `offload: off`"):
        place(plan, Machine())
