# SPDX-License-Identifier: Apache-2.0
"""What labs that are up have in common on every substrate: where their state is, and how one talks to their keepers."""

from __future__ import annotations

import base64
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from qbed.substrates import SessionError, Terminal

Message = dict[str, Any]


def state_folder() -> Path:
    """Where labs that are up have a folder each: this user's; gone after a reboot, if the system has such a place."""
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        return Path(runtime) / "qbed"
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "qbed"


def command(kind: str, node: str, argv: list[str], terminal: Terminal | None = None) -> Message:
    """A program for a node, as agent and keeper take it (docs/formats.md section 2)."""
    own = {"env": {}} if terminal is None else terminal.fields()
    return {"command": kind, "node": node, "argv": argv, "cwd": "/", **own}


def typed(keys: bytes) -> Message:
    """What is typed at a program's terminal, likewise."""
    return {"command": "input", "id": 1, "data": base64.b64encode(keys).decode()}


def resized(terminal: Terminal) -> Message:
    """Its new size, likewise."""
    return {"command": "resize", "id": 1, "rows": terminal.rows, "columns": terminal.columns}


class Conversation:
    """JSON lines both ways."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lines = connection.makefile("rb")

    def __enter__(self) -> Conversation:
        return self

    def __exit__(self, *_: object) -> None:
        self._lines.close()
        self._connection.close()

    def send(self, message: Message) -> None:
        self._connection.sendall(json.dumps(message).encode() + b"\n")

    def patience(self, seconds: float | None) -> None:
        """How long each answer may take from now on (`TimeoutError`); None, as in the beginning: without end."""
        self._connection.settimeout(seconds)

    def answers(self) -> Iterator[Message]:
        """The other side's messages; `SessionError` if it ends before the last of them."""
        for line in self._lines:
            message: Message = json.loads(line)
            if message.get("event") == "error":
                raise SessionError(str(message.get("error")))
            yield message
        raise SessionError("the lab has ended")


@contextmanager
def _near(folder: Path) -> Iterator[str]:
    """A short path to a folder, whatever its own length: a socket's path has at most 107 bytes."""
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def connect(folder: Path, name: str) -> socket.socket:
    """A connection to the unix socket `name` in a folder. OSError."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        with _near(folder) as near:
            connection.connect(f"{near}/{name}")
    except OSError:
        connection.close()
        raise
    return connection


def listen(folder: Path, name: str) -> socket.socket:
    """A listening unix socket `name` in a folder."""
    listener = socket.socket(socket.AF_UNIX)
    with _near(folder) as near:
        listener.bind(f"{near}/{name}")
    listener.listen(16)
    return listener
