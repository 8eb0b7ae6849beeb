# SPDX-License-Identifier: Apache-2.0
"""The keeper of a lab that is up: a process that owns the guest and its gate, and serves a unix socket.

The guest waits in a read of the gate, in the host, so virtual time stands still. While a command runs in the
foreground, the keeper lets time advance in small steps; between them it can start other commands, and stop one that
nobody wants any more.

A program at a terminal is a command, too, but for two cases. While its shell waits for a command time stands still, but
for the moment that it takes to react to a key. And while a program reads keys (an editor, top) time passes no faster
than where its user is.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import pwd
import selectors
import signal
import socket
import struct
import sys
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qbed.errors import QbedError
from qbed.interrupts import raise_on
from qbed.plan.model import Plan
from qbed.substrates import Limits
from qbed.substrates.console import console_tail
from qbed.substrates.panics import panic
from qbed.substrates.sessions import listen
from qbed.substrates.toolchain import Toolchain, find_toolchain
from qbed.substrates.virtual.guest import Guest, boot
from qbed.substrates.virtual.quota import EVERY_S, Quota
from qbed.substrates.virtual.session import CELL, DOWN_S, LOCK, SOCKET, UP_S, Session

PID_FILE = "/run/qbed-{}.pid"
SMALLEST_STEP_NS, LARGEST_STEP_NS = 1_000_000, 100_000_000
MOMENT_NS = 200_000
"""In which a program reacts to a key: what it computes costs no time."""
PACE_S = 0.02
Message = dict[str, Any]


class Client:
    """One connection; a client that has gone is ignored."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._received = bytearray()

    def tell(self, message: Message) -> None:
        with suppress(OSError):
            self.connection.sendall(json.dumps(message).encode() + b"\n")

    def who(self) -> str:
        """The user and the process at the other end."""
        form = struct.Struct("3i")
        pid, uid, _ = form.unpack(self.connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, form.size))
        try:
            user = pwd.getpwuid(uid).pw_name
        except KeyError:
            user = f"user {uid}"
        return f"`qbed down` ({user}, process {pid})"

    def hear(self) -> list[Message] | None:
        """Its messages; None: it has gone."""
        try:
            data = self.connection.recv(1 << 16)
        except OSError:
            return None
        if not data:
            return None
        self._received += data
        if b"\n" not in data:
            return []
        *lines, self._received = self._received.split(b"\n")
        try:
            return [json.loads(line) for line in lines]
        except ValueError:
            return None


@dataclass
class Running:
    """A command in the guest."""

    client: Client | None
    what: str
    since_ns: int
    signals: deque[str] = field(default_factory=lambda: deque(("INT", "TERM", "KILL")))
    unwanted: bool = False
    background: bool = False
    """What it says goes to its file, also while somebody waits for its end."""
    at_terminal: bool = False
    raw: bool = False
    """Who reads its terminal reads keys."""
    at_prompt: bool = False
    """Its shell waits for a command."""
    stirred: bool = False
    """A key was typed, or it has come to its prompt: it needs a moment to say what it has to say."""
    stirring: bool = False
    """That moment passes."""

    @property
    def pace(self) -> str:
        """How time is to pass for it."""
        if self.stirred:
            return "a moment"
        if self.at_prompt:
            return "not at all"
        return "as outside" if self.raw else "at once"


class Keeper:
    """Passes commands to the guest, lets its time advance while one runs, and passes on what it says."""

    def __init__(
        self, guest: Guest, toolchain: Toolchain, folder: Path, listener: socket.socket, limits: Limits
    ) -> None:
        """`toolchain`: that of the guest; another one may have been set up since."""
        self._guest = guest
        self._toolchain = toolchain
        self._folder = folder
        self._stall_s = limits.stall_s
        self._quota = Quota(folder / CELL, limits.space_bytes)
        self._heard = time.monotonic()
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ, self._accept)
        self._selector.register(guest.gate, selectors.EVENT_READ, self._hear_guest)
        self._requests: deque[tuple[Client, Message]] = deque()
        self._running: dict[int, Running] = {}
        self._advances: deque[tuple[Client, int]] = deque()
        self._step: tuple[int, int] | None = None  # its number, and when it began
        self._next_id = 1
        self._time_ns = 0  # since the lab's epoch, which is where it was ready
        self._paced = False  # some time must pass outside first
        self._stepped_at = time.monotonic()
        self._ended = False

    def serve(self) -> None:
        """Until the guest ends or somebody stops it."""
        while not self._ended:
            for key, _ in self._selector.select(PACE_S if self._paced else EVERY_S):
                if not self._ended:
                    key.data(key.fileobj)
            if self._paced:
                self._go_on()
            if not self._ended and (trouble := self._quota.excess() or self._stall()):
                self._give_up(trouble)

    def _stall(self) -> str | None:
        """The guest takes a step of time, and does not come to its end."""
        if self._step is None or time.monotonic() - self._heard < self._stall_s:
            return None
        return f"virtual time stands still at {self._time_ns} ns: no progress in {self._stall_s:g} s of wall clock"

    def _give_up(self, trouble: str) -> None:
        """Whoever waits hears why; the guest is killed when this process ends."""
        self._ended = True
        self._tell_waiting(f"{trouble}; the lab was taken down")

    def _tell_waiting(self, text: str) -> None:
        """Whoever has a command running, or time passing, hears why there will be no end of it."""
        clients = [command.client for command in self._running.values() if command.client is not None]
        for client in [*clients, *(client for client, _ in self._advances)]:
            client.tell({"event": "error", "error": text})

    def _accept(self, listener: Any) -> None:
        connection, _ = listener.accept()
        client = Client(connection)
        self._selector.register(connection, selectors.EVENT_READ, lambda _: self._hear_client(client))

    # --- what clients say ---

    def _hear_client(self, client: Client) -> None:
        messages = client.hear()
        if messages is None:
            self._selector.unregister(client.connection)
            client.connection.close()
            self._forget(client)
        for message in messages or ():
            match message.get("command"):
                case "status":
                    client.tell({"event": "status", **self._status()})
                case "stop":
                    return self._stop(client)
                case "interrupt":
                    self._forget(client)
                case "jobs":
                    client.tell({"event": "jobs", "jobs": self._jobs()})
                case "exec" | "background" | "advance" | "workload" | "end" | "input" | "resize":
                    self._requests.append((client, message))
                case other:
                    client.tell({"event": "error", "error": f"unknown command {other}"})
        self._go_on()

    def _forget(self, client: Client) -> None:
        """Nobody wants any more what this client asked for."""
        self._requests = deque(item for item in self._requests if item[0] is not client)
        self._advances = deque(item for item in self._advances if item[0] is not client)
        for command in self._running.values():
            command.unwanted = command.unwanted or command.client is client

    def _status(self) -> Message:
        shown = [command.what + ("" if command.client else " &") for command in self._running.values()]
        return {"pid": os.getpid(), "time_ns": self._time_ns, "running": shown}

    def _jobs(self) -> list[Message]:
        background = ((number, job) for number, job in self._running.items() if job.client is None)
        parts = ((number, job, job.what.partition(": ")) for number, job in background)
        return [
            {"number": number, "node": node, "command": command, "since_ns": job.since_ns}
            for number, job, (node, _, command) in parts
        ]

    # --- what the guest is told ---

    def _go_on(self) -> None:
        """If the guest waits for a command: give it the next one, or a step of time if something wants time to pass."""
        if self._step is not None or self._ended:
            return
        while self._requests:
            self._begin(*self._requests.popleft())
        wanted = [command for command in self._running.values() if command.client is not None]
        if not wanted and not self._advances:
            return
        for number, command in self._running.items():
            if command.unwanted and command.signals:
                return self._kill(number, command)
        if ns := self._next_step(wanted):
            self._advance(ns)

    def _next_step(self, wanted: list[Running]) -> int:
        """How long it is to be; 0: there is none now."""
        paces = {command.pace for command in wanted}
        age = self._time_ns - max((command.since_ns for command in wanted), default=0)
        outside_ns = int((time.monotonic() - self._stepped_at) * 1e9)
        self._paced = not self._advances and "as outside" in paces and paces.isdisjoint({"a moment", "at once"})
        if self._paced and outside_ns < PACE_S * 1e9:
            return 0
        steps = {
            "a moment": MOMENT_NS,
            "at once": max(SMALLEST_STEP_NS, min(LARGEST_STEP_NS, age // 16)),
            "as outside": min(LARGEST_STEP_NS, outside_ns) if self._paced else LARGEST_STEP_NS,
        }
        possible = [steps[pace] for pace in paces - {"not at all"}]
        if self._advances:
            possible += [LARGEST_STEP_NS, self._advances[0][1]]
        return min(possible, default=0)

    def _advance(self, ns: int) -> None:
        self._step = self._new_id(), self._time_ns
        self._heard = self._stepped_at = time.monotonic()
        for command in self._running.values():
            command.stirring, command.stirred = command.stirred, False
        # Where somebody waits for a command, time stops as that ends, but at a prompt it has only just begun to pass.
        waits = (item for item in self._running.items() if item[1].client is not None)
        until = [number for number, command in waits if not (command.stirring or command.at_prompt)]
        self._guest.send({"command": "advance", "id": self._step[0], "ns": ns, "until": until})

    def _new_id(self) -> int:
        self._next_id += 1
        return self._next_id - 1

    def _begin(self, client: Client, message: Message) -> None:
        if message["command"] == "advance":
            self._advances.append((client, int(message["ns"])))
            return
        if message["command"] == "end":
            return self._end_job(client, int(message["job"]))
        if message["command"] in ("input", "resize"):
            return self._touch(client, message)
        number = self._new_id()
        if message["command"] == "workload":
            self._running[number] = Running(client, "the workload", self._time_ns)
            return self._guest.send({"command": "workloads", "id": number})
        foreground = message["command"] == "exec"
        what = f"{message['node']}: {' '.join(message['argv'])}"
        self._running[number] = Running(
            client if foreground else None,
            what,
            self._time_ns,
            background=not foreground,
            at_terminal=message.get("terminal") is not None,
        )
        script = f'echo $$ >{PID_FILE.format(number)}; exec "$@"'
        if said := message.pop("stdin", ""):
            given = self._folder / CELL / f"stdin-{number}"
            try:
                given.write_bytes(base64.b64decode(said))
            except OSError as error:
                del self._running[number]
                given.unlink(missing_ok=True)
                return client.tell({"event": "error", "error": f"no room for its standard input: {error.strerror}"})
            script += f" </mnt/{given.name}"
        wrapped = ["/bin/sh", "-c", script, "sh", *message["argv"]]
        self._guest.send(message | {"command": "background", "id": number, "argv": wrapped})
        if not foreground:
            client.tell({"event": "started", "id": number, "output": str(self._output(number))})

    def _touch(self, client: Client, message: Message) -> None:
        """Somebody types at a program's terminal, or changes its size; it may have ended already."""
        for number, command in self._running.items():
            if command.client is client and command.at_terminal:
                command.stirred = True
                return self._guest.send(message | {"id": number})

    def _end_job(self, client: Client, number: int) -> None:
        """Who wants it to end waits for that."""
        job = self._running.get(number)
        if job is None or job.client is not None:
            client.tell(
                {"event": "error", "error": f"no job {number} runs in the background; `qbed ps LAB` lists them"}
            )
        else:
            job.client, job.unwanted = client, True

    def _kill(self, number: int, command: Running) -> None:
        """Send the command the next of its signals; the step after it is long enough to see whether it obeys."""
        script = f"kill -{command.signals.popleft()} $(cat {PID_FILE.format(number)})"
        message = {"node": command.what.partition(":")[0], "argv": ["/bin/sh", "-c", script], "env": {}, "cwd": "/"}
        self._guest.send(message | {"command": "background", "id": 0})
        self._advance(LARGEST_STEP_NS)

    def _output(self, number: int) -> Path:
        return self._folder / f"background-{number}.log"

    # --- what the guest says ---

    def _hear_guest(self, _: object) -> None:
        messages = self._guest.wait(0)
        if messages is None:
            lines = console_tail(self._folder / CELL / "console.log")
            why = panic(lines, self._toolchain.folder) or "the guest has ended: " + "; ".join(lines[-3:])
            return self._give_up(why)
        self._heard = time.monotonic()
        for message in messages:
            self._pass_on(message)
        self._go_on()

    def _pass_on(self, message: Message) -> None:
        number, event = message.get("id"), message.get("event")
        if "time_ns" in message:
            self._time_ns = int(message["time_ns"])
        if self._step is not None and number == self._step[0]:
            self._stepped()
        elif number in self._running:
            command = self._running[number]
            if event == "terminal":
                command.stirred = command.stirred or (message["prompt"] and not command.at_prompt)
                command.raw, command.at_prompt = message["raw"], message["prompt"]
                return
            command.stirred = command.stirred or command.stirring  # it goes on saying something
            if event == "exit":
                del self._running[number]
            if command.background and "data" in message:
                with self._output(number).open("ab") as log:
                    log.write(base64.b64decode(message["data"]))
            elif command.client is not None:
                command.client.tell(message)
        elif event == "error":
            self._refused(message)

    def _stepped(self) -> None:
        assert self._step is not None
        passed_ns = self._time_ns - self._step[1]
        self._step = None
        if not self._advances:
            return
        client, left = self._advances.popleft()
        if left > passed_ns:
            self._advances.appendleft((client, left - passed_ns))
        else:
            client.tell({"event": "exit", "code": 0, "time_ns": self._time_ns})

    def _refused(self, message: Message) -> None:
        """The agent took none of it (an unknown node): it does not say which command, but that is the newest."""
        number = max(self._running, default=None)
        if number is not None:
            command = self._running.pop(number)
            if command.client is not None:
                command.client.tell(message)

    def _stop(self, by: Client) -> None:
        """Ask the guest to power off, if it listens; what is left of it is killed."""
        self._tell_waiting(f"the lab was taken down by {by.who()}")
        with suppress(OSError):
            self._guest.send({"command": "stop"})
        until = time.monotonic() + (DOWN_S / 4 if self._step is None else 0.5)
        while time.monotonic() < until and self._guest.wait(until - time.monotonic()) is not None:
            pass
        self._ended = True


def _become_ready(guest: Guest, folder: Path) -> None:
    """Wait until the guest's nodes are there."""
    until = time.monotonic() + UP_S
    while True:
        messages = guest.wait(until - time.monotonic())
        for message in messages or ():
            if message.get("event") == "ready":
                return
            if message.get("event") == "error":
                raise QbedError(f"the agent says: {message.get('error')}")
        if messages is None or time.monotonic() > until:
            why = "the guest has ended" if messages is None else f"the guest is not ready after {UP_S:g} s"
            lines = "".join(f"\n    | {line}" for line in console_tail(folder / CELL / "console.log")[-8:])
            raise QbedError(f"{why}; its console said last:{lines}")


def main(folder: Path) -> None:
    """Keep the lab of a session's folder. Says `ready`, or what is wrong, on stdout."""
    raise_on(signal.SIGTERM, SystemExit, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    lock = (folder / LOCK).open("wb")
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    try:
        plan = Plan.loads((folder / CELL / "plan.json").read_bytes())
        session = Session(plan.lab, folder)
        toolchain = find_toolchain()
        with boot(toolchain, folder / CELL, plan, "lab", session.seen()) as guest:
            _become_ready(guest, folder)
            with listen(folder, SOCKET) as listener:
                _say("ready")
                Keeper(guest, toolchain, folder, listener, session.limits()).serve()
    except QbedError as error:
        _say(str(error).replace("\n", "\x1f"))


def _say(word: str) -> None:
    print(word, flush=True)
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
