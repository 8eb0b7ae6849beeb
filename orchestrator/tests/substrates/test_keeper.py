# SPDX-License-Identifier: Apache-2.0
"""The keeper between a client and a guest that a test plays."""

from __future__ import annotations

import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from qbed.substrates import Limits
from qbed.substrates.lines import Message
from qbed.substrates.sessions import LineConnection, connect, listen
from qbed.substrates.toolchain import Manifest, Toolchain
from qbed.substrates.virtual.guest import Guest
from qbed.substrates.virtual.keeper import MOMENT_NS, Keeper
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


def start(client: LineConnection, guest: Iterator[Message], **fields: object) -> tuple[int, Message]:
    """Start a command; return its number and the first step of time for it."""
    client.send({"command": "exec", "node": "h1", "argv": ["true"], "env": {}, "cwd": "/"} | fields)
    started = next(guest)
    assert "listens" not in started
    return int(started["id"]), next(guest)


def end_step(guest: LineConnection, step: Message, time_ns: int) -> None:
    guest.send({"event": "exit", "id": step["id"], "code": 0, "time_ns": time_ns})


@pytest.mark.parametrize(("pace", "fields"), [("manual", {}), ("fast", {"listens": True})])
def test_time_stops_after_the_start_of_a_command(tmp_path: Path, pace: str, fields: dict[str, object]) -> None:
    with keeper(tmp_path) as (guest, client):
        replies, commands = client.events(), guest.events()
        client.send({"command": "pace", "pace": pace})
        assert next(replies)["code"] == 0
        number, step = start(client, commands, **fields)
        assert step["ns"] == MOMENT_NS
        end_step(guest, step, MOMENT_NS)
        client.send({"command": "status"})
        status = next(replies)
        assert (status["running"], status["pace"]) == (["h1: true"], pace)
        client.send({"command": "advance", "ns": 7})
        step = next(commands)
        assert (step["ns"], step["until"]) == (7, [number]), "a step before `advance`"
        end = {"event": "exit", "code": 0, "time_ns": MOMENT_NS + 7}
        guest.send(end | {"id": number})
        end_step(guest, step, MOMENT_NS + 7)
        assert [next(replies), next(replies)] == [end | {"id": number}, end]


def test_real_time_is_the_limit_at_pace_real(tmp_path: Path) -> None:
    with keeper(tmp_path) as (guest, client):
        replies, commands = client.events(), guest.events()
        client.send({"command": "pace", "pace": "real"})
        next(replies)
        begin, passed = time.monotonic_ns(), 0
        number, step = start(client, commands)
        for _ in range(5):
            passed += step["ns"]
            end_step(guest, step, passed)
            step = next(commands)
        # The first step has the time since the keeper's start, at most 100 ms.
        assert passed <= 100_000_000 + time.monotonic_ns() - begin
        client.send({"command": "pace", "pace": "manual"})
        next(replies)
        guest.send({"event": "exit", "id": number, "code": 0, "time_ns": passed})
        end_step(guest, step, passed)
        assert next(replies)["id"] == number


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
