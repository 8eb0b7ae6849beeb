# SPDX-License-Identifier: Apache-2.0
"""Measurements equal computed values: times to the nanosecond, rates to the byte, occupancies to the event."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qbed.testing import store_tables

from qbed_testing.pcap import read_pcap

HEADERS = 14 + 20 + 8  # Ethernet, IPv4, UDP: a frame without preamble and FCS, as everywhere in qbed
TCP_SHARE = Fraction(1448, 1514)  # payload in a full frame, with TCP time stamps

PAIR = """
name: pair
topology: {{star: {{hosts: 2}}}}
links: {{default: {{rate: {rate}, delay: {delay}}}}}
switches: {{default: {{scheme: droptail, buffer: 1000 packets}}}}
hosts: {{default: {{tcp: cubic}}}}
workload:
{workload}
observe: {{queues: summary}}
capture: [h1>s1, h2>s1]
duration: 100 ms
"""


def serialization_ns(frame_bytes: int, rate_bps: int) -> int:
    """The serialization time of a frame, to the nearest nanosecond."""
    return int(Fraction(frame_bytes * 8 * 10**9, rate_bps) + Fraction(1, 2))


@pytest.mark.parametrize(
    ("rate", "rate_bps", "delay", "delay_ns"),
    [
        ("10 Gbit/s", 10**10, "5 us", 5000),
        ("1 Gbit/s", 10**9, "40 us", 40_000),
        ("7 Gbit/s", 7 * 10**9, "1234 ns", 1234),  # no integer divisions
        ("100 Gbit/s", 10**11, "0 us", 0),
    ],
)
def test_one_way_times_equal_the_computed_times(
    run_cell: Callable[..., Any], rate: str, rate_bps: int, delay: str, delay_ns: int
) -> None:
    payloads = [18, 46, 98, 511, 1000, 1042, 1472]
    workload = "".join(
        f"  - udp: {{from: h1, to: h2, rate: 1 Mbit/s, packet: {size} B, size: {size} B, start: {1 + number} ms}}\n"
        for number, size in enumerate(payloads)
    )
    cell = run_cell(PAIR.format(rate=rate, delay=delay, workload=workload))
    sent = [packet for packet in read_pcap(cell.out / "h1-eth0.pcap") if packet.udp_payload is not None]
    received = [packet for packet in read_pcap(cell.out / "h2-eth0.pcap") if packet.udp_payload is not None]
    assert [packet.udp_payload for packet in sent] == payloads
    assert [packet.time_ns for packet in sent] == [(1 + number) * 1_000_000 for number in range(len(payloads))]
    measured = [receipt.time_ns - departure.time_ns for departure, receipt in zip(sent, received, strict=True)]
    assert measured == [2 * (serialization_ns(HEADERS + size, rate_bps) + delay_ns) for size in payloads]


def test_an_idle_round_trip_equals_the_computed_time(running_lab: Any) -> None:
    text = PAIR.format(rate="10 Gbit/s", delay="5 us", workload="  - flow: {from: h1, to: h2, size: 1 KB}")
    with running_lab(text.replace("capture: [h1>s1, h2>s1]\n", "")) as lab:
        status, output = lab.run("h1", "ping", "-c", "3", "-i", "0.2", "-s", "1000", "10.0.0.3")
    assert status == 0, output
    frame = 14 + 20 + 8 + 1000
    expected_us = (4 * (serialization_ns(frame, 10**10) + 5000)) / 1000
    times = [float(time) * 1000 for time in re.findall(r"time=([0-9.]+) ms", output)]
    assert len(times) == 3
    # ping includes its system calls and prints microseconds
    assert all(expected_us - 1 <= time <= expected_us + 6 for time in times), (times, expected_us)


READ_CLOCK_PAGE = """
import errno, mmap, os, struct, time

gate = os.open("/dev/qgate", os.O_RDWR)
page = mmap.mmap(gate, 8, mmap.MAP_SHARED, mmap.PROT_READ)
for pause in range(40):
    shown = struct.unpack_from("Q", page)[0]
    assert shown == time.monotonic_ns(), (pause, shown)
    time.sleep(pause * 1e-5)
assert struct.unpack_from("Q", page)[0] - shown >= 390_000
try:
    mmap.mmap(gate, 8, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
except OSError as error:
    print(errno.errorcode[error.errno])
"""


def test_the_clock_page_equals_the_clock(running_lab: Any) -> None:
    """The agent reads the page instead of calling the kernel (docs/formats.md §2); it is read-only."""
    text = PAIR.format(rate="10 Gbit/s", delay="5 us", workload="  - flow: {from: h1, to: h2, size: 1 KB}")
    with running_lab(text.replace("capture: [h1>s1, h2>s1]\n", "")) as lab:
        status, output = lab.run("h1", "python3", "-c", READ_CLOCK_PAGE)
    assert (status, output.strip()) == (0, "EPERM")


def test_a_links_rate_is_exact_over_a_second(run_cell: Callable[..., Any]) -> None:
    """A saturated link starts a frame at each multiple of the frame time: 8 x 1042 / 1 Gbit/s = 8336 ns."""
    text = PAIR.replace("capture: [h1>s1, h2>s1]\n", "").replace("100 ms", "1 s")
    workload = "  - udp: {from: h1, to: h2, rate: 1.1 Gbit/s, packet: 1000 B}"
    cell = run_cell(text.format(rate="1 Gbit/s", delay="40 us", workload=workload))
    frames = -(-(10**9) // 8336)  # frames that start before the end
    sender = cell.counters().links[0].a
    assert sender.sent == frames
    assert sender.tx_bytes == frames * 1042


@pytest.mark.parametrize("flows", [1, 8, 36])
def test_concurrent_flows_fill_the_link(run_cell: Callable[..., Any], flows: int) -> None:
    """From 100 to 200 ms, the flows together have the goodput of a single sender."""
    text = f"""
name: fill
topology: {{dumbbell: {{left: {flows}, right: {flows}}}}}
links: {{default: {{rate: 10 Gbit/s, delay: 5 us}}}}
switches: {{default: {{scheme: droptail, buffer: 4 MB}}}}
hosts: {{default: {{tcp: cubic}}}}
workload:
  - flows: {{from: h1..h{flows}, to: h{flows + 1}..h{2 * flows}, size: unlimited}}
observe: {{queues: summary}}
duration: DURATION
"""
    received = [
        sum(flow["received_bytes"] for flow in run_cell(text.replace("DURATION", duration)).flows())
        for duration in ("100 ms", "200 ms")
    ]
    goodput_bps = (received[1] - received[0]) * 8 * 10
    assert goodput_bps >= 0.99 * TCP_SHARE * 10**10
    assert goodput_bps <= 1.01 * TCP_SHARE * 10**10


@pytest.mark.parametrize("streams", [1, 36])
def test_unmodified_iperf3_fills_the_link(running_lab: Any, streams: int) -> None:
    text = PAIR.format(rate="10 Gbit/s", delay="5 us", workload="  - flow: {from: h1, to: h2, size: 1 KB}")
    text = text.replace("capture: [h1>s1, h2>s1]\n", "")
    with running_lab(text) as lab:
        lab.background("h2", "iperf3", "-s", "-1")
        # Since 3.16, iperf3 rounds the duration of a transfer of -n bytes up to a second.
        version = re.search(r"iperf (\d+)\.(\d+)", lab.run("h1", "iperf3", "--version")[1])
        assert version
        amount = ["-t", "1"] if tuple(map(int, version.groups())) >= (3, 16) else ["-n", "250M", "-i", "0"]
        status, output = lab.run("h1", "iperf3", "-c", "10.0.0.3", "-P", str(streams), "-f", "m", *amount)
    assert status == 0, output
    wanted = "SUM" if streams > 1 else "[0-9 ]+"
    found = re.findall(rf"\[\s*{wanted}\].*?([0-9.]+) Mbits/sec.*receiver", output)
    assert found, output
    assert float(found[-1]) >= 0.95 * float(TCP_SHARE) * 10_000, output


SPINNER = """
import signal, time
def on_alarm(*_):
    global fired
    fired = True
fired, begun = False, time.monotonic()
signal.signal(signal.SIGALRM, on_alarm)
signal.setitimer(signal.ITIMER_REAL, 0.3)
while not fired:
    pass
print(time.monotonic() - begun)
"""


def test_a_busy_loop_does_not_stop_the_clock(running_lab: Any) -> None:
    text = PAIR.format(rate="10 Gbit/s", delay="5 us", workload="  - flow: {from: h1, to: h2, size: 1 KB}")
    with running_lab(text.replace("capture: [h1>s1, h2>s1]\n", "")) as lab:
        status, output = lab.run("h1", "python3", "-c", SPINNER)
    assert status == 0, output
    assert float(output) == pytest.approx(0.3, abs=0.001), "the timer's signal arrives at its time"


QUEUES = {
    "droptail bytes": "{scheme: droptail, buffer: 64 KB}",
    "droptail packets": "{scheme: droptail, buffer: 40 packets}",
    "ecn": "{scheme: ecn, buffer: 128 KB, threshold: 20 packets}",
    "ecn in P4": "{kind: bmv2, scheme: ecn, buffer: 80 packets, threshold: 20 packets}",
    "codel in P4": "{kind: bmv2, scheme: codel, buffer: 80 packets, target: 20 us, interval: 500 us, ecn: off}",
    "codel": "{scheme: codel, buffer: 128 KB, target: 20 us, interval: 500 us}",
    "stock fq_codel": '{qdisc: "fq_codel limit 60 flows 64 target 20us interval 500us ecn"}',
    "stock fq": '{qdisc: "fq limit 100 flow_limit 50"}',
    "stock pfifo_fast": '{qdisc: "pfifo_fast"}',
    "stock red": '{qdisc: "red limit 128000 min 15000 max 45000 avpkt 1500 burst 20 bandwidth 10gbit ecn"}',
    "stock pie": '{qdisc: "pie limit 100 target 50us tupdate 200us ecn"}',
    "stock sfq": '{qdisc: "sfq limit 60"}',
}


@pytest.mark.parametrize("queue", QUEUES.values(), ids=QUEUES.keys())
def test_the_taps_mean_is_the_integral_of_its_events(run_cell: Callable[..., Any], queue: str) -> None:
    cell = run_cell(f"""
name: tap
topology: {{star: {{hosts: 4}}}}
links: {{default: {{rate: 10 Gbit/s, delay: 5 us}}}}
switches: {{default: {queue}}}
hosts: {{default: {{tcp: dctcp}}}}
workload:
  - incast: {{senders: 3, receiver: h1, size: 2 MB, start: 1 ms}}
observe: {{queues: summary, ports: {{s1>h1: every packet}}}}
duration: 20 ms
""")
    taps = cell.taps("s1>h1")
    events = np.concatenate(taps["events"])
    summary = taps["summary"]
    states = events[events["op"] != 4]  # a mark changes no occupancy
    times = np.append(states["time_ns"], 20_000_000).astype(np.int64)
    spans = np.diff(times)
    assert len(events) > 1000
    assert np.all(spans >= 0)
    # Some qdiscs enqueue a packet and drop another in one step; the tap's maximum is taken after the step.
    within = (states["op"][:-1] == 1) & (states["op"][1:] == 3) & (spans[:-1] == 0)
    settled = np.append(~within, True)
    for unit in ("bytes", "packets"):
        occupancy = states[f"queue_{unit}"].astype(np.int64)
        assert int(np.sum(occupancy * spans)) == int(summary["byte_ns" if unit == "bytes" else "packet_ns"])
        assert int(occupancy[settled].max()) == int(summary[f"max_{unit}"])
    count = {op: int(np.sum(events["op"] == op)) for op in (1, 2, 3, 4)}
    dropped = set(events["packet"][events["op"] == 3].tolist())
    # Packets that a P4 program drops after the queue.
    behind = len(dropped.intersection(events["packet"][events["op"] == 2].tolist()))
    assert count[2] == int(summary["sent_packets"]) + behind and (behind > 5) == ("codel, buffer: 80" in queue)
    assert count[3] == int(summary["dropped_packets"])
    assert count[4] == int(summary["marked_packets"]) and (count[4] > 100 or "scheme: ecn" not in queue)
    marked, left = (events["packet"][events["op"] == op].tolist() for op in (4, 2))
    assert set(marked) <= set(left) and len(set(marked)) == len(marked)
    assert int(summary["offered_packets"]) == sum(
        int(summary[field]) for field in ("sent_packets", "dropped_packets", "queue_packets")
    )
    histogram = taps["histogram"]
    wide = states["queue_bytes"].astype(np.int64) // histogram.bin_bytes
    expected = np.zeros(len(histogram.ns), dtype=np.int64)
    np.add.at(expected, np.minimum(wide, len(expected) - 1), spans)
    expected[0] += int(states["time_ns"][0])  # empty until the first event
    assert expected.tolist() == histogram.ns.astype(np.int64).tolist()


def test_tcp_options_determine_the_ideal_completion_time(run_cell: Callable[..., Any], tmp_path: Path) -> None:
    """The options of both ends determine the length of SYN, SYN-ACK and data headers."""
    options = [
        f"{{net/ipv4/tcp_{a}: {i & 1}, net/ipv4/tcp_{b}: {i >> 1 & 1}, net/ipv4/tcp_{c}: {i >> 2}}}"
        for a, b, c in [("timestamps", "sack", "window_scaling")]
        for i in range(8)
    ]
    hosts = ", ".join(f"h{i}: {{sysctls: {sysctls}}}" for i, sysctls in enumerate(options, 1))
    pairs = [pair for i in range(1, 9) for pair in ((i, 9), (9, i))]
    flows = ", ".join(f"flow: {{from: h{a}, to: h{b}, size: 1400 B, start: {n} ms}}" for n, (a, b) in enumerate(pairs))
    cell = run_cell(f"""
name: options
topology: {{star: {{hosts: 9}}}}
links: {{default: {{rate: 1 Gbit/s, delay: 5 us}}}}
hosts: {{{hosts}}}
workload: [{flows}]
duration: 20 ms
""")
    _, table = store_tables(cell, tmp_path)
    assert [row["fct_ns"] for row in table("flows")] == [row["ideal_fct_ns"] for row in table("flows")]
