# SPDX-License-Identifier: Apache-2.0
"""Labs that are up: where their state is, who keeps them, and how to talk to their keeper.

A session is a folder with the guest's cell folder, the keeper's socket and a lock. The keeper holds the lock as long
as it lives, so whatever kills it, a lock that can be taken says that the session is stale; its guest died with it.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qbed.errors import QbedError

if TYPE_CHECKING:
    from qbed.plan.model import Plan

SOCKET, LOCK, LOG, CELL, LAB = "keeper.sock", "keeper.lock", "keeper.log", "cell", "lab"
IN_CONTAINERS = "containers.json"
"""The record of a lab of that name in containers: qbed.substrates.containers.labs."""
UP_S, DOWN_S = 120.0, 20.0


class SessionError(QbedError):
    """A lab is not up, or is up already, or its keeper does not answer."""


def state_folder() -> Path:
    """Where sessions live: of this user, and gone after a reboot if the system has such a place."""
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        return Path(runtime) / "qbed"
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "qbed"


@dataclass(frozen=True)
class Session:
    """A lab's session, up or not."""

    name: str
    folder: Path

    def is_up(self) -> bool:
        """Whether a keeper lives."""
        try:
            with (self.folder / LOCK).open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except FileNotFoundError:
            return False
        return False

    def clean(self) -> None:
        """Remove what a dead keeper left behind."""
        shutil.rmtree(self.folder, ignore_errors=True)

    @contextmanager
    def connect(self) -> Iterator[Conversation]:
        """A conversation with the keeper."""
        if not self.is_up():
            raise SessionError(f"the lab {self.name} is not up; `qbed up` brings it up, `qbed ps` lists what is up")
        with socket.socket(socket.AF_UNIX) as connection, _near(self.folder) as near:
            try:
                connection.connect(f"{near}/{SOCKET}")
            except OSError as error:
                raise SessionError(f"the keeper of {self.name} does not answer: {error.strerror}") from error
            yield Conversation(connection)


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

    def send(self, message: dict[str, Any]) -> None:
        self._connection.sendall(json.dumps(message).encode() + b"\n")

    def patience(self, seconds: float | None) -> None:
        """How long each answer may take from now on (`TimeoutError`); None, as in the beginning: without end."""
        self._connection.settimeout(seconds)

    def answers(self) -> Iterator[dict[str, Any]]:
        """The keeper's messages; `SessionError` if it ends before the last of them."""
        for line in self._lines:
            message: dict[str, Any] = json.loads(line)
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


def listen(folder: Path) -> socket.socket:
    """The keeper's socket in a session's folder."""
    listener = socket.socket(socket.AF_UNIX)
    with _near(folder) as near:
        listener.bind(f"{near}/{SOCKET}")
    listener.listen(16)
    return listener


def session(name: str) -> Session:
    return Session(name, state_folder() / name)


def sessions() -> list[Session]:
    """The labs that are up; what is stale is removed."""
    found = []
    folder = state_folder()
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if (one := Session(path.name, path)).is_up():
            found.append(one)
        elif (path / LOCK).exists():
            one.clean()
    return found


def start(plan: Plan, lab: Path) -> Session:
    """Bring a lab up: returns when its nodes are ready. The keeper and the guest go on when this process ends."""
    one = session(plan.lab)
    one.folder.parent.mkdir(parents=True, exist_ok=True)
    if one.is_up() or (one.folder / IN_CONTAINERS).exists():
        raise SessionError(f"the lab {plan.lab} is up already; `qbed down {plan.lab}` takes it down")
    one.clean()
    one.folder.mkdir(mode=0o700)
    (one.folder / CELL).mkdir()
    (one.folder / CELL / "plan.json").write_text(plan.dumps())
    (one.folder / LAB).write_text(str(lab.resolve()))
    with (one.folder / LOG).open("wb") as log:
        keeper = subprocess.Popen(
            [sys.executable, "-m", "qbed.substrates.virtual.keeper", str(one.folder)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
    assert keeper.stdout is not None
    try:
        with keeper.stdout as said:
            word = said.readline().decode().strip()
    except KeyboardInterrupt:
        keeper.terminate()
        raise
    if word != "ready":
        keeper.wait(DOWN_S)
        error = word or (one.folder / LOG).read_text(errors="replace")[-2000:]
        one.clean()
        raise SessionError(f"the lab {plan.lab} did not come up: {error.replace(chr(31), chr(10))}")
    return one


def stop(one: Session) -> None:
    """Take a lab down; returns when nothing of it is left."""
    with one.connect() as conversation, suppress(SessionError):
        conversation.send({"command": "stop"})
        for _ in conversation.answers():
            pass
    until = time.monotonic() + DOWN_S
    while one.is_up():
        if time.monotonic() > until:
            raise SessionError(f"the keeper of {one.name} does not end")
        time.sleep(0.02)
    one.clean()
