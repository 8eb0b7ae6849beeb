# SPDX-License-Identifier: Apache-2.0
"""Captures pause while their link is down and resume when it is up; captured frames have valid checksums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from qbed_testing.pcap import has_valid_checksum, read_pcap

MS = 1_000_000
LAB = """
name: failing
topology: {{star: {{hosts: 2}}}}
links: {{default: {{rate: 1 Gbit/s, delay: 5 us}}}}
switches: {{default: {{scheme: droptail, buffer: 1 MB}}}}
hosts: {{default: {{tcp: reno, rto_min: 10 ms}}}}
workload:
  - flow: {{from: h1, to: h2, size: 100 KB, start: 1 ms, label: before}}
  - flow: {{from: h1, to: h2, size: 100 KB, start: 30 ms, label: after}}
events: [{events}]
capture: [h1>s1, s1>h1, h2>s1]
duration: 50 ms
"""
DOWN, UP = "{{at: {}, link: h1-s1, state: down}}", "{{at: {}, link: h1-s1, state: up}}"


@pytest.mark.parametrize(
    "times", [("10 ms", "20 ms"), ("9990 us", "9991 us", "10010 us", "10011 us"), ("2 ms", "20 ms")]
)
def test_a_capture_pauses_with_its_link(run_cell: Callable[..., Any], times: tuple[str, ...]) -> None:
    events = ", ".join((DOWN, UP)[i % 2].format(time) for i, time in enumerate(times))
    cell = run_cell(LAB.format(events=events))
    assert [flow["status"] for flow in cell.flows()][-1] == "complete"
    for name in ("h1-eth0", "s1-eth0"):  # both ends of the failing link
        packets = [packet.time_ns for packet in read_pcap(cell.out / f"{name}.pcap")]
        assert [time for time in packets if time < 2 * MS] and [time for time in packets if time > 30 * MS], name
        assert not [time for time in packets if 10.5 * MS < time < 19.5 * MS], name
    full = [packet for packet in read_pcap(cell.out / "h1-eth0.pcap") if packet.time_ns > 30 * MS]
    assert sum(packet.length for packet in full) > 100_000, "frames are missing"


def test_a_capture_keeps_packets_from_before_the_failure(run_cell: Callable[..., Any]) -> None:
    cell = run_cell(LAB.format(events=DOWN.format("10 ms")))
    packets = [packet.time_ns for packet in read_pcap(cell.out / "h1-eth0.pcap")]
    assert packets and max(packets) < 10 * MS


BOTH_FAMILIES = """
name: families
topology: {{star: {{hosts: 2}}}}
links: {{default: {{rate: 1 Gbit/s, delay: 5 us}}}}
switches: {{default: {{scheme: droptail, buffer: 1 MB}}}}
addressing: both
workload:
  - flow: {{from: h1, to: h2, size: 50 KB, family: 4}}
  - flow: {{from: h1, to: h2, size: 50 KB, family: 6}}
  - udp: {{from: h2, to: h1, rate: 10 Mbit/s, packet: 501 B, start: 0 ms, stop: 5 ms}}
capture: [{{end: "{end}", snaplen: 64 KB}}]
duration: 10 ms
"""


@pytest.mark.parametrize("end", ["h1>s1", "s1>h1", "s1>h2", "h2>s1"])
def test_captured_frames_have_valid_checksums(run_cell: Callable[..., Any], end: str) -> None:
    """Links omit checksums of frames that are not captured; a captured frame has them."""
    cell = run_cell(BOTH_FAMILIES.format(end=end))
    assert {flow["status"] for flow in cell.flows()} == {"complete"}
    (capture,) = cell.out.glob("*.pcap")
    frames = [packet.data for packet in read_pcap(capture) if packet.data[12:14] in (b"\x08\x00", b"\x86\xdd")]
    frames = [data for data in frames if data[23 if data[12] == 8 else 20] in (6, 17)]
    assert len(frames) > 80
    assert all(map(has_valid_checksum, frames))
