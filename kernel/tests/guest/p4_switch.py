# SPDX-License-Identifier: GPL-2.0-only
"""Access to a P4 switch in the kernel tests: /dev/qp4, kernel/include/uapi/qbed/qp4.h."""

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
    """An event: a digest (1), a log message (2), a failed assert (3) or a packet sent to the CPU port (4)."""

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

    def request(self, command: int, value: int = 0, data: bytes = b"") -> bytes:
        """Send a request and return the reply; an error reply raises OSError with its message."""
        os.write(self.device, struct.pack("<II", command, value) + data)
        reply = b""
        while part := os.read(self.device, 1 << 20):
            reply += part
        (error,) = struct.unpack_from("<I", reply)
        if error:
            raise OSError(error, reply[8:].decode())
        return reply[8:]

    def load(self, image: bytes) -> None:
        self.request(LOAD, data=image)

    def attach(self, port: int, interface: str) -> None:
        self.request(ATTACH, port, interface.encode())

    def detach(self, port: int) -> None:
        self.request(DETACH, port)

    def control(self, request: bytes) -> bytes:
        return self.request(CONTROL, data=request)

    def cpu_port(self, port: int) -> None:
        self.request(CPU_PORT, port)

    def packet_out(self, packet: bytes) -> None:
        self.request(PACKET_OUT, data=packet)

    def counters(self) -> dict[str, int]:
        """The counters that are not 0."""
        values = struct.unpack(f"<{len(COUNTER_NAMES)}Q", self.request(COUNTERS))
        return {name: value for name, value in zip(COUNTER_NAMES, values, strict=True) if value}

    def events(self, limit: int = 1000) -> list[Event]:
        data, found = self.request(EVENTS, limit), []
        while data:
            kind, id, time_ns, length = struct.unpack_from("<IIQI", data)
            found.append(Event(kind, id, time_ns, data[24 : 24 + length]))
            data = data[24 + (length + 7 & ~7) :]
        return found


class Wire:
    """A raw socket on a host's interface."""

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
        """The frames received since the last call, without those sent from here."""
        found = []
        while True:
            try:
                frame, address = self.socket.recvfrom(1 << 16)
            except BlockingIOError:
                return found
            if address[2] != socket.PACKET_OUTGOING:
                found.append(frame)
