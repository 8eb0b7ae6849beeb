# SPDX-License-Identifier: Apache-2.0
"""stamp, packet by packet: datagrams through two slow queues, compared with a model of the captures."""

from __future__ import annotations

import itertools
import json
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from stamp_model import Port, expected

from qbed.testing import CellOutput, assert_tcp_as_with_droptail

from qbed_testing.congestion import COMPACT, PORT, Flag, Header, Kind, Type, Unit, parse
from qbed_testing.datagrams import SENDER, CapturedDatagram, Datagram, DatagramLab, ones_complement_sum, padded_payload

ROOT = Path(__file__).parents[3]
VECTORS = json.loads((ROOT / "tests/wire/vectors.json").read_text())["packets"]
LAB = """
name: stamp
topology: {{dumbbell: {{left: 1, right: 1}}}}
links:
  default: {{rate: 10 Gbit/s, delay: 5 us}}
  bottleneck: {{rate: 1 Gbit/s}}
  right: {{rate: 400 Mbit/s}}
switches: {{default: {{scheme: stamp, buffer: 200 packets{extra}}}}}
hosts: {{default: {{queue: 1000 packets}}}}
addressing: both
duration: 1 s
"""
ADDRESSES = {4: ("10.0.0.1", "10.0.0.3"), 6: ("fd00::1", "fd00::3")}
"""The addresses of h1 and h2."""


@pytest.fixture
def bench(tc_plugins: None, tmp_path: Path, running_lab: Callable[[str], Any]) -> Callable[..., Any]:
    """Return bench(extra): a context manager that starts the lab with these additional parameters of its switches."""

    @contextmanager
    def up(extra: str = "") -> Iterator[DatagramLab]:
        with running_lab(LAB.format(extra=extra)) as lab:
            yield DatagramLab(lab, tmp_path / "live")

    return up


def requests(bits: tuple[int, ...]) -> Iterator[Header]:
    """Yield headers that request every kind in every unit and in every number of bits, repeatedly."""
    kinds = (Kind.SUM, Kind.SUM_SQU, Kind.MAX, Kind.IND, Kind.VECTOR)
    for number, (width, unit, kind) in enumerate(itertools.cycle(itertools.product(bits, Unit, kinds))):
        yield Header(kind=kind, unit=unit, bits=width, sequence=number, flow=7, time=number)


def burst(
    count: int, bits: tuple[int, ...] = (1, 4, 8, 32), family: int | None = None, kind: Type = Type.DATA, **fields: int
) -> list[Datagram]:
    """Datagrams of several lengths. `family`: one family instead of both in turn; `fields`: set in all headers"""
    found = []
    for header in itertools.islice(requests(bits), count):
        source, destination = ADDRESSES[family or (4, 6)[header.sequence // 5 % 2]]
        payload = padded_payload(header._replace(type=kind, **fields), 200 + 37 * header.sequence % 1200)
        if kind == Type.DATA:
            found.append(Datagram(destination, payload))
        else:
            found.append(Datagram(source, payload, port=SENDER, source=PORT))
    return found


def agree(port: Port, received: list[CapturedDatagram], forwarded: list[CapturedDatagram]) -> None:
    """Check that each packet was sent as the model predicts, to the byte. Two events at one instant may be in either
    order.
    """
    models = [[packet.payload for packet in expected(port, received, forwarded, order)] for order in (True, False)]
    for left, *payloads in zip(forwarded, *models, strict=True):
        assert left.payload in payloads, (left.header, [parse(payload) for payload in payloads])


SETTINGS: dict[str, dict[str, Any]] = {
    "as in the paper": {},
    "the middle of a bin": {"middle": True},
    "the packet counts itself": {"count_itself": True},
    "at enqueue": {"at_enqueue": True},
    "at enqueue, with the packet itself": {"at_enqueue": True, "count_itself": True},
    "squared bins": {"exponent": 2},
    "squared bins, fine at a full buffer, their middle": {"exponent": 2, "fine_at_full": True, "middle": True},
}


def yaml_of(settings: dict[str, Any]) -> str:
    """The parameters of the scheme for the fields of `Port`."""
    flags = {True: "on", False: "off"}
    return "".join(
        f", {name}: {flags[value] if isinstance(value, bool) else value}" for name, value in settings.items()
    )


def send_through_two_queues(lab: DatagramLab, datagrams: list[Datagram]) -> list[dict[str, int]]:
    """Send datagrams from h1 to h2, with captures around both queues; the statistics of both."""
    lab.capture({"s1": "eth0 eth1", "s2": "eth0 eth1"})
    lab.listen("h2")
    lab.send("h1", datagrams)
    lab.sleep()
    return [lab.statistics(*end) for end in (("s1", "eth1"), ("s2", "eth1"))]


def captured_at_two_queues(
    lab: DatagramLab, count: int, settings: dict[str, Any]
) -> tuple[list[CapturedDatagram], list[CapturedDatagram], list[CapturedDatagram]]:
    """The datagrams at both ends of the link between the queues, and behind the second queue.

    All arrive, as the model predicts, with valid checksums; a receiver accepts only packets with a correct checksum.
    """
    received, between, arrived, forwarded = (
        [datagram for datagram in lab.captured(*end) if datagram.ports == (SENDER, PORT)]
        for end in (("s1", "eth0"), ("s1", "eth1"), ("s2", "eth0"), ("s2", "eth1"))
    )
    assert len(forwarded) == count
    agree(Port(10**9, **settings), received, between)
    agree(Port(4 * 10**8, **settings), arrived, forwarded)
    assert all(packet.has_valid_checksums and packet.checksum for packet in [*received, *between, *forwarded])
    assert [payload for _, _, payload in lab.received("h2")] == [packet.payload for packet in forwarded]
    return between, arrived, forwarded


@pytest.mark.parametrize("name", SETTINGS)
def test_two_queues_accumulate(bench: Callable[..., Any], name: str) -> None:
    settings = SETTINGS[name]
    bits = (1, 4, 8) if "exponent" in settings else (1, 4, 8, 32)
    with bench(yaml_of(settings)) as lab:
        statistics = send_through_two_queues(lab, burst(180, bits=bits))
    between, arrived, _ = captured_at_two_queues(lab, 180, settings)
    # the queue was long, and links do not modify packets
    assert max(packet.header.signal for packet in between if packet.header.kind == Kind.MAX) > 50
    assert [datagram.payload for datagram in between] == [datagram.payload for datagram in arrived]
    assert [found["stamped"] for found in statistics] == [180, 180]
    assert all(
        found[other] == 0
        for found in statistics
        for other in ("left_out", "unknown_version", "too_short", "malformed", "no_rate", "no_memory", "dropped")
    )


def test_two_queues_accumulate_in_compact_headers(bench: Callable[..., Any]) -> None:
    """Data whose headers differ in length, in the bits and in the signal."""
    requested = itertools.product((4, 1, 8, 16, 32), (Kind.MAX, Kind.SUM, Kind.IND, Kind.NONE), Unit)
    headers = [
        Header(COMPACT, kind=kind, unit=unit, bits=bits, sequence=number, offset=number << 40, flow=number << 24)
        for number, (bits, kind, unit) in enumerate(itertools.islice(itertools.cycle(requested), 180))
    ]
    datagrams = [
        Datagram(ADDRESSES[(4, 6)[header.sequence % 2]][1], padded_payload(header, 200 + 37 * header.sequence % 1200))
        for header in headers
    ]
    with bench() as lab:
        statistics = send_through_two_queues(lab, datagrams)
    between, _, forwarded = captured_at_two_queues(lab, 180, {})
    assert {packet.header.length for packet in forwarded} == {20, 21, 22, 24, 28}
    assert max(packet.header.signal for packet in between if packet.header[3:6] == (Kind.MAX, Unit.PACKETS, 4)) > 5
    assert [(found["stamped"], found["left_out"], found["malformed"]) for found in statistics] == [(135, 45, 0)] * 2


@pytest.mark.parametrize("reverse", [True, False])
def test_acknowledgements_accumulate_unless_reverse_is_off(bench: Callable[..., Any], reverse: bool) -> None:
    with bench(yaml_of({"reverse": reverse, "count_itself": True})) as lab:
        lab.listen("h1", SENDER)
        lab.send("h2", burst(60, kind=Type.ACK, hops=3, signal=9, echo_signal=9, echo_hops=3))
        lab.sleep()
        statistics = lab.statistics("s2", "eth0")
    received = [parse(payload) for *_, payload in lab.received("h1", SENDER)]
    assert len(received) == 60
    assert {(header.echo_signal, header.echo_hops) for header in received} == {(9, 3)}
    assert {header.hops for header in received} == ({5} if reverse else {3})
    assert all(header.signal >= 9 if reverse else header.signal == 9 for header in received)
    assert (max(header.signal for header in received) > 1000) == reverse
    assert (statistics["stamped"], statistics["left_out"]) == ((60, 0) if reverse else (0, 60))


def ethernet(packet: bytes, tags: int = 0) -> bytes:
    kind = b"\x08\x00" if packet[0] >> 4 == 4 else b"\x86\xdd"
    tagged = b"".join(struct.pack("!HH", 0x8100, 5 + number) for number in range(tags))
    return bytes.fromhex("02000000ffff02000000eeee") + tagged + kind + packet


def with_options(packet: bytes) -> bytes:
    """Insert four bytes of IPv4 options."""
    total = struct.unpack_from("!H", packet, 2)[0] + 4
    return b"\x46\0" + struct.pack("!H", total) + packet[4:20] + b"\x01\x01\x01\0" + packet[20:]


def with_extension(packet: bytes) -> bytes:
    """Insert an IPv6 destination options header."""
    length = struct.unpack_from("!H", packet, 4)[0] + 8
    return packet[:4] + struct.pack("!HBB", length, 60, 64) + packet[8:40] + b"\x11\0\x01\x04\0\0\0\0" + packet[40:]


def changed(packet: bytes, at: int, value: bytes) -> bytes:
    return packet[:at] + value + packet[at + len(value) :]


def cases() -> Iterator[tuple[bytes, int, bool]]:
    """Yield frames, the offset of their UDP header and whether a queue modifies them."""
    for vector in VECTORS:
        header = vector.get("header", {"kind": Kind.NONE, "type": 0, "version": 0, "flags": 0})
        is_forward = header["version"] == COMPACT and header["flags"] & Flag.FORWARD
        is_modified = header["kind"] and header["type"] != Type.FEEDBACK and not is_forward
        yield ethernet(bytes.fromhex(vector["packet"])), 14 + vector["payload_at"] - 8, bool(is_modified)
    ipv4, ipv6 = (bytes.fromhex(vector["packet"]) for vector in VECTORS[:2])
    for tags in (1, 2):
        yield ethernet(ipv4, tags), 14 + 4 * tags + 20, True
        yield ethernet(ipv6, tags), 14 + 4 * tags + 40, True
    yield ethernet(with_options(ipv4)), 14 + 24, True
    yield ethernet(with_extension(ipv6)), 14 + 48, True
    yield ethernet(changed(ipv4, 6, b"\x20\0")), 14 + 20, False  # the first fragment
    yield ethernet(changed(ipv4, 6, b"\0\x10")), 14 + 20, False  # a later one
    yield ethernet(changed(ipv4, 9, b"\x11\xff\xff")), 14 + 20, True  # an incorrect IP checksum is ignored
    yield ethernet(changed(ipv4, 9, b"\x06")), 14 + 20, False  # TCP
    yield ethernet(changed(ipv4, 22, b"\x18\x2d")), 14 + 20, False  # to another port
    yield ethernet(changed(ipv4, 24, b"\0\x07")), 14 + 20, False  # a UDP length that is too small
    yield ethernet(changed(ipv4, 24, b"\xff\xff")), 14 + 20, False  # a UDP length beyond the packet
    yield ethernet(ipv4[:40]), 14 + 20, False  # a truncated packet
    yield ethernet(changed(ipv4, 26, b"\0\0")), 14 + 20, True  # without a checksum


def test_only_packets_with_a_valid_header_are_modified(bench: Callable[..., Any]) -> None:
    """Frames sent directly into the queue of s1: those without a valid header are not modified."""
    cases_sent = list(cases())
    with bench(", count_itself: on") as lab:
        lab.capture({"s1": "eth1"}, "not icmp6")
        lab.send_frames("s1", "eth1", [frame for frame, *_ in cases_sent])
        lab.sleep()
        found = lab.statistics("s1", "eth1")
    left = lab.frames("s1", "eth1")
    assert len(left) == len(cases_sent)
    for (before, udp, is_modified), after in zip(cases_sent, left, strict=True):
        if not is_modified:
            assert after == before
            continue
        header, now = parse(before[udp + 8 :]), parse(after[udp + 8 :])
        assert now.signal > 0 or header.kind == Kind.IND
        hops, end = min(255 if header.version != COMPACT else 1, header.hops + 1), udp + 8 + header.length
        assert now == header._replace(signal=now.signal, hops=hops)
        assert after[: udp + 6] + after[end:] == before[: udp + 6] + before[end:]
        if before[udp + 6 : udp + 8] == b"\0\0":
            assert after[udp + 6 : udp + 8] == b"\0\0"
        else:
            assert ones_complement_sum(after[udp:]) == ones_complement_sum(before[udp:])
    verdicts = [vector["verdict"] for vector in VECTORS]
    assert found["stamped"] == sum(is_modified for *_, is_modified in cases_sent) == 20
    assert found["left_out"] == 5
    for statistic, verdict in {"unknown_version": "unknown version", "too_short": "too short"}.items():
        assert found[statistic] == verdicts.count(verdict)
    assert found["malformed"] == verdicts.count("malformed")


def test_a_zero_checksum_is_not_modified(bench: Callable[..., Any]) -> None:
    with bench() as lab:
        lab.capture({"s1": "eth1"})
        lab.send("h1", [datagram._replace(checksum=False) for datagram in burst(40, family=4)])
        lab.sleep()
    forwarded = [datagram for datagram in lab.captured("s1", "eth1") if datagram.ports == (SENDER, PORT)]
    assert len(forwarded) == 40
    assert {(datagram.checksum, datagram.header.hops) for datagram in forwarded} == {(0, 1)}


def test_overflow_is_dropped_and_the_signal_is_at_most_the_buffer(bench: Callable[..., Any]) -> None:
    with bench(", count_itself: on") as lab:
        lab.capture({"s1": "eth1"})
        full = Header(kind=Kind.MAX, unit=Unit.PACKETS, bits=32)
        lab.send("h1", [Datagram(ADDRESSES[4][1], padded_payload(full._replace(sequence=n), 1400)) for n in range(400)])
        lab.sleep()
        found = lab.statistics("s1", "eth1")
    forwarded = [datagram.header.signal for datagram in lab.captured("s1", "eth1") if datagram.ports == (SENDER, PORT)]
    assert found["dropped"] == 400 - len(forwarded) > 50
    assert max(forwarded) == 200 == found["largest"]
    assert found["stamped"] == len(forwarded)


def test_tcp_is_as_over_drop_tail(run_cell: Callable[..., CellOutput]) -> None:
    assert_tcp_as_with_droptail(run_cell, "stamp")
