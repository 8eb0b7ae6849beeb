# SPDX-License-Identifier: Apache-2.0
"""Write schemes/NAME/p4/tests/*.stf: packets and the expected output of a program, for `p4switch test`.

    .venv/bin/python tests/p4/stf.py [--check]

It shares no code with the tested programs. tests/wire/vectors.py writes the congestion header.
"""

from __future__ import annotations

import ipaddress
import itertools
import struct
import sys
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from math import ceil
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from p4.stf_packets import (  # noqa: E402
    A6,
    B6,
    ELSEWHERE,
    ICMP,
    LICENCE,
    TCP,
    UDP,
    A,
    B,
    Packet,
    dropped,
    next_hop,
    output_port,
    passes,
    rechecked,
    route,
    routes,
    tcp,
    udp,
)  # fmt: skip
from p4.stf_tcp import active_buffer_queueing, reverse_marking  # noqa: E402

from wire import vectors as wire  # noqa: E402


def choice(packet: Packet, count: int, shift: int = 0) -> int:
    """The index of the path that ECMP takes among `count`."""
    addresses = sorted(ipaddress.ip_address(x).packed for x in (packet.source, packet.destination))
    ports = sorted(struct.unpack("!HH", packet.transport[:4])) if packet.protocol in (UDP, TCP) else [0, 0]
    text = b"".join(addresses) + struct.pack("!HHB", *ports, packet.protocol)
    return ((zlib.crc32(text) >> shift & 0xFFFF) * count) >> 16


def forwarding() -> Iterator[str]:
    yield LICENCE + "# Forwarding, which all programs share.\n\n"
    yield from routes()
    plain = Packet(transport=udp(1000, 2000))
    six = Packet(source=A6, destination=B6, transport=udp(1000, 2000))
    yield "\n" + passes(plain, 2, "IPv4")
    yield passes(replace(plain, destination="10.0.2.129"), 3, "the longest prefix")
    yield passes(six, 2, "IPv6")
    yield passes(replace(six, destination="fd00:2::8000:0:0:1"), 3, "the longest prefix")
    yield passes(replace(plain, dsfield=0xB9), 2, "DSCP and ECN stay")
    yield passes(replace(six, dsfield=0xB9), 2, "and of IPv6")
    yield passes(replace(plain, options=bytes([1, 1, 1, 0])), 2, "options")
    yield passes(replace(plain, options=bytes([1] * 39 + [0])), 2, "as many options as there may be")
    yield passes(replace(six, extensions=((0, bytes(6)), (60, bytes(14)))), 2, "extension headers")
    yield passes(replace(six, extensions=((0, bytes(254)),)), 2, "a long extension header")
    yield passes(replace(plain, vlans=(5,)), 2, "a VLAN tag")
    yield passes(replace(plain, vlans=(5, 6)), 2, "two of them")
    yield passes(replace(plain, fragment=0x2000), 2, "a fragment")
    yield passes(replace(plain, protocol=TCP, transport=tcp(1000, 2000, payload=b"data")), 2, "TCP")
    yield passes(replace(plain, protocol=ICMP, transport=b"\x08\0\xf7\xff\0\0\0\0"), 2, "neither TCP nor UDP")
    yield passes(replace(plain, transport=b"\x03"), 2, "no transport header at all")
    yield passes(replace(plain, hops=2), 2, "a last hop")

    yield "\n" + dropped(replace(plain, hops=1).frame(), "no hop is left")
    yield dropped(replace(six, hops=1).frame(), "no hop is left")
    yield dropped(replace(plain, damage=1).frame(), "a wrong checksum")
    yield dropped(replace(plain, options=bytes(4), damage=1).frame(), "a wrong checksum, with options")
    yield dropped(replace(plain, destination=ELSEWHERE).frame(), "no route")
    yield dropped(replace(plain, destination="10.8.1.1").frame(), "a route to a next hop that there is not")
    yield dropped(plain.frame()[:-4], "a packet that is shorter than it says")
    yield dropped(plain.ethernet + b"\x08\x06" + bytes(28), "ARP")
    yield dropped(plain.ethernet + b"\x08\0" + bytes([0x54]) + plain.ip()[1:], "IPv5")
    yield dropped(plain.ethernet + b"\x08\0" + bytes([0x44]) + plain.ip()[1:], "a header of 16 bytes")

    yield "\n# A flow goes one way of several, and back by its pair.\n"
    for source_port in range(40000, 40012):
        flow = Packet("10.1.1.1", "10.1.2.1", UDP, udp(source_port, 80))
        flow6 = Packet("fd01:1::1", "fd01:2::1", TCP, tcp(source_port, 80))
        for source, shift in ((flow, 0), (flow6, 16)):
            yield passes(source, 4 + choice(source, 3, shift), f"port {source_port}")
            yield passes(source.back(), 7 + choice(source, 3, shift), "back")


def step_marking() -> Iterator[str]:
    yield (LICENCE + "# An empty queue is not above any threshold; a full one needs a link, so it is in no STF.\n\n")
    yield from routes()
    yield "setdefault marking mark_above(packets:0)\n\n"
    for dsfield in range(4):
        packet = Packet(protocol=TCP, transport=tcp(1000, 2000, payload=b"data"), dsfield=dsfield)
        yield passes(packet, 2, f"ECN {dsfield}")
        yield passes(replace(packet, source=A6, destination=B6), 2, f"ECN {dsfield}, IPv6")


NEVER = 2**32 - 1


def stamp_settings(
    port: int, full_bytes: int = 200 * 1514, threshold: int = 65, at_enqueue: int = 0, count_itself: int = 0,
    middle: int = 0, reverse: int = 1, wire_time: int = 0, full_ns: int = 0,
) -> str:  # fmt: skip
    inverse = {full: min(2**64 // full, 2**64 - 1) if full else 0 for full in (200, full_bytes, full_ns)}
    return (
        f"add stamp port:{port} settings(threshold:{threshold}, frame_bytes:1514, wire_time:{wire_time}, "
        f"at_enqueue:{at_enqueue}, count_itself:{count_itself}, middle:{middle}, reverse:{reverse}, "
        f"full_packets:200, inverse_packets:{inverse[200]}, full_bytes:{full_bytes}, "
        f"inverse_bytes:{inverse[full_bytes]}, full_ns:{full_ns}, inverse_ns:{inverse[full_ns]})\n"
    )


def signal_packet(fields: dict[str, int], payload: bytes, family: int = 4, checksum: bool = True) -> Packet:
    """A packet from A to B with a congestion header of tests/wire."""
    complete = wire.packet(wire.header(fields) + payload, 4, checksum=checksum)
    transport = complete[20:]
    packet = Packet(A if family == 4 else A6, B if family == 4 else B6, transport=transport)
    return rechecked(packet) if checksum else packet


FOLDS: dict[int, Callable[[int, int], int]] = {
    wire.SUM: lambda signal, part: min(signal + part, 2**128 - 1),
    wire.SUM_SQU: lambda signal, part: min(signal + part**2, 2**128 - 1),
    wire.MAX: max,
    wire.IND: max,
    wire.VECTOR: lambda signal, part: (signal * 2**32 + min(part, 2**32 - 1)) % 2**128,
}


def stamped(before: dict[str, int], part: int, payload: bytes, port: int, comment: str, family: int = 4,
            checksum: bool = True) -> str:  # fmt: skip
    signal = FOLDS[before["kind"]](before.get("signal", 0), part)
    if before["version"] == 2:
        signal = min(signal, 2 ** wire.compact_bits(before) - 1)
    after = before | {"signal": signal, "hops": min(255, before.get("hops", 0) + 1)}
    received = signal_packet(before, payload, family, checksum)
    left = signal_packet(after, payload, family, checksum)
    if family == 4:
        received, left = (replace(packet, destination=f"10.2.{port}.1") for packet in (received, left))
    else:
        received, left = (replace(packet, destination=f"fd02:{port:x}::1") for packet in (received, left))
    received, left = (rechecked(packet) if checksum else packet for packet in (received, left))
    return f"# {comment}\npacket 1 {received.frame().hex()}\nexpect {port} {left.routed(port).frame().hex()}$\n"


def quantized(full: int, bits: int, length: int, middle: bool) -> int:
    """Quantize a queue length by the definition of a bin, in exact fractions."""
    length = min(length, full)
    if full < 2**bits:
        return length
    index = min(int(Fraction(length * 2**bits, full)), 2**bits - 1)
    first, behind = (ceil(Fraction(full * i, 2**bits)) for i in (index, index + 1))
    last = full if index == 2**bits - 1 else behind - 1
    return first + (last - first) // 2 if middle else first


def stamp_folds() -> Iterator[str]:
    """Packets with a chosen queueing time, by the wire time of a slow link."""
    base = wire.DATA_FIELDS | {"unit": wire.NS, "bits": 32, "hops": 0, "signal": 0}
    cases = [
        (wire.SUM, 0, 0, 0), (wire.SUM, 1, 5, 1), (wire.SUM, 2**32 - 1, 7, 2), (wire.SUM, 1, 2**64 - 1, 3),
        (wire.SUM, 2**32 - 1, 2**128 - 2, 4), (wire.SUM, 1, 2**128 - 2, 4), (wire.SUM_SQU, 2**32 - 1, 0, 0),
        (wire.SUM_SQU, 2**32 - 1, 15 * (2**32 - 1) ** 2, 15), (wire.SUM_SQU, 1, 2**128 - 1, 255),
        (wire.MAX, 1500, 7, 254), (wire.MAX, 7, 1500, 255), (wire.MAX, 0, 2**128 - 1, 1),
        (wire.VECTOR, 1500, 7, 2), (wire.VECTOR, 0, 2**96 + 5, 3), (wire.VECTOR, 2**32 - 1, 2**128 - 3, 254),
    ]  # fmt: skip
    payload = b"odd"
    for at, (kind, part, signal, hops) in enumerate(cases):
        port = 20 + at
        yield output_port(port)
        length = 14 + 20 + 8 + 88 + len(payload)
        time = ceil(Fraction(part * 65536, length))
        assert length * time >> 16 == part
        yield stamp_settings(port, at_enqueue=1, count_itself=1, wire_time=time, full_ns=NEVER)
        fields = base | {"kind": kind, "signal": signal, "hops": hops}
        yield stamped(fields, part, payload, port, f"kind {kind}: {part} to {signal} behind {hops} hops")
        if part == 0:
            yield stamped(fields, part, payload, port, "IPv6", family=6)
        yield stamped(fields, part, payload, port, "without a checksum", checksum=False)


def stamp_bins() -> Iterator[str]:
    """Quantized lengths of a queue that holds only the packet itself."""
    port = 60
    for full in (3000, 4096, 1000, 2**32 - 1, 7):
        for middle in (0, 1):
            port += 1
            yield "\n" + output_port(port)
            yield stamp_settings(port, full_bytes=full, count_itself=1, middle=middle)
            for bits in (1, 2, 4, 8, 11, 12, 13, 31, 32):
                for more in (0, 617, 1384):
                    length = 14 + 20 + 8 + 88 + more
                    fields = wire.DATA_FIELDS | {"kind": wire.SUM, "bits": bits}
                    part = quantized(full, bits, length, bool(middle))
                    comment = f"{length} of {full} bytes in {bits} bits{', the middle' if middle else ''}: {part}"
                    yield stamped(fields, part, bytes(more), port, comment)


def stamp_compact() -> Iterator[str]:
    """Compact headers over a queue that holds only the packet itself: the number of its bin."""
    port = 80
    for full in (3000, 4096, 1000, 2**32 - 1, 7):
        port += 1
        yield "\n" + output_port(port) + stamp_settings(port, full_bytes=full, count_itself=1)
        for kind, bits in itertools.product((wire.MAX, wire.SUM), (1, 4, 5, 8, 9, 12, 16, 17, 28, 32)):
            fields = wire.COMPACT_DATA_FIELDS | {"kind": kind, "unit": wire.BYTES, "bits": bits, "hops": 0}
            for signal in (0, 1, 2 ** wire.compact_bits(fields) - 1):
                fields |= {"signal": signal, "hops": int(signal > 0)}
                payload = bytes(1 + 300 * (signal == 1))
                length = 14 + 20 + 8 + len(wire.header(fields)) + len(payload)
                part = min(length * 2**bits // full, 2**bits - 1)
                comment = f"compact, kind {kind}: {length} of {full} bytes in {bits} bits to {signal}: {part}"
                yield stamped(fields, part, payload, port, comment)
        fields = wire.COMPACT_DATA_FIELDS | {"unit": wire.BYTES, "signal": 0, "bits": 16}
        length = 14 + 20 + 8 + 22 + 3
        part = min(length * 2**16 // full, 2**16 - 1)
        yield stamped(fields, part, b"odd", port, "compact, without a checksum", checksum=False)
        part = min((length + 20) * 2**16 // full, 2**16 - 1)
        yield stamped(fields, part, b"odd", port, "compact, IPv6", family=6)
    yield "\n" + output_port(90) + stamp_settings(90, threshold=0, count_itself=1)
    yield output_port(91) + stamp_settings(91, count_itself=1, reverse=0)
    ind = wire.COMPACT_DATA_FIELDS | {"kind": wire.IND, "signal": 0, "hops": 0}
    yield stamped(ind, 1, b"", 90, "compact, congested")
    acknowledgement = wire.COMPACT_ACK_FIELDS | {"bits": 32, "signal": 0}
    yield stamped(acknowledgement, 2**32 // 200, b"", 90, "a compact acknowledgement")
    data, ack = wire.COMPACT_DATA_FIELDS, wire.COMPACT_ACK_FIELDS
    for comment, port, untouched in (
        ("a compact acknowledgement, without `reverse`", 91, ack),
        ("a compact acknowledgement, forward", 90, ack | {"flags": wire.FORWARD}),
        ("compact, no signal is asked for", 90, data | {"kind": wire.NONE, "signal": 0}),
        ("compact, a queueing time without a rate", 90, data | {"unit": wire.NS}),
        ("compact feedback", 90, data | {"type": 3}),
        ("compact, without a type", 90, data | {"type": 0}),
        ("a compact sum of squares", 90, data | {"kind": wire.SUM_SQU, "signal": 0}),
        ("a compact vector", 90, data | {"kind": wire.VECTOR, "signal": 0}),
        ("compact, a unit without a meaning", 90, data | {"unit": 3}),
    ):
        packet = rechecked(replace(signal_packet(untouched, b"odd"), destination=f"10.2.{port}.1"))
        yield passes(packet, port, comment)
    for kind, bits in ((wire.MAX, 4), (wire.MAX, 16), (wire.MAX, 32), (wire.SUM, 32)):
        complete = wire.header(wire.COMPACT_DATA_FIELDS | {"kind": kind, "bits": bits})
        for size in (1, 19, len(complete) - 1):
            short = Packet(transport=udp(wire.SENDER, wire.PORT, complete[:size]), destination="10.2.90.1")
            yield passes(rechecked(short), 90, f"{size} of {len(complete)} bytes of a compact header")


def stamp() -> Iterator[str]:
    yield (
        LICENCE
        + "# A queue's additions: docs/formats.md section 6. Queues are empty: packets count themselves as lengths.\n\n"
    )
    yield from routes()
    yield from stamp_folds()
    yield "\n# IND: the packet alone is more than no packets\n" + output_port(50)
    yield stamp_settings(50, threshold=0, count_itself=1)
    yield output_port(51) + stamp_settings(51, threshold=1, count_itself=1)
    yield output_port(52) + stamp_settings(52, count_itself=1, reverse=0)
    fields = wire.DATA_FIELDS | {"kind": wire.IND, "signal": 0}
    yield stamped(fields, 1, b"", 50, "congested")
    yield stamped(fields, 0, b"", 51, "not congested")
    yield stamped(fields | {"signal": 1}, 0, b"", 51, "another one was")
    yield stamped(
        wire.ACK_FIELDS | {"kind": wire.SUM, "unit": wire.PACKETS}, 1, b"", 50, "an acknowledgement adds, too"
    )
    yield "\n# Nothing is added\n"
    for comment, untouched in {
        "an acknowledgement, without `reverse`": wire.ACK_FIELDS,
        "feedback": wire.FEEDBACK_FIELDS,
        "no signal is requested": wire.DATA_FIELDS | {"kind": wire.NONE},
        "a queueing time without a rate": wire.DATA_FIELDS | {"unit": wire.NS},
        "another version": wire.DATA_FIELDS | {"version": 3},
        "a type without a meaning": wire.DATA_FIELDS | {"type": 4},
        "a kind without a meaning": wire.DATA_FIELDS | {"kind": 6},
        "a unit without a meaning": wire.DATA_FIELDS | {"unit": 3},
        "no bits": wire.DATA_FIELDS | {"bits": 0},
        "33 bits": wire.DATA_FIELDS | {"bits": 33},
    }.items():
        packet = rechecked(replace(signal_packet(untouched, b"odd"), destination="10.2.52.1"))
        yield passes(packet, 52, comment)
    complete = rechecked(replace(signal_packet(wire.DATA_FIELDS, b""), destination="10.2.52.1"))
    for size in (0, 1, 87):
        short = replace(complete, transport=udp(wire.SENDER, wire.PORT, complete.transport[8 : 8 + size]))
        yield passes(short, 52, f"{size} bytes of a header")
    longer = replace(complete, transport=complete.transport[:4] + struct.pack("!H", 97) + complete.transport[6:])
    yield passes(longer, 52, "a datagram that is longer than its packet")
    yield passes(replace(complete, fragment=0x2000), 52, "a fragment")
    other = replace(complete, transport=struct.pack("!HH", 6191, 6189) + complete.transport[4:])
    yield passes(other, 52, "another port")
    yield from stamp_bins()
    yield from stamp_compact()


def with_wildcards(frame: bytes, *places: tuple[int, int]) -> str:
    """A frame in hex with wildcards: (offset, number of bytes)."""
    text = frame.hex()
    for offset, size in places:
        text = text[: 2 * offset] + "*" * (2 * size) + text[2 * (offset + size) :]
    return text


def reflected(packet: Packet, comment: str) -> str:
    """A data packet that the switch forwards and answers with feedback."""
    fields = {**wire.DATA_FIELDS, "flags": 1, "feedback": 63, "feedback_bits": 6}
    data = rechecked(replace(packet, transport=packet.transport[:8] + wire.header(fields) + b"payload"))
    echoed = {name: fields[name] for name in ("version", "flow", "sequence", "feedback", "feedback_bits")}
    header = wire.header(echoed | {"type": wire.FEEDBACK, "echo_time": fields["time"]})
    ports = packet.transport[2:4] + packet.transport[:2]
    feedback = replace(
        packet.routed(1),
        source=packet.destination, destination=packet.source, transport=ports + struct.pack("!HH", 96, 0) + header,
        hops=64, dsfield=packet.dsfield & 0xFC, options=b"", extensions=(), identification=0, fragment=0x4000,
    )  # fmt: skip
    frame = feedback.frame()
    udp_at = len(frame) - 96
    wanted = with_wildcards(frame, (udp_at + 6, 2), (udp_at + 8 + 40, 8))
    return (
        f"# {comment}\npacket 1 {packet.frame().hex()}\nexpect 2 {data.routed(2).frame().hex()}$\nexpect 1 {wanted}$\n"
    )


def congestion_point() -> Iterator[str]:
    yield LICENCE
    yield "# Feedback: a clone that is recirculated. The equilibrium is -1, so that an empty queue is congestion.\n"
    yield "# What is written, and when, is in crates/p4switch/tests/rules.\n\n"
    yield from routes()
    yield route("10.0.1.0/24", 1) + route("fd00:1::/64", 1) + next_hop(1)
    yield "mirroring_add 1 510\n"
    yield (
        f"setdefault qcn settings(buffer:{NEVER}, equilibrium:{NEVER}, weight:0, full_scale:1, "
        f"inverse_scale:{2**48}, bits:6, min_sampling:{NEVER}, sample_step:0, reflect:{NEVER}, "
        "reflect_step:0, between_samples:1, capped:0)\n\n"
    )
    packet = signal_packet(wire.DATA_FIELDS, b"payload")
    six = signal_packet(wire.DATA_FIELDS, b"payload", family=6)
    yield reflected(replace(packet, dsfield=0xB9), "IPv4: the DSCP stays, and it is not ECN-capable")
    yield reflected(replace(six, dsfield=0xB9), "IPv6")
    yield reflected(replace(packet, options=bytes([1, 1, 1, 0]), vlans=(5, 6)), "without options, with VLAN tags")
    yield reflected(replace(six, extensions=((0, bytes(6)), (60, bytes(14)))), "without extension headers")
    unroutable = rechecked(replace(packet, source=ELSEWHERE))
    fields = {**wire.DATA_FIELDS, "flags": 1, "feedback": 63, "feedback_bits": 6}
    left = rechecked(replace(unroutable, transport=unroutable.transport[:8] + wire.header(fields) + b"payload"))
    yield passes(unroutable, 2, "there is no route to the source", transport=left.transport)
    yield passes(signal_packet(wire.ACK_FIELDS, b""), 2, "acknowledgements are left alone")
    yield "\ncheck_counter reflected(2) packets == 5\ncheck_counter routed(0) packets == 4\n"


FILES = {
    "droptail/p4/tests/forwarding.stf": forwarding,
    "ecn/p4/tests/marking.stf": step_marking,
    "stamp/p4/tests/stamp.stf": stamp,
    "qcn/p4/tests/feedback.stf": congestion_point,
    "rpm/p4/tests/marking.stf": reverse_marking,
    "abq/p4/tests/holding.stf": active_buffer_queueing,
}


def files() -> dict[Path, str]:
    return {ROOT / "schemes" / name: "".join(lines()) for name, lines in FILES.items()}


if __name__ == "__main__":
    check = sys.argv[1:] == ["--check"]
    for path, text in files().items():
        if check and (not path.is_file() or path.read_text() != text):
            sys.exit(f"{path.relative_to(ROOT)} differs from the output of tests/p4/stf.py")
        if not check:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
