# SPDX-License-Identifier: Apache-2.0
"""STF files of the programs that read acknowledgements: rpm and abq."""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Iterator
from dataclasses import replace

from p4.stf_packets import A6, B6, LICENCE, TCP, UDP, A, B, Packet, next_hop, output_port, route, routes, tcp, udp

NEVER = 2**32 - 1
ECE = 0x40
RPM_ALWAYS = "red(buffer:1000000, min:0, max:0, slope:0, wlog:0)"


def exchange(arrives: Packet, at: int, leaves: Packet | None, port: int, comment: str) -> str:
    """A packet that arrives at a port, and as it leaves another."""
    expect = f"expect {port} {leaves.routed(port).frame().hex()}$\n" if leaves else ""
    return f"# {comment}\npacket {at} {arrives.frame().hex()}\n{expect}"


def with_ece(packet: Packet) -> Packet:
    """A segment with ECE, and the checksum as RFC 1624 updates it."""
    words = [*struct.unpack("!10H", packet.transport[:20])]
    before, after = words[6], words[6] | ECE
    total = (words[8] ^ 0xFFFF) + (before ^ 0xFFFF) + after
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    words[6], words[8] = after, total ^ 0xFFFF
    return replace(packet, transport=struct.pack("!10H", *words) + packet.transport[20:])


def rpm_of_family(source: str, destination: str, name: str) -> Iterator[str]:
    """Reverse path marking of a flow from source to destination: port 2 signals congestion with each packet."""
    data = Packet(source, destination, TCP, tcp(1000, 2000, payload=b"data"), dsfield=0xBA)
    ce = replace(data, dsfield=0xBB)
    back = tcp(2000, 1000)
    ack = Packet(destination, source, TCP, back)

    def segment(flags: int) -> Packet:
        return replace(ack, transport=tcp(2000, 1000, flags))

    yield f"\n# {name}\n"
    yield exchange(data, 1, ce, 2, "no acknowledgement was seen: the mark goes forward")
    yield exchange(ack, 2, ack, 1, "an acknowledgement, without a decision")
    yield exchange(data, 1, data, 2, "a decision waits for an acknowledgement")
    yield exchange(data, 1, data, 2, "another one")
    yield exchange(segment(0x14), 2, segment(0x14), 1, "a reset carries none, and clears both")
    yield exchange(ack, 2, ack, 1, "an acknowledgement, without a decision")
    yield exchange(data, 1, data, 2, "a decision")
    yield exchange(data, 1, data, 2, "another one")
    yield exchange(ack, 2, with_ece(ack), 1, "it is carried")
    already = segment(0x10 | ECE)
    yield exchange(already, 2, already, 1, "an acknowledgement with ECE takes one")
    yield exchange(ack, 2, ack, 1, "no decision is left")
    yield exchange(ce, 1, ce, 2, "CE stays, and is no decision")
    yield exchange(ack, 2, ack, 1, "no decision")
    yield exchange(replace(data, dsfield=0xB8), 1, None, 2, "not ECN-capable: dropped")
    other = replace(data, protocol=UDP, transport=udp(1000, 2000))
    yield exchange(other, 1, replace(other, dsfield=0xBB), 2, "not TCP: the mark goes forward")
    yield exchange(data, 1, data, 2, "a decision")
    yield exchange(segment(0x12), 2, segment(0x12), 1, "a SYN-ACK carries none, and clears it")
    yield exchange(ack, 2, ack, 1, "no decision is left")


def reverse_marking() -> Iterator[str]:
    yield LICENCE
    yield "# RED with thresholds of 0 decides about each packet that port 2 enqueues.\n\n"
    yield from routes()
    yield route("10.0.1.0/24", 1) + route("fd00:1::/64", 1) + next_hop(1)
    yield f"add codel port:2 at_ingress()\nadd decides port:2 {RPM_ALWAYS}\n"
    yield from rpm_of_family(A, B, "IPv4")
    yield from rpm_of_family(A6, B6, "IPv6")

    yield "\n# One register: the second flow collides with the first\n"
    yield "setdefault rpm registers(mask:0, reverse_timeout_us:1000000000, per_port:0)\n"
    first = Packet(A, B, TCP, tcp(3000, 4000, payload=b"data"), dsfield=2)
    second = replace(first, transport=tcp(3001, 4001, payload=b"data"))
    acks = [Packet(B, A, TCP, tcp(4000 + flow, 3000 + flow)) for flow in range(2)]
    yield exchange(acks[0], 2, acks[0], 1, "the first flow holds it")
    yield exchange(acks[1], 2, acks[1], 1, "the second does not")
    yield exchange(second, 1, replace(second, dsfield=3), 2, "so its mark goes forward")
    yield exchange(first, 1, first, 2, "the first flow's waits")
    yield exchange(acks[1], 2, acks[1], 1, "not for the second")
    yield exchange(acks[0], 2, with_ece(acks[0]), 1, "but for the first")

    yield "\n# One bit a flow: decisions until the next acknowledgement are one\n"
    yield "setdefault rpm bits(mask:65535, reverse_timeout_us:1000000000, per_port:0)\n"
    yield exchange(acks[1], 2, acks[1], 1, "an acknowledgement")
    yield exchange(second, 1, second, 2, "a decision")
    yield exchange(second, 1, second, 2, "the same")
    yield exchange(acks[1], 2, with_ece(acks[1]), 1, "it is carried")
    yield exchange(acks[1], 2, acks[1], 1, "no decision is left")

    yield "\n# A step of no packets: an empty queue is not above it, and nor is a linear law's threshold\n"
    yield "add decides port:3 step(buffer:1000000, threshold:0)\nadd codel port:3 at_ingress()\n"
    yield exchange(replace(first, destination="10.0.2.129"), 1, replace(first, destination="10.0.2.129"), 3, "step")
    yield output_port(70)
    yield f"add decides port:70 linear(buffer:1000000, threshold:0, eta:{10**12})\nadd codel port:70 at_ingress()\n"
    yield exchange(replace(first, destination="10.2.70.1"), 1, replace(first, destination="10.2.70.1"), 70, "linear")
    yield "\n# A queue that is full to its buffer decides nothing\n" + output_port(71)
    yield "add decides port:71 red(buffer:0, min:0, max:0, slope:0, wlog:0)\nadd codel port:71 at_ingress()\n"
    yield exchange(replace(first, destination="10.2.71.1"), 1, replace(first, destination="10.2.71.1"), 71, "full")

    yield "\n# marked = forward + CE + reverse + ECE + cleared + merged; none is pending\n"
    for name, packets in {
        "marked": 20, "forward_marks": 5, "ce_arrived": 2, "dropped": 2, "collisions": 1, "reverse_marks": 4,
        "ece_already_set": 2, "merged": 1,
    }.items():  # fmt: skip
        yield f"check_counter {name}(2) packets == {packets}\n"
    for port in (3, 70, 71):
        yield f"check_counter marked({port}) packets == 0\n"


def crc16(data: bytes) -> int:
    """CRC-16 of BMv2: polynomial 0x8005, reflected."""
    check = 0
    for byte in data:
        check ^= byte
        for _ in range(8):
            check = check >> 1 ^ (0xA001 if check & 1 else 0)
    return check


def flow_of(packet: Packet) -> int:
    """The register of a segment's flow."""
    addresses = b"".join(ipaddress.ip_address(x).packed for x in (packet.source, packet.destination))
    return crc16(addresses + packet.transport[:4])


US, CS, LCS = 0, 1, 2


def holding_of_family(source: str, destination: str, name: str) -> Iterator[str]:
    """Acknowledgements that arrive at port 2 while it is congested. Nothing may be held, so each leaves at once."""
    ack = Packet(destination, source, TCP, tcp(2000, 1000))

    def segment(flags: int = 0x10, payload: bytes = b"") -> Packet:
        return replace(ack, transport=tcp(2000, 1000, flags, payload))

    yield f"\n# {name}\nregister_write abq_state 2 {US}\n"
    yield exchange(ack, 2, ack, 1, "uncongested")
    for state, title in ((CS, "congested"), (LCS, "lightly congested")):
        yield f"register_write abq_state 2 {state}\n"
        yield exchange(ack, 2, with_ece(ack), 1, f"{title}: it is held, and leaves with ECE")
        already = segment(0x10 | ECE)
        yield exchange(already, 2, already, 1, "ECE stays")
        for flags, comment in {0x12: "a SYN-ACK", 0x11: "FIN", 0x14: "RST", 0x00: "no ACK"}.items():
            yield exchange(segment(flags), 2, segment(flags), 1, f"{comment} passes")
        yield exchange(segment(payload=b"data"), 2, segment(payload=b"data"), 1, "data passes")
        other = replace(ack, protocol=UDP, transport=udp(2000, 1000))
        yield exchange(other, 2, other, 1, "UDP passes")
        yield exchange(ack, 3, ack, 1, "an acknowledgement at another port passes")
    yield f"register_write abq_state 2 {US}\n"
    flow = flow_of(ack)
    yield f"register_write abq_first {flow} 100\nregister_write abq_next {flow} 101\n"
    yield exchange(ack, 2, ack, 1, "uncongested, behind one of its flow: it waits a turn, and is not one that was held")


def active_buffer_queueing() -> Iterator[str]:
    yield LICENCE
    yield "# An ACK circulates until it is released. Here states and limits are set so that each is.\n\n"
    yield from routes()
    yield route("10.0.1.0/24", 1) + route("fd00:1::/64", 1) + next_hop(1)
    yield "setdefault abq_recirculation recirculation(port:510, limit:0)\n"
    yield "setdefault marking mark_above(packets:0)\n"
    yield from holding_of_family(A, B, "IPv4")
    yield from holding_of_family(A6, B6, "IPv6")
    yield "\n# Of two families in CS and LCS, with and without ECE\n"
    for name, packets in {
        "holds": 8, "overflow": 8, "released": 8, "released_with_ece": 8, "corrected": 4, "entries_cs": 0,
    }.items():  # fmt: skip
        yield f"check_counter {name}(2) packets == {packets}\n"
    yield "check_counter holds(3) packets == 0\n"

    yield "\n# A threshold of no packets: each packet congests its port, and its departure ends the congestion\n"
    yield f"setdefault abq_recirculation recirculation(port:510, limit:{NEVER})\n"
    yield f"setdefault abq hold_above(packets:0, buffer:1000, count:{NEVER})\n"
    data = Packet(A, B, TCP, tcp(1000, 2000, payload=b"data"), dsfield=2)
    yield exchange(data, 1, data, 2, "the queue is empty: no mark")
    yield exchange(replace(data, destination=B6, source=A6), 1, replace(data, destination=B6, source=A6), 2, "IPv6")
    for name, packets in {"entries_cs": 2, "entries_us": 2, "entries_lcs": 0, "releases": 2, "marked": 0}.items():
        yield f"check_counter {name}(2) packets == {packets}\n"

    yield "\n# A release that is behind its ticket. A lost one of its flow blocks it for one turn\n"
    ack = Packet(B, A, TCP, tcp(4000, 3000))
    yield f"setdefault abq hold_above(packets:20, buffer:1000, count:{NEVER})\n"
    yield f"register_write abq_state 2 {CS}\nregister_write abq_tail 2 7\nregister_write abq_released 2 9\n"
    yield f"register_write abq_first {flow_of(ack)} 100\nregister_write abq_next {flow_of(ack)} 101\n"
    yield exchange(ack, 2, with_ece(ack), 1, "it leaves with ECE")
    for name, packets in {"holds": 9, "released": 9, "overflow": 8, "corrected": 5}.items():
        yield f"check_counter {name}(2) packets == {packets}\n"
