# SPDX-License-Identifier: Apache-2.0
"""State folders of labs that are up, and the JSON lines protocol over their unix sockets, on every substrate."""

from __future__ import annotations

import base64
import json
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from qbed.plan.model import LinkChange, LinkEvent
from qbed.substrates import SessionError, Terminal
from qbed.substrates.lines import Message, encode


def state_folder() -> Path:
    """The user's folder for the state of labs that are up; it is volatile if the system has XDG_RUNTIME_DIR."""
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        return Path(runtime) / "qbed"
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "qbed"


def command(kind: str, node: str, argv: list[str], terminal: Terminal | None = None) -> Message:
    """The command that starts a program on a node (docs/formats.md section 2)."""
    fields = {"env": {}} if terminal is None else terminal.fields()
    return {"command": kind, "node": node, "argv": argv, "cwd": "/", **fields}


def input_message(keys: bytes) -> Message:
    """The command that sends keys to a program's terminal."""
    return {"command": "input", "id": 1, "data": base64.b64encode(keys).decode()}


def resize_message(terminal: Terminal) -> Message:
    """The command that sets the size of a program's terminal."""
    return {"command": "resize", "id": 1, "rows": terminal.rows, "columns": terminal.columns}


def change_message(links: Sequence[LinkChange], states: Sequence[LinkEvent]) -> Message:
    """The command that changes links."""
    changed = {"links": [link.plain() for link in links], "states": [state.plain() for state in states]}
    return {"command": "change", "id": 1, **changed}


class LineConnection:
    """A connection that carries JSON lines in both directions."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lines = connection.makefile("rb")

    def __enter__(self) -> LineConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self._lines.close()
        self._connection.close()

    def send(self, message: Message) -> None:
        self._connection.sendall(encode(message))

    def set_timeout(self, seconds: float | None) -> None:
        """Limit the wait for each event (`TimeoutError`); None, the default, is no limit."""
        self._connection.settimeout(seconds)

    def events(self) -> Iterator[Message]:
        """Yield the peer's messages. Raise `SessionError` if it closes the connection."""
        for line in self._lines:
            message: Message = json.loads(line)
            if message.get("event") == "error":
                raise SessionError(str(message.get("error")))
            yield message
        raise SessionError("the lab has ended")


@contextmanager
def _short_path(folder: Path) -> Iterator[str]:
    """Yield a short path to a folder: a socket's path has at most 107 bytes."""
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def connect(folder: Path, name: str) -> socket.socket:
    """A connection to the unix socket `name` in a folder. OSError."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        with _short_path(folder) as path:
            connection.connect(f"{path}/{name}")
    except OSError:
        connection.close()
        raise
    return connection


def listen(folder: Path, name: str) -> socket.socket:
    """A listening unix socket `name` in a folder."""
    listener = socket.socket(socket.AF_UNIX)
    with _short_path(folder) as path:
        listener.bind(f"{path}/{name}")
    listener.listen(16)
    return listener
