# SPDX-License-Identifier: Apache-2.0
"""Send and capture datagrams with the congestion header in a running lab."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from qbed_testing.congestion import PORT, Header, HeaderError, parse
from qbed_testing.pcap import Packet, read_pcap
from qbed_testing.running import RunningLab

SENDER = 40000
NODE_PROGRAM = """
import json, socket, sys, time
SO_NO_CHECK = 11
def family(address):
    return socket.AF_INET6 if ":" in address else socket.AF_INET
def send(file, answers):
    sockets = {}
    for line in open(file):
        one = json.loads(line)
        key = family(one["to"]), one["source"], one["checksum"]
        if key not in sockets:
            sockets[key] = found = socket.socket(key[0], socket.SOCK_DGRAM)
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if key[0] == socket.AF_INET6:
                found.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            found.setsockopt(socket.SOL_SOCKET, SO_NO_CHECK, not one["checksum"])
            found.bind(("", one["source"]))
        sockets[key].sendto(bytes.fromhex(one["payload"]), (one["to"], one["port"]))
    time.sleep(0.1)
    with open(answers, "w") as out:
        for found in sockets.values():
            found.setblocking(False)
            try:
                while True:
                    record(out, *found.recvfrom(65536))
            except BlockingIOError:
                pass
def record(out, payload, source):
    print(json.dumps([source[0].removeprefix("::ffff:"), source[1], payload.hex()]), file=out)
def listen(port, file):
    found = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
    found.bind(("", int(port)))
    with open(file, "w", buffering=1) as out:
        while True:
            record(out, *found.recvfrom(65536))
def frames(interface, file):
    raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    raw.bind((interface, 0))
    for line in open(file):
        raw.send(bytes.fromhex(line))
{"send": send, "listen": listen, "frames": frames}[sys.argv[1]](*sys.argv[2:])
"""


class Datagram(NamedTuple):
    """A datagram to send."""

    to: str
    payload: bytes
    port: int = PORT
    source: int = SENDER
    checksum: bool = True


class CapturedDatagram(NamedTuple):
    """A captured UDP packet over IPv4 or IPv6."""

    time_ns: int
    source: bytes
    destination: bytes
    ports: tuple[int, int]
    checksum: int
    payload: bytes
    frame_length: int
    has_valid_checksums: bool
    """The UDP checksum and the checksum of an IPv4 header."""
    hop_limit: int
    dsfield: int

    @property
    def header(self) -> Header:
        return parse(self.payload)

    @property
    def has_congestion_header(self) -> bool:
        try:
            return bool(self.header)
        except HeaderError:
            return False


def ones_complement_sum(data: bytes) -> int:
    """The sum of RFC 1071, modulo 0xffff."""
    total: int = sum(struct.unpack(f"!{(len(data) + 1) // 2}H", data + bytes(len(data) % 2)))
    return total % 0xFFFF  # 0 and 0xffff are equal


def parse_datagram(packet: Packet) -> CapturedDatagram | None:
    """Parse a UDP packet without IP options or extension headers; None if the packet is none."""
    ip = packet.data[14:]
    if packet.data[12:14] == b"\x08\x00" and ip[9] == 17:
        udp, source, destination = ip[20 : struct.unpack_from("!H", ip, 2)[0]], ip[12:16], ip[16:20]
        valid, hop_limit, dsfield = ones_complement_sum(ip[:20]) == 0, ip[8], ip[1]
    elif packet.data[12:14] == b"\x86\xdd" and ip[6] == 17:
        udp, source, destination = ip[40 : 40 + struct.unpack_from("!H", ip, 4)[0]], ip[8:24], ip[24:40]
        valid, hop_limit, dsfield = True, ip[7], struct.unpack_from("!H", ip)[0] >> 4 & 0xFF
    else:
        return None
    sport, dport, _, check = struct.unpack_from("!4H", udp)
    pseudo = source + destination + struct.pack("!II", len(udp), 17)
    valid = valid and (ones_complement_sum(pseudo + udp) == 0 if check else len(source) == 4)
    return CapturedDatagram(
        packet.time_ns, source, destination, (sport, dport), check, udp[8:], packet.length, valid, hop_limit, dsfield
    )


class DatagramLab:
    """Sends, receives and captures datagrams in a running lab. `folder` is /mnt in every node."""

    def __init__(self, lab: RunningLab, folder: Path) -> None:
        self.lab, self.folder = lab, folder
        (folder / "datagrams.py").write_text(NODE_PROGRAM)

    def _run(self, node: str, *argv: str) -> str:
        status, output = self.lab.run(node, *argv)
        assert status == 0, output
        return output

    def sleep(self, seconds: float = 1) -> None:
        self._run("h1", "sleep", str(seconds))

    def capture(self, ends: Mapping[str, str], packet_filter: str = "udp") -> None:
        """Start a capture per interface, for example of `{"s1": "eth0 eth1"}`."""
        for node, interfaces in ends.items():
            for interface in interfaces.split():
                command = "tcpdump --immediate-mode -U -n -s 1600 -B 8192 --nano -Z root"
                file = f"/mnt/{node}-{interface}.pcap"
                self.lab.background(node, *command.split(), "-i", interface, "-w", file, packet_filter)
        self.sleep()

    def captured(self, node: str, interface: str) -> list[CapturedDatagram]:
        packets = read_pcap(self.folder / f"{node}-{interface}.pcap")
        return [found for packet in packets if (found := parse_datagram(packet)) is not None]

    def frames(self, node: str, interface: str) -> list[bytes]:
        return [packet.data for packet in read_pcap(self.folder / f"{node}-{interface}.pcap")]

    def listen(self, node: str, port: int = PORT) -> None:
        self.lab.background(node, "python3", "/mnt/datagrams.py", "listen", str(port), f"/mnt/{node}-{port}.received")
        self.sleep()

    def received(self, node: str, port: int = PORT) -> list[tuple[str, int, bytes]]:
        return read_received(self.folder / f"{node}-{port}.received")

    def send(self, node: str, datagrams: Iterable[Datagram]) -> list[tuple[str, int, bytes]]:
        """Send datagrams, and return those that their sockets receive within 0.1 s: address, port, payload."""
        lines = [json.dumps(datagram._asdict() | {"payload": datagram.payload.hex()}) for datagram in datagrams]
        (self.folder / "to-send").write_text("\n".join(lines))
        self._run(node, "python3", "/mnt/datagrams.py", "send", "/mnt/to-send", "/mnt/answers")
        return read_received(self.folder / "answers")

    def send_frames(self, node: str, interface: str, frames: Sequence[bytes]) -> None:
        (self.folder / "frames").write_text("\n".join(frame.hex() for frame in frames))
        self._run(node, "python3", "/mnt/datagrams.py", "frames", interface, "/mnt/frames")

    def statistics(self, node: str, interface: str) -> dict[str, Any]:
        """The statistics of an interface's root qdisc, as tc shows them."""
        command = ("env", "TC_LIB_DIR=/mnt/tc", "tc", "-s", "-j", "qdisc", "show", "dev", interface)
        found: dict[str, Any] = json.loads(self._run(node, *command))[0]
        return found


def read_received(file: Path) -> list[tuple[str, int, bytes]]:
    """Read the address, port and payload of received datagrams."""
    lines = file.read_text().splitlines()
    return [(source, number, bytes.fromhex(payload)) for source, number, payload in map(json.loads, lines)]


def padded_payload(header: Header, length: int) -> bytes:
    """A payload of `length` bytes that begins with the header."""
    return header.pack() + bytes(length - header.length)
