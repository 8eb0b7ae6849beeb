# SPDX-License-Identifier: GPL-2.0-only
"""Access to qrate by netlink, and the congestion header, for the kernel tests: kernel/include/uapi/qbed/."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from netlab import NETLINK_GENERIC, NLA_F_NESTED, Netlink, Node, attribute, attributes, parse_address

PORT = 6190
LISTEN, FLOW_NEW, FLOW_GET, FLOW_STOP, FLOW_ENDED = range(1, 6)
# fmt: off
ATTRIBUTES = (
    "pad", "flow", "source", "destination", "source_port", "destination_port", "size", "stop_time", "payload",
    "controller", "parameters", "signal", "unit", "bits", "forward", "reflect", "running", "role", "ended",
    "start_time", "end_time", "rate", "rtt", "min_rtt", "last_signal", "feedbacks", "sent_bytes",
    "sent_packets", "acked_bytes", "received_bytes", "received_packets", "lost_packets", "timeouts",
    "inflight",
)
FIELDS = (
    "version", "type", "flags", "kind", "unit", "bits", "hops", "echo_hops", "flow", "feedback",
    "feedback_bits", "sequence", "offset", "window", "time", "echo_time", "signal_high", "signal",
    "echo_signal_high", "echo_signal",
)
# fmt: on
NUMBERS = {name: number for number, name in enumerate(ATTRIBUTES, start=1)}
NAMES = {number: name for name, number in NUMBERS.items()}
BYTES = {"flow": 4, "source_port": 2, "destination_port": 2, "payload": 4, "signal": 1, "unit": 1, "bits": 1}
BYTES |= {"reflect": 4}
SENDER, RECEIVER = 0, 1
DUMP = 0x300  # NLM_F_DUMP


def pack(**values: object) -> bytes:
    """Encode attributes by name. True is a flag; the size of an integer is that of the uapi header."""
    parts = b""
    for name, value in values.items():
        if value is True:
            parts += attribute(NUMBERS[name], b"")
        elif isinstance(value, int):
            parts += attribute(NUMBERS[name], value, BYTES.get(name, 8))
        elif isinstance(value, (bytes, str)):
            nested = NLA_F_NESTED if name == "parameters" else 0
            parts += attribute(NUMBERS[name] | nested, value)
    return parts


def unpack(data: bytes) -> dict[str, int]:
    found = {}
    for number, value in attributes(data).items():
        name = NAMES[number]
        order = "big" if name in ("source", "destination") else "little"
        found[name] = int.from_bytes(value, order) if value else 1  # type: ignore[arg-type]
    return found


class Rate:
    """qrate in one node."""

    def __init__(self, node: Node) -> None:
        self.node = node
        node.enter()
        self.netlink = Netlink(NETLINK_GENERIC)
        reply = attributes(self.netlink.request(16, struct.pack("<BBH", 3, 1, 0) + attribute(2, "qrate"))[0][4:])
        self.family = struct.unpack("<H", reply[1])[0]
        groups = [attributes(group) for group in attributes(reply[7]).values()]
        self.group = struct.unpack("<I", groups[0][2])[0]

    def request(self, command: int, body: bytes = b"", flags: int = 0) -> list[bytes]:
        replies = self.netlink.request(self.family, struct.pack("<BBH", command, 1, 0) + body, flags)
        return [reply[4:] for reply in replies]

    def listen(self, port: int = PORT, **values: object) -> None:
        self.request(LISTEN, pack(source_port=port, **values))

    def send(self, flow: int, local: str, remote: str, rate_bps: int = 10**9, **values: object) -> None:
        """Start a flow at a fixed rate. Its source port is 10000 plus its id."""
        defaults: dict[str, object] = {
            "flow": flow,
            "source": parse_address(local)[1],
            "destination": parse_address(remote)[1],
            "source_port": 10_000 + flow,
            "destination_port": PORT,
            "controller": "fixed",
            "parameters": attribute(1, rate_bps, 8),
        }
        self.request(FLOW_NEW, pack(**(defaults | values)))

    def stop(self, flow: int) -> None:
        self.request(FLOW_STOP, pack(flow=flow))

    def get(self, flow: int) -> dict[str, int]:
        return unpack(self.request(FLOW_GET, pack(flow=flow))[0])

    def dump(self, **values: object) -> list[dict[str, int]]:
        return [unpack(reply) for reply in self.request(FLOW_GET, pack(**values), DUMP)]

    def subscribe_ended(self) -> None:
        """Subscribe to the multicast group that `ended()` reads."""
        self.node.enter()
        self.events = Netlink(NETLINK_GENERIC).socket
        self.events.setsockopt(270, 1, self.group)

    def ended(self) -> int:
        data = self.events.recv(1 << 16)
        assert data[16] == FLOW_ENDED
        return unpack(data[20:])["flow"]


HEADER = struct.Struct(">BBBBBBBBIHBxQQQQQQQQQ")
DATA, ACK, FEEDBACK = 1, 2, 3


@dataclass
class Packet:
    """A captured packet with a congestion header."""

    source: bytes
    destination: bytes
    source_port: int
    destination_port: int
    fields: dict[str, int]
    payload: bytes
    ip: bytes
    udp: bytes


def header(**fields: int) -> bytes:
    assert HEADER.size == 88
    values = {"version": 1} | fields
    return HEADER.pack(*(values.get(name, 0) for name in FIELDS))


def parse(frame: bytes) -> Packet | None:
    """Parse an Ethernet frame. Returns None if it has no congestion header."""
    kind = struct.unpack_from(">H", frame, 12)[0]
    ip = frame[14:]
    length = 20 if kind == 0x0800 else 40
    if kind not in (0x0800, 0x86DD) or ip[9 if kind == 0x0800 else 6] != 17:
        return None
    udp = ip[length : length + struct.unpack_from(">H", ip, length + 4)[0]]
    source_port, destination_port = struct.unpack_from(">HH", udp)
    if PORT not in (source_port, destination_port) or len(udp) < 96:
        return None
    source, destination = (ip[12:16], ip[16:20]) if length == 20 else (ip[8:24], ip[24:40])
    fields = dict(zip(FIELDS, HEADER.unpack_from(udp, 8), strict=True))
    return Packet(source, destination, source_port, destination_port, fields, udp[96:], ip[:length], udp)


def folded(data: bytes) -> int:
    """The one's complement sum of the Internet checksum: 0xFFFF if the data contains a correct checksum."""
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def checksum_is_right(packet: Packet) -> bool:
    pseudo = packet.source + packet.destination + struct.pack(">II", len(packet.udp), 17)
    return packet.udp[6:8] != b"\0\0" and folded(pseudo + packet.udp) == 0xFFFF
