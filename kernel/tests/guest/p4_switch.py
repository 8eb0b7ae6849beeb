# SPDX-License-Identifier: GPL-2.0-only
"""A P4 switch as the kernel tests ask it: /dev/qp4, kernel/include/uapi/qbed/qp4.h."""

from __future__ import annotations

import os
import socket
import struct
from dataclasses import dataclass

from netlab import Node

LOAD, ATTACH, DETACH, CONTROL, COUNTERS, EVENTS, CPU_PORT, PACKET_OUT = range(1, 9)
NO_CPU_PORT = 511
COUNTER_NAMES = (
    "received",
    "sent",
    "no_program",
    "no_port",
    "refused",
    "too_many_rounds",
    "foreign",
    "runt",
    "no_memory",
    "no_group",
    "events_lost",
    "packets_in",
    "packets_in_lost",
    "packets_out",
)


@dataclass
class Event:
    """What a program said: a digest (1), a line (2), a failed assert (3); a packet that left by the CPU port (4)."""

    kind: int
    id: int
    time_ns: int
    bytes: bytes


class Switch:
    """A node's P4 switch."""

    def __init__(self, node: Node) -> None:
        self.node = node
        node.enter()
        self.device = os.open("/dev/qp4", os.O_RDWR)

    def close(self) -> None:
        os.close(self.device)

    def ask(self, command: int, value: int = 0, data: bytes = b"") -> bytes:
        """The answer; a refusal is an OSError with the words that came."""
        os.write(self.device, struct.pack("<II", command, value) + data)
        answer = b""
        while part := os.read(self.device, 1 << 20):
            answer += part
        (error,) = struct.unpack_from("<I", answer)
        if error:
            raise OSError(error, answer[8:].decode())
        return answer[8:]

    def load(self, image: bytes) -> None:
        self.ask(LOAD, data=image)

    def attach(self, port: int, interface: str) -> None:
        self.ask(ATTACH, port, interface.encode())

    def detach(self, port: int) -> None:
        self.ask(DETACH, port)

    def control(self, request: bytes) -> bytes:
        return self.ask(CONTROL, data=request)

    def cpu_port(self, port: int) -> None:
        self.ask(CPU_PORT, port)

    def packet_out(self, packet: bytes) -> None:
        self.ask(PACKET_OUT, data=packet)

    def counters(self) -> dict[str, int]:
        """Those that are not 0."""
        values = struct.unpack(f"<{len(COUNTER_NAMES)}Q", self.ask(COUNTERS))
        return {name: value for name, value in zip(COUNTER_NAMES, values, strict=True) if value}

    def events(self, most: int = 1000) -> list[Event]:
        data, found = self.ask(EVENTS, most), []
        while data:
            kind, id, time_ns, length = struct.unpack_from("<IIQI", data)
            found.append(Event(kind, id, time_ns, data[24 : 24 + length]))
            data = data[24 + (length + 7 & ~7) :]
        return found


class Wire:
    """A host's interface: frames out and in, as they are."""

    def __init__(self, node: Node, interface: str) -> None:
        node.enter()
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        for buffer in (32, 33):  # SO_SNDBUFFORCE, SO_RCVBUFFORCE
            self.socket.setsockopt(socket.SOL_SOCKET, buffer, 1 << 24)
        self.socket.bind((interface, 3))
        self.socket.setblocking(False)

    def send(self, frame: bytes) -> None:
        self.socket.send(frame)

    def received(self) -> list[bytes]:
        """What came since, without what was sent from here."""
        found = []
        while True:
            try:
                frame, address = self.socket.recvfrom(1 << 16)
            except BlockingIOError:
                return found
            if address[2] != socket.PACKET_OUTGOING:
                found.append(frame)
