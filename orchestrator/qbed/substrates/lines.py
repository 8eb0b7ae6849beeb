# SPDX-License-Identifier: Apache-2.0
"""JSON lines, the messages on the sockets of guests, nodes and labs (docs/formats.md section 2)."""

from __future__ import annotations

import json
import socket
from typing import Any

Message = dict[str, Any]


def encode(message: Message) -> bytes:
    """Encode a message as a line."""
    return json.dumps(message).encode() + b"\n"


class LineReader:
    """Reads messages from a stream socket. An incomplete line is kept until its end arrives."""

    def __init__(self) -> None:
        self._received = bytearray()

    def read(self, connection: socket.socket, *, only_objects: bool = False) -> list[Message] | None:
        """The messages that have arrived; None if the connection is closed.

        Lines that are no JSON objects are ignored. `only_objects`: they count as the end of the connection.
        """
        try:
            data = connection.recv(1 << 16)
        except OSError:
            return None
        if not data:
            return None
        self._received += data
        if b"\n" not in data:
            return []
        *lines, self._received = self._received.split(b"\n")
        messages = [message for line in lines if isinstance(message := _parse(line), dict)]
        return None if only_objects and len(messages) < len(lines) else messages


def _parse(line: bytearray) -> object:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None
