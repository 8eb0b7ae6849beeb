# SPDX-License-Identifier: Apache-2.0
"""The keeper between a client and a guest that a test plays."""

from __future__ import annotations

import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from qbed.substrates import Limits
from qbed.substrates.sessions import LineConnection, connect, listen
from qbed.substrates.toolchain import Manifest, Toolchain
from qbed.substrates.virtual.guest import Guest
from qbed.substrates.virtual.keeper import Keeper
from qbed.substrates.virtual.session import SOCKET


@contextmanager
def keeper(folder: Path) -> Iterator[tuple[LineConnection, LineConnection]]:
    """A keeper that serves: its guest's end of the gate, and a client. The guest's process is `sleep`."""
    gate, agent = socket.socketpair()
    process = subprocess.Popen(["sleep", "600"], start_new_session=True)
    guest = Guest(process, gate)
    with listen(folder, SOCKET) as listener:
        serving = threading.Thread(
            target=Keeper(guest, Toolchain(folder, Manifest(), {}), folder, listener, Limits()).serve
        )
        serving.start()
        with LineConnection(agent) as of_guest, LineConnection(connect(folder, SOCKET)) as client:
            of_guest.set_timeout(30)
            client.set_timeout(30)
            try:
                yield of_guest, client
            finally:
                process.kill()
        serving.join()
    guest.end()


def test_an_exit_is_reported_when_the_step_has_ended_and_its_samples_are_written(tmp_path: Path) -> None:
    with keeper(tmp_path) as (guest, client):
        client.send({"command": "exec", "node": "h1", "argv": ["true"], "env": {}, "cwd": "/"})
        commands = guest.events()
        started, step = next(commands), next(commands)
        assert (started["command"], step["command"], step["until"]) == ("background", "advance", [started["id"]])
        guest.send({"event": "exit", "id": started["id"], "code": 0, "time_ns": 5})
        replies = client.events()
        running = ["h1: true"]
        while running:
            client.send({"command": "status"})
            status = next(replies)
            assert status["event"] == "status"
            running = status["running"]
        guest.send({"event": "exit", "id": step["id"], "code": 0, "time_ns": 5})
        assert next(replies) == {"event": "exit", "id": started["id"], "code": 0, "time_ns": 5}


def test_numbers_of_background_jobs_are_consecutive_whatever_else_runs(tmp_path: Path) -> None:
    with keeper(tmp_path) as (guest, client):
        commands, replies = guest.events(), client.events()
        given = {"node": "h1", "argv": ["true"], "env": {}, "cwd": "/"}
        numbers = []
        for _ in range(2):
            client.send({"command": "background"} | given)
            started = next(replies)
            assert next(commands)["id"] == started["id"]
            numbers.append(started["id"])
            client.send({"command": "exec"} | given)
            command, step = next(commands), next(commands)
            for message in (command, step):
                guest.send({"event": "exit", "id": message["id"], "code": 0, "time_ns": 5})
            assert next(replies)["event"] == "exit"
        assert numbers == [1, 2]
