# SPDX-License-Identifier: Apache-2.0
"""qcn's congestion point, packet by packet: the values written into data, and the feedback sent to its source."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import ceil
from pathlib import Path
from typing import Any

import pytest

from qbed.testing import CellOutput, assert_tcp_as_with_droptail

from qbed_testing.congestion import COMPACT, PORT, Flag, Header, Kind, Type, Unit
from qbed_testing.datagrams import SENDER, CapturedDatagram, Datagram, DatagramLab, padded_payload

LAB = """
name: qcn
topology: {{dumbbell: {{left: 1, right: 1}}}}
links:
  default: {{rate: 10 Gbit/s, delay: 5 us}}
  bottleneck: {{rate: 1 Gbit/s}}
  right: {{rate: 400 Mbit/s}}
switches: {{default: {{scheme: qcn, buffer: 200 packets{extra}}}, {ports}}}
hosts: {{default: {{queue: 1000 packets}}}}
addressing: both
duration: 1 s
"""
ADDRESSES = {4: ("10.0.0.1", "10.0.0.3"), 6: ("fd00::1", "fd00::3")}
ALL = ", min_sampling: 100 %, max_sampling: 100 %"
"""Every packet is sampled, so that the result is deterministic."""
EQUILIBRIUM, WEIGHT = 25, 2


@pytest.fixture
def bench(tc_plugins: None, tmp_path: Path, running_lab: Callable[[str], Any]) -> Callable[..., Any]:
    """Return bench(extra, ports): a context manager that starts the lab with additional parameters and per-port
    settings.
    """

    @contextmanager
    def up(extra: str = "", ports: str = "") -> Iterator[DatagramLab]:
        with running_lab(LAB.format(extra=extra, ports=ports)) as lab:
            yield DatagramLab(lab, tmp_path / "live")

    return up


def burst(count: int, length: int = 1000) -> list[Datagram]:
    """Data packets of both address families in turn."""
    return [
        Datagram(
            ADDRESSES[(4, 6)[number // 3 % 2]][1],
            padded_payload(Header(flow=5, sequence=1000 + number, time=77 + number), length),
        )
        for number in range(count)
    ]


def data(lab: DatagramLab, node: str, interface: str) -> list[CapturedDatagram]:
    return [datagram for datagram in lab.captured(node, interface) if datagram.ports == (SENDER, PORT)]


def feedback_of_s1(lab: DatagramLab) -> list[CapturedDatagram]:
    """Feedback that s1 sent to h1, without that of s2 which it forwarded."""
    return [
        datagram
        for datagram in lab.captured("s1", "eth0")
        if datagram.ports == (PORT, SENDER) and datagram.hop_limit == 64
    ]


def quantized(congestion: int, bits: int) -> int:
    scale = (1 + 2 * WEIGHT) * EQUILIBRIUM
    return ceil(min(congestion, scale) * ((1 << bits) - 1) / scale)


def samples(
    received: list[CapturedDatagram], forwarded: list[CapturedDatagram], bits: int = 6, equilibrium: int = EQUILIBRIUM
) -> list[tuple[int, int]]:
    """For each packet, if all are sampled: -Fb (0 if Fb is not negative), and its quantized value. If a packet arrives
    at the instant at which another leaves, its header shows which received first.
    """
    found, before = [], {0}
    for number, (entered, left) in enumerate(zip(received, forwarded, strict=True)):
        queues = {sum(sent.time_ns >= entered.time_ns + tie for sent in forwarded[:number]) for tie in (0, 1)}
        choices = {(q, max(0, q - equilibrium + WEIGHT * (q - old))) for q in queues for old in before}
        previous, current = entered.header.feedback, left.header.feedback
        fitting = [choice for choice in choices if max(previous, quantized(choice[1], bits)) == current] or list(
            choices
        )
        before = {queue for queue, _ in fitting}
        found.append((fitting[0][1], quantized(fitting[0][1], bits)))
    return found


@pytest.mark.parametrize("bits", [1, 6, 16])
def test_every_sample_is_written_and_reflected(bench: Callable[..., Any], bits: int) -> None:
    with bench(f"{ALL}, biased: off, bits: {bits}") as lab:
        lab.capture({"s1": "eth0 eth1"})
        lab.listen("h2")  # otherwise it sends ICMP errors
        before = counters(lab)
        socket_packets = lab.send("h1", burst(150))
        lab.sleep()
        after = counters(lab)
        found = lab.statistics("s1", "eth1")
    received, forwarded = data(lab, "s1", "eth0"), data(lab, "s1", "eth1")
    values, levels = zip(*samples(received, forwarded, bits), strict=True)
    assert len(levels) == len(forwarded) == 150
    assert sum(level > 0 for level in levels) > 50 and 0 in levels[:5]

    # Packets leave with the level, if there is one, and otherwise unchanged.
    for packet, left, level in zip(received, forwarded, levels, strict=True):
        header = packet.header
        if level:
            header = header._replace(feedback=level, feedback_bits=bits, flags=Flag.REFLECTED)
        assert left.header == header
        assert left.has_valid_checksums and left.payload[88:] == packet.payload[88:]

    # Feedback comes from the receiver's address, immediately and complete.
    feedback_packets = feedback_of_s1(lab)
    reflected = [(packet, level) for packet, level in zip(received, levels, strict=True) if level]
    assert len(feedback_packets) == len(reflected) == found["reflected"] == found["written"] == found["congested"]
    for feedback, (packet, level) in zip(feedback_packets, reflected, strict=True):
        assert (feedback.source, feedback.destination) == (packet.destination, packet.source)
        assert (
            feedback.has_valid_checksums
            and feedback.checksum
            and feedback.hop_limit == 64
            and feedback.payload == feedback.payload[:88]
        )
        expected = Header(
            type=Type.FEEDBACK,
            bits=0,
            flow=5,
            feedback=level,
            feedback_bits=bits,
            sequence=packet.header.sequence,
            time=feedback.header.time,
            echo_time=packet.header.time,
        )
        assert feedback.header == expected
        # both directions are idle except for feedback, also of s2: a frame of at most 150 bytes
        assert 0 <= feedback.time_ns - packet.time_ns <= 120
        assert feedback.header.time % 10**9 == packet.time_ns % 10**9  # CLOCK_MONOTONIC started a full second earlier
    assert {payload for *_, payload in socket_packets} >= {feedback.payload for feedback in feedback_packets}
    assert {(source, port) for source, port, _ in socket_packets} == {(to, PORT) for _, to in ADDRESSES.values()}
    assert (found["sampled"], found["unroutable"], found["no_memory"], found["dropped"]) == (150, 0, 0, 0)
    assert found["largest"] == max(values)

    # The switch's IP counters agree with the packets on its links.
    sent = {name: after[name] - before[name] for name in after}
    passed = [
        datagram
        for datagram in lab.captured("s1", "eth0")
        if datagram.ports == (PORT, SENDER) and datagram.hop_limit == 63
    ]
    assert sent["OutTransmits"] == len(forwarded) + len(feedback_packets) + len(passed)


def counters(lab: DatagramLab) -> dict[str, int]:
    """The counters of s1's IP, both versions, as used by the packet accounting."""
    status, text = lab.lab.run("s1", "sh", "-c", "cat /proc/net/snmp; cat /proc/net/snmp6")
    assert status == 0
    lines = [line.split() for line in text.splitlines()]
    names, values = (line for line in lines if line[0] == "Ip:")
    ipv4 = dict(zip(names[1:], map(int, values[1:]), strict=True))
    ipv6 = {line[0].removeprefix("Ip6"): int(line[1]) for line in lines if line[0].startswith("Ip6")}
    return {"OutTransmits": ipv4["OutTransmits"] + ipv6["OutTransmits"]}


def test_a_second_queue_overwrites_only_with_higher_congestion(bench: Callable[..., Any]) -> None:
    second_queue = (
        f"{{scheme: qcn, buffer: 200 packets, equilibrium: 1 packets, full_scale: 125 packets, reflect: 0 %{ALL}}}"
    )
    with bench(f"{ALL}, reflect: 0 %", f"s2>h2: {second_queue}") as lab:
        lab.capture({"s1": "eth0 eth1", "s2": "eth0 eth1"})
        lab.send("h1", burst(150))
        lab.sleep()
        found = [lab.statistics(*end) for end in (("s1", "eth1"), ("s2", "eth1"))]
    ends = [data(lab, *end) for end in (("s1", "eth0"), ("s1", "eth1"), ("s2", "eth0"), ("s2", "eth1"))]
    first = [level for _, level in samples(ends[0], ends[1])]
    second = [level for _, level in samples(ends[2], ends[3], equilibrium=1)]
    assert [datagram.header.feedback for datagram in ends[1]] == first
    assert [datagram.header.feedback for datagram in ends[3]] == [max(pair) for pair in zip(first, second, strict=True)]
    assert found[1]["written"] == sum(b > a for a, b in zip(first, second, strict=True))
    assert 0 < found[1]["written"] < found[1]["congested"]
    assert {datagram.header.flags for datagram in ends[3]} == {0}
    assert [counters["reflected"] for counters in found] == [0, 0]
    assert feedback_of_s1(lab) == []


def test_probabilities_are_as_specified(bench: Callable[..., Any]) -> None:
    """A queue that stays full: one packet in four is sampled, and samples cause feedback as often as expected."""
    with bench(", full_scale: 50 packets, reflect: 40 %") as lab:
        lab.capture({"s1": "eth0 eth1"})
        lab.send("h1", burst(3000, length=1400))
        lab.sleep()
        found = lab.statistics("s1", "eth1")
    taken = 3000 - found["dropped"]
    forwarded = data(lab, "s1", "eth1")
    assert len(forwarded) == taken > 300
    assert 0.15 * taken < found["sampled"] < 0.35 * taken
    assert found["congested"] > 0.9 * found["sampled"]
    assert found["written"] == found["congested"]
    assert 0.2 * found["written"] < found["reflected"] < 0.6 * found["written"]
    assert len(feedback_of_s1(lab)) == found["reflected"]
    marked = [datagram.header for datagram in forwarded if datagram.header.flags & Flag.REFLECTED]
    assert len(marked) == found["reflected"]
    assert all(header.feedback for header in marked)


def test_only_data_is_sampled(bench: Callable[..., Any]) -> None:
    """Acknowledgements, feedback, compact headers, other versions and other ports are not sampled."""
    full = padded_payload(Header(flow=5, feedback=1, feedback_bits=6), 1000)
    to = ADDRESSES[4][1]
    other_payloads = [
        *(full[:1] + bytes([kind]) + full[2:] for kind in (Type.ACK, Type.FEEDBACK, 9)),
        b"\x03" + full[1:],
        padded_payload(Header(COMPACT, kind=Kind.MAX, bits=4), 300),
        full[:50],
        padded_payload(Header(type=Type.ACK, kind=Kind.MAX, unit=Unit.BYTES), 300),
    ]
    datagrams = [Datagram(to, payload) for payload in other_payloads for _ in range(20)]
    datagrams += [Datagram(to, full, port=PORT + 1, source=SENDER)] * 20
    with bench(f"{ALL}, biased: off, equilibrium: 1 packets") as lab:
        lab.capture({"s1": "eth0 eth1"})
        lab.send("h1", datagrams)
        lab.sleep()
        found = lab.statistics("s1", "eth1")
    forwarded = [datagram.payload for datagram in lab.captured("s1", "eth1") if datagram.ports[0] == SENDER]
    assert forwarded == [datagram.payload for datagram in datagrams]
    assert found["sampled"] == found["reflected"] == 0
    assert (found["unknown_version"], found["too_short"], found["malformed"]) == (20, 20, 20)


def test_feedback_without_a_route_is_counted(bench: Callable[..., Any]) -> None:
    with bench(f"{ALL}, biased: off, equilibrium: 1 packets") as lab:
        lab.capture({"s1": "eth0 eth1"})
        for words in ("route add unreachable 10.0.0.1", "-6 route add unreachable fd00::1"):
            status, output = lab.lab.run("s1", "ip", *words.split())
            assert status == 0, output
        lab.send("h1", burst(60))
        lab.sleep()
        found = lab.statistics("s1", "eth1")
    assert len(data(lab, "s1", "eth1")) == 60
    assert found["reflected"] == found["unroutable"] > 30
    assert feedback_of_s1(lab) == []


def test_two_runs_are_equal(bench: Callable[..., Any], tmp_path: Path) -> None:
    runs = []
    for _ in range(2):
        with bench(", reflect: 40 %") as lab:
            lab.capture({"s1": "eth0 eth1"})
            lab.send("h1", burst(300))
            lab.sleep()
        runs.append(
            [
                (datagram.header.sequence, datagram.header.feedback, datagram.header.flags)
                for datagram in data(lab, "s1", "eth1")
            ]
        )
        (tmp_path / "live").rename(tmp_path / f"live-{len(runs)}")
    assert runs[0] == runs[1]
    assert any(feedback for _, feedback, _ in runs[0])


def test_tcp_is_as_over_drop_tail(run_cell: Callable[..., CellOutput]) -> None:
    assert_tcp_as_with_droptail(run_cell, "qcn")
