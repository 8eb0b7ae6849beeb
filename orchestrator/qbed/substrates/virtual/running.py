# SPDX-License-Identifier: Apache-2.0
"""Clients and commands of a keeper, and how virtual time advances for a command."""

from __future__ import annotations

import pwd
import socket
import struct
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum, auto

from qbed.substrates import Pace
from qbed.substrates.lines import LineReader, Message, encode


class Need(Enum):
    """How virtual time advances for a command."""

    SETTLE = auto()
    """By `MOMENT_NS` of the keeper, so that the program reacts to its input."""
    STOPPED = auto()
    REALTIME = auto()
    FAST = auto()


class Client:
    """A connection of a client. Errors of a closed connection are ignored."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._reader = LineReader()

    def send(self, message: Message) -> None:
        with suppress(OSError):
            self.connection.sendall(encode(message))

    def peer_name(self) -> str:
        """The user and the process of the peer."""
        form = struct.Struct("3i")
        pid, uid, _ = form.unpack(self.connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, form.size))
        try:
            user = pwd.getpwuid(uid).pw_name
        except KeyError:
            user = f"user {uid}"
        return f"`qbed down` ({user}, process {pid})"

    def receive(self) -> list[Message] | None:
        """The messages received; None if the connection is closed."""
        return self._reader.read(self.connection, only_objects=True)


@dataclass
class Running:
    """A command in the guest."""

    client: Client | None
    what: str
    since_ns: int
    signals: deque[str] = field(default_factory=lambda: deque(("INT", "TERM", "KILL")))
    cancelled: bool = False
    background: bool = False
    """Its output goes to its file, even while a client waits for its end."""
    at_terminal: bool = False
    raw: bool = False
    """Its terminal is in raw mode."""
    at_prompt: bool = False
    """Its shell waits for a command."""
    input_pending: bool = False
    """A key was typed or the prompt appeared: the program needs `MOMENT_NS` to react."""
    settling: bool = False
    """`MOMENT_NS` is passing."""
    listens: bool = False
    """It waits for what other commands do: time does not advance for it."""

    def need(self, pace: Pace) -> Need:
        """How time advances for this command at the lab's pace."""
        if self.input_pending:
            return Need.SETTLE
        if self.at_prompt or self.listens or pace == "manual":
            return Need.STOPPED
        return Need.REALTIME if self.raw or pace == "real" else Need.FAST
