# SPDX-License-Identifier: Apache-2.0
"""The nodes of a lab in containers, spoken to over their control sockets (docs/formats.md section 5)."""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from qbed.substrates import CellError
from qbed.substrates.containers.folder import NODES, SOCKET
from qbed.substrates.lines import LineReader, Message, encode
from qbed.substrates.sessions import connect

RETRY_S = 0.05
LOOK_S = 1.0


class Node:
    """A node: its connection and its last reported state."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.state = "absent"
        self.error: str | None = None
        self._folder = folder
        self._reader = LineReader()
        self.connection: socket.socket | None = None

    def connect(self) -> bool:
        """Try to connect."""
        try:
            self.connection = connect(self._folder, SOCKET)
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        except OSError as error:
            raise CellError(f"node {self.name}: its control socket cannot be used: {error.strerror}") from error
        return True

    def send(self, message: Message) -> None:
        assert self.connection is not None
        try:
            self.connection.sendall(encode(message))
        except OSError as error:
            raise CellError(f"node {self.name} has ended: {error.strerror}") from error

    def receive(self) -> list[Message] | None:
        """Read its messages and update its state; None if the connection is closed."""
        assert self.connection is not None
        messages = self._reader.read(self.connection)
        for message in messages or ():
            if message.get("event") == "hello":
                self.state = str(message.get("state"))
                self.error = message.get("error") or self.error
            elif message.get("event") == "ready":
                self.state = "ready"
            elif message.get("event") == "error":
                self.error = str(message.get("error"))
        return messages

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None


class Nodes:
    """All nodes of a lab."""

    def __init__(self, names: Sequence[str], folder: Path, trouble: Callable[[], str | None]) -> None:
        """`trouble` looks for a container that has ended: it says which and why, or None."""
        self._nodes = [Node(name, folder / NODES / name) for name in names]
        self._trouble = trouble
        self._selector = selectors.DefaultSelector()
        self._looked = time.monotonic()

    def __len__(self) -> int:
        return len(self._nodes)

    def close(self) -> None:
        for node in self._nodes:
            node.close()
        self._selector.close()

    def gather(self, until: float) -> None:
        """Connect to every node and wait until each says `waiting`; `until` is a time of `time.monotonic`."""
        left = list(self._nodes)
        while left:
            left = [node for node in left if not node.connect()]
            self._check(until, left)
            if left:
                time.sleep(RETRY_S)
        for node in self._nodes:
            assert node.connection is not None
            self._selector.register(node.connection, selectors.EVENT_READ, node)
        self.wait({"waiting"}, until)

    def start(self, mode: str, origin_ns: int) -> None:
        """Start every node."""
        for number, node in enumerate(self._nodes, 1):
            node.send({"command": "go", "id": number, "mode": mode, "origin_ns": origin_ns})

    def wait(self, states: set[str], until: float, tick: Callable[[], None] = lambda: None) -> None:
        """Wait until every node is in one of these states; a node's trouble is a `CellError`."""
        while any(node.state not in states for node in self._nodes):
            for key, _ in self._selector.select(0.2):
                self._receive(key.data, states)
            tick()
            self._check(until, [node for node in self._nodes if node.state not in states])

    def _receive(self, node: Node, states: set[str]) -> None:
        messages = node.receive()
        if messages is None:
            self._selector.unregister(node.connection)  # type: ignore[arg-type]
            node.close()
            if node.state not in states:
                raise CellError(self._trouble() or f"node {node.name} has gone (its control socket was closed)")
        if node.error is not None:  # which may come of another node's container that has ended
            raise CellError(self._trouble() or f"node {node.name}: {node.error}")
        if node.state == "ended" and "ended" not in states:
            raise CellError(f"node {node.name} has ended before the lab began")

    def _check(self, until: float, left: list[Node]) -> None:
        now = time.monotonic()
        if now > self._looked + LOOK_S:
            self._looked = now
            if (trouble := self._trouble()) is not None:
                raise CellError(trouble)
        if left and now > until:
            states = ", ".join(f"{node.name} ({node.state})" for node in left[:4])
            raise CellError(f"{len(left)} of {len(self._nodes)} nodes are not ready in time: {states}")


@contextmanager
def nodes_of(names: Sequence[str], folder: Path, trouble: Callable[[], str | None]) -> Iterator[Nodes]:
    """The nodes; their connections are closed at the end."""
    nodes = Nodes(names, folder, trouble)
    try:
        yield nodes
    finally:
        nodes.close()
