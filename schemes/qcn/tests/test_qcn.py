# SPDX-License-Identifier: Apache-2.0
"""qcn's congestion point, packet by packet: what is written into data, and what the switch sends to their source."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import ceil
from pathlib import Path
from typing import Any

import pytest

from qbed.telemetry.congestion import PORT, Flag, Header, Kind, Type, Unit

from cells import Observed, expect_drop_tail_for_tcp
from datagrams import SENDER, Bench, Datagram, Seen, padded

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
ALL = ", sample_least: 100 %, sample_most: 100 %"
"""Every packet is sampled, so nothing is left to chance but what a test leaves."""
EQUILIBRIUM, WEIGHT = 25, 2


@pytest.fixture
def bench(plugins: None, tmp_path: Path, live_lab: Callable[[str], Any]) -> Callable[..., Any]:
    """bench(extra, ports): a context in which the lab is up: further parameters of its switches, ports that differ."""

    @contextmanager
    def up(extra: str = "", ports: str = "") -> Iterator[Bench]:
        with live_lab(LAB.format(extra=extra, ports=ports)) as lab:
            yield Bench(lab, tmp_path / "live")

    return up


def burst(count: int, length: int = 1000) -> list[Datagram]:
    """Data of both families in turn."""
    return [
        Datagram(
            ADDRESSES[(4, 6)[number // 3 % 2]][1],
            padded(Header(flow=5, sequence=1000 + number, time=77 + number), length),
        )
        for number in range(count)
    ]


def data(lab: Bench, node: str, interface: str) -> list[Seen]:
    return [one for one in lab.captured(node, interface) if one.ports == (SENDER, PORT)]


def own_feedback(lab: Bench) -> list[Seen]:
    """Of s1, to h1, without that of s2 which passes."""
    return [one for one in lab.captured("s1", "eth0") if one.ports == (PORT, SENDER) and one.hop_limit == 64]


def quantized(congestion: int, bits: int) -> int:
    scale = (1 + 2 * WEIGHT) * EQUILIBRIUM
    return ceil(min(congestion, scale) * ((1 << bits) - 1) / scale)


def samples(came: list[Seen], went: list[Seen], bits: int = 6, equilibrium: int = EQUILIBRIUM) -> list[tuple[int, int]]:
    """Of each packet, where all are sampled: -Fb (0 where Fb is not negative), and that quantized. Of a packet that
    comes at the instant at which another leaves, either may be the first: as its header shows.
    """
    found, before = [], {0}
    for number, (entered, left) in enumerate(zip(came, went, strict=True)):
        queues = {sum(gone.time_ns >= entered.time_ns + tie for gone in went[:number]) for tie in (0, 1)}
        choices = {(q, max(0, q - equilibrium + WEIGHT * (q - old))) for q in queues for old in before}
        had, has = entered.header.feedback, left.header.feedback
        fitting = [one for one in choices if max(had, quantized(one[1], bits)) == has] or list(choices)
        before = {queue for queue, _ in fitting}
        found.append((fitting[0][1], quantized(fitting[0][1], bits)))
    return found


@pytest.mark.parametrize("bits", [1, 6, 16])
def test_every_sample_is_written_and_reflected(bench: Callable[..., Any], bits: int) -> None:
    with bench(f"{ALL}, biased: off, bits: {bits}") as lab:
        lab.capture({"s1": "eth0 eth1"})
        lab.listen("h2")  # or ICMP comes back
        before = counters(lab)
        received = lab.send("h1", burst(150))
        lab.sleep()
        after = counters(lab)
        found = lab.statistics("s1", "eth1")
    came, went = data(lab, "s1", "eth0"), data(lab, "s1", "eth1")
    values, levels = zip(*samples(came, went, bits), strict=True)
    assert len(levels) == len(went) == 150
    assert sum(level > 0 for level in levels) > 50 and 0 in levels[:5]

    # What leaves: the level, where there is one, and everything else as it came.
    for packet, left, level in zip(came, went, levels, strict=True):
        header = packet.header
        if level:
            header = header._replace(feedback=level, feedback_bits=bits, flags=Flag.REFLECTED)
        assert left.header == header
        assert left.whole and left.payload[88:] == packet.payload[88:]

    # What comes back: from the receiver's address, at once, and whole.
    answers = own_feedback(lab)
    reflected = [(packet, level) for packet, level in zip(came, levels, strict=True) if level]
    assert len(answers) == len(reflected) == found["reflected"] == found["written"] == found["congested"]
    for answer, (packet, level) in zip(answers, reflected, strict=True):
        assert (answer.source, answer.destination) == (packet.destination, packet.source)
        assert answer.whole and answer.checksum and answer.hop_limit == 64 and answer.payload == answer.payload[:88]
        wanted = Header(
            type=Type.FEEDBACK,
            bits=0,
            flow=5,
            feedback=level,
            feedback_bits=bits,
            sequence=packet.header.sequence,
            time=answer.header.time,
            echo_time=packet.header.time,
        )
        assert answer.header == wanted
        # both ways are idle but for feedback, of s2 too: a frame of 150 bytes at most
        assert 0 <= answer.time_ns - packet.time_ns <= 120
        assert answer.header.time % 10**9 == packet.time_ns % 10**9  # CLOCK_MONOTONIC began a whole second earlier
    assert {payload for *_, payload in received} >= {answer.payload for answer in answers}
    assert {(source, port) for source, port, _ in received} == {(to, PORT) for _, to in ADDRESSES.values()}
    assert (found["sampled"], found["unroutable"], found["no_memory"], found["dropped"]) == (150, 0, 0, 0)
    assert found["largest"] == max(values)

    # And the switch's own books have it: what IP sent to its links is what left by them.
    sent = {name: after[name] - before[name] for name in after}
    passed = [one for one in lab.captured("s1", "eth0") if one.ports == (PORT, SENDER) and one.hop_limit == 63]
    assert sent["OutTransmits"] == len(went) + len(answers) + len(passed)


def counters(lab: Bench) -> dict[str, int]:
    """Of s1's IP, both versions, as the run's evidence counts them."""
    status, text = lab.lab.run("s1", "sh", "-c", "cat /proc/net/snmp; cat /proc/net/snmp6")
    assert status == 0
    lines = [line.split() for line in text.splitlines()]
    names, values = (line for line in lines if line[0] == "Ip:")
    ipv4 = dict(zip(names[1:], map(int, values[1:]), strict=True))
    ipv6 = {line[0].removeprefix("Ip6"): int(line[1]) for line in lines if line[0].startswith("Ip6")}
    return {"OutTransmits": ipv4["OutTransmits"] + ipv6["OutTransmits"]}


def test_a_second_queue_overwrites_only_with_what_is_worse(bench: Callable[..., Any]) -> None:
    near = f"{{scheme: qcn, buffer: 200 packets, equilibrium: 1 packets, full_scale: 125 packets, reflect: 0 %{ALL}}}"
    with bench(f"{ALL}, reflect: 0 %", f"s2>h2: {near}") as lab:
        lab.capture({"s1": "eth0 eth1", "s2": "eth0 eth1"})
        lab.send("h1", burst(150))
        lab.sleep()
        found = [lab.statistics(*end) for end in (("s1", "eth1"), ("s2", "eth1"))]
    ends = [data(lab, *end) for end in (("s1", "eth0"), ("s1", "eth1"), ("s2", "eth0"), ("s2", "eth1"))]
    first = [level for _, level in samples(ends[0], ends[1])]
    second = [level for _, level in samples(ends[2], ends[3], equilibrium=1)]
    assert [one.header.feedback for one in ends[1]] == first
    assert [one.header.feedback for one in ends[3]] == [max(pair) for pair in zip(first, second, strict=True)]
    assert found[1]["written"] == sum(b > a for a, b in zip(first, second, strict=True))
    assert 0 < found[1]["written"] < found[1]["congested"]
    assert {one.header.flags for one in ends[3]} == {0}
    assert [one["reflected"] for one in found] == [0, 0]
    assert own_feedback(lab) == []


def test_chances_are_the_slides(bench: Callable[..., Any]) -> None:
    """A queue that stays full: one packet in four is sampled, and what is sampled is told its source by its share."""
    with bench(", full_scale: 50 packets, reflect: 40 %") as lab:
        lab.capture({"s1": "eth0 eth1"})
        lab.send("h1", burst(3000, length=1400))
        lab.sleep()
        found = lab.statistics("s1", "eth1")
    taken = 3000 - found["dropped"]
    went = data(lab, "s1", "eth1")
    assert len(went) == taken > 300
    assert 0.15 * taken < found["sampled"] < 0.35 * taken
    assert found["congested"] > 0.9 * found["sampled"]
    assert found["written"] == found["congested"]
    assert 0.2 * found["written"] < found["reflected"] < 0.6 * found["written"]
    assert len(own_feedback(lab)) == found["reflected"]
    marked = [one.header for one in went if one.header.flags & Flag.REFLECTED]
    assert len(marked) == found["reflected"]
    assert all(header.feedback for header in marked)


def test_what_is_no_data_is_not_sampled(bench: Callable[..., Any]) -> None:
    """Acknowledgements and feedback, other versions, other ports."""
    full = padded(Header(flow=5, feedback=1, feedback_bits=6), 1000)
    to = ADDRESSES[4][1]
    strange = [
        *(full[:1] + bytes([kind]) + full[2:] for kind in (Type.ACK, Type.FEEDBACK, 9)),
        b"\x02" + full[1:],
        full[:50],
        padded(Header(type=Type.ACK, kind=Kind.MAX, unit=Unit.BYTES), 300),
    ]
    given = [Datagram(to, payload) for payload in strange for _ in range(20)]
    given += [Datagram(to, full, port=PORT + 1, source=SENDER)] * 20
    with bench(f"{ALL}, biased: off, equilibrium: 1 packets") as lab:
        lab.capture({"s1": "eth0 eth1"})
        lab.send("h1", given)
        lab.sleep()
        found = lab.statistics("s1", "eth1")
    went = [one.payload for one in lab.captured("s1", "eth1") if one.ports[0] == SENDER]
    assert went == [one.payload for one in given]
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
    assert own_feedback(lab) == []


def test_two_runs_are_equal(bench: Callable[..., Any], tmp_path: Path) -> None:
    seen = []
    for _ in range(2):
        with bench(", reflect: 40 %") as lab:
            lab.capture({"s1": "eth0 eth1"})
            lab.send("h1", burst(300))
            lab.sleep()
        seen.append([(one.header.sequence, one.header.feedback, one.header.flags) for one in data(lab, "s1", "eth1")])
        (tmp_path / "live").rename(tmp_path / f"live-{len(seen)}")
    assert seen[0] == seen[1]
    assert any(feedback for _, feedback, _ in seen[0])


def test_tcp_finds_a_drop_tail_queue(run_cell: Callable[..., Observed]) -> None:
    expect_drop_tail_for_tcp(run_cell, "qcn")
