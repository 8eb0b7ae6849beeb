# SPDX-License-Identifier: Apache-2.0
"""The keeper of a lab that is up: a process that owns the guest and its gate, and serves a unix socket.

While the guest waits in a read of the gate, virtual time does not advance. While a command runs in the foreground, the
keeper advances time in small steps. Between them it starts other commands and ends cancelled ones.

The lab's pace says how fast (docs/interactive.md). A program at a terminal has two special cases. While its shell waits
for a command, time advances only as long as the shell needs to react to a key. While a program reads keys (an editor,
top), time advances no faster than real time.
"""

from __future__ import annotations

import base64
import fcntl
import os
import selectors
import signal
import socket
import sys
import time
from collections import deque
from contextlib import suppress
from itertools import count
from pathlib import Path

from qbed.base.errors import QbedError
from qbed.base.processes import raise_on
from qbed.plan.model import Plan
from qbed.substrates import Limits, Pace
from qbed.substrates.kernels import toolchain_of
from qbed.substrates.lines import Message
from qbed.substrates.panics import panic
from qbed.substrates.sessions import listen
from qbed.substrates.toolchain import Toolchain
from qbed.substrates.virtual.guest import Guest, boot
from qbed.substrates.virtual.quota import EVERY_S, Quota
from qbed.substrates.virtual.running import Client, Need, Running
from qbed.substrates.virtual.session import CELL, DOWN_S, LOCK, SOCKET, UP_S, Session
from qbed.telemetry.console import console_tail

PID_FILE = "/run/qbed-{}.pid"
SMALLEST_STEP_NS, LARGEST_STEP_NS = 1_000_000, 100_000_000
MOMENT_NS = 200_000
"""Virtual time in which a program reacts to a key. Computing costs no virtual time."""
FIRST_ID = 1 << 32
"""First number of a step or a command in the foreground: smaller numbers are those of background jobs."""
PACE_S = 0.02


class Keeper:
    """Forwards commands to the guest and its events to clients, and advances virtual time while a command runs."""

    def __init__(
        self, guest: Guest, toolchain: Toolchain, folder: Path, listener: socket.socket, limits: Limits
    ) -> None:
        """`toolchain`: the guest's; a later set-up does not change it."""
        self._guest = guest
        self._toolchain = toolchain
        self._folder = folder
        self._stall_s = limits.stall_s
        self._quota = Quota(folder / CELL, limits.space_bytes)
        self._last_message_at = time.monotonic()
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ, self._accept)
        self._selector.register(guest.gate, selectors.EVENT_READ, self._on_guest)
        self._requests: deque[tuple[Client, Message]] = deque()
        self._running: dict[int, Running] = {}
        self._advances: deque[tuple[Client, int]] = deque()
        self._step: tuple[int, int] | None = None  # its number, and when it began
        self._exits: list[tuple[Client, Message]] = []  # of commands that ended in this step
        self._job_numbers = count(1)
        self._ids = count(FIRST_ID)
        self._time_ns = 0  # since the lab's epoch
        self._pace: Pace = "fast"
        self._paced = False  # the next step waits for real time
        self._stepped_at = time.monotonic()
        self._ended = False

    def serve(self) -> None:
        """Serve until the guest ends or a client stops it."""
        while not self._ended:
            for key, _ in self._selector.select(PACE_S if self._paced else EVERY_S):
                if not self._ended:
                    key.data(key.fileobj)
            if self._paced:
                self._proceed()
            if not self._ended and (trouble := self._quota.excess() or self._stall()):
                self._abort(trouble)

    def _stall(self) -> str | None:
        """An error message if a step of time does not end within the limit."""
        if self._step is None or time.monotonic() - self._last_message_at < self._stall_s:
            return None
        return f"virtual time stands still at {self._time_ns} ns: no progress in {self._stall_s:g} s of wall clock"

    def _abort(self, trouble: str) -> None:
        """Send the reason to waiting clients and stop serving; the guest is killed when this process ends."""
        self._ended = True
        self._fail_waiting(f"{trouble}; the lab was taken down")

    def _fail_waiting(self, text: str) -> None:
        """Send an error to each client that waits for a command or for time to pass."""
        self._report_exits()
        clients = [command.client for command in self._running.values() if command.client is not None]
        for client in [*clients, *(client for client, _ in self._advances)]:
            client.send({"event": "error", "error": text})

    def _accept(self, listener: socket.socket) -> None:
        connection, _ = listener.accept()
        client = Client(connection)
        self._selector.register(connection, selectors.EVENT_READ, lambda _: self._on_client(client))

    # --- messages of clients ---

    def _on_client(self, client: Client) -> None:
        messages = client.receive()
        if messages is None:
            self._selector.unregister(client.connection)
            client.connection.close()
            self._cancel(client)
        for message in messages or ():
            match message.get("command"):
                case "status":
                    client.send({"event": "status", **self._status()})
                case "stop":
                    return self._stop(client)
                case "interrupt":
                    self._cancel(client)
                case "pace":
                    self._pace = message["pace"]
                    client.send({"event": "exit", "code": 0, "time_ns": self._time_ns})
                case "jobs":
                    client.send({"event": "jobs", "jobs": self._jobs()})
                case "exec" | "background" | "advance" | "workload" | "change" | "end" | "input" | "resize":
                    self._requests.append((client, message))
                case other:
                    client.send({"event": "error", "error": f"unknown command {other}"})
        self._proceed()

    def _cancel(self, client: Client) -> None:
        """Cancel the requests and commands of a client."""
        self._requests = deque(item for item in self._requests if item[0] is not client)
        self._advances = deque(item for item in self._advances if item[0] is not client)
        for command in self._running.values():
            command.cancelled = command.cancelled or command.client is client

    def _status(self) -> Message:
        shown = [command.what + ("" if command.client else " &") for command in self._running.values()]
        return {"pid": os.getpid(), "time_ns": self._time_ns, "running": shown, "pace": self._pace}

    def _jobs(self) -> list[Message]:
        background = ((number, job) for number, job in self._running.items() if job.client is None)
        parts = ((number, job, job.what.partition(": ")) for number, job in background)
        return [
            {"number": number, "node": node, "command": command, "since_ns": job.since_ns}
            for number, job, (node, _, command) in parts
        ]

    # --- messages to the guest ---

    def _proceed(self) -> None:
        """If the guest waits for a command, send the next one, or a step of time if a client waits."""
        if self._step is not None or self._ended:
            return
        while self._requests:
            self._begin(*self._requests.popleft())
        wanted = [command for command in self._running.values() if command.client is not None]
        if not wanted and not self._advances:
            return
        for number, command in self._running.items():
            if command.cancelled and command.signals:
                return self._kill(number, command)
        if ns := self._next_step(wanted):
            self._advance(ns)

    def _next_step(self, wanted: list[Running]) -> int:
        """The length of the next step of time; 0 for none."""
        needs = {command.need(self._pace) for command in wanted}
        age = self._time_ns - max((command.since_ns for command in wanted), default=0)
        outside_ns = int((time.monotonic() - self._stepped_at) * 1e9)
        self._paced = not self._advances and Need.REALTIME in needs and needs.isdisjoint({Need.SETTLE, Need.FAST})
        if self._paced and outside_ns < PACE_S * 1e9:
            return 0
        steps = {
            Need.SETTLE: MOMENT_NS,
            Need.FAST: max(SMALLEST_STEP_NS, min(LARGEST_STEP_NS, age // 16)),
            Need.REALTIME: min(LARGEST_STEP_NS, outside_ns) if self._paced else LARGEST_STEP_NS,
        }
        possible = [steps[need] for need in needs - {Need.STOPPED}]
        if self._advances:
            possible += [LARGEST_STEP_NS, self._advances[0][1]]
        return min(possible, default=0)

    def _advance(self, ns: int) -> None:
        self._step = next(self._ids), self._time_ns
        self._last_message_at = self._stepped_at = time.monotonic()
        for command in self._running.values():
            command.settling, command.input_pending = command.input_pending, False
        # Time stops when a command ends that a client waits for, except at a prompt.
        waits = (item for item in self._running.items() if item[1].client is not None)
        until = [number for number, command in waits if not (command.settling or command.at_prompt)]
        self._guest.send({"command": "advance", "id": self._step[0], "ns": ns, "until": until})

    def _begin(self, client: Client, message: Message) -> None:
        if message["command"] == "advance":
            self._advances.append((client, int(message["ns"])))
            return
        if message["command"] == "end":
            return self._end_job(client, int(message["job"]))
        if message["command"] in ("input", "resize"):
            return self._on_input(client, message)
        number = next(self._job_numbers if message["command"] == "background" else self._ids)
        if message["command"] == "workload":
            self._running[number] = Running(client, "the workload", self._time_ns)
            return self._guest.send({"command": "workloads", "id": number})
        if message["command"] == "change":
            self._running[number] = Running(client, "a change of links", self._time_ns, listens=True)
            return self._guest.send(message | {"id": number})
        foreground = message["command"] == "exec"
        listens = bool(message.pop("listens", False))
        what = f"{message['node']}: {' '.join(message['argv'])}"
        self._running[number] = Running(
            client if foreground else None,
            what,
            self._time_ns,
            background=not foreground,
            at_terminal=message.get("terminal") is not None,
            input_pending=foreground and (listens or self._pace == "manual"),
            listens=listens,
        )
        script = f'echo $$ >{PID_FILE.format(number)}; exec "$@"'
        if stdin := message.pop("stdin", ""):
            file = self._folder / CELL / f"stdin-{number}"
            try:
                file.write_bytes(base64.b64decode(stdin))
            except OSError as error:
                del self._running[number]
                file.unlink(missing_ok=True)
                return client.send({"event": "error", "error": f"no room for its standard input: {error.strerror}"})
            script += f" </mnt/{file.name}"
        wrapped = ["/bin/sh", "-c", script, "sh", *message["argv"]]
        self._guest.send(message | {"command": "background", "id": number, "argv": wrapped})
        if not foreground:
            client.send({"event": "started", "id": number, "output": str(self._output(number))})

    def _on_input(self, client: Client, message: Message) -> None:
        """Forward keys or a new size to a program's terminal, unless the program has ended."""
        for number, command in self._running.items():
            if command.client is client and command.at_terminal:
                command.input_pending = True
                return self._guest.send(message | {"id": number})

    def _end_job(self, client: Client, number: int) -> None:
        """End a background job; the client waits for its end."""
        job = self._running.get(number)
        if job is None or job.client is not None:
            client.send(
                {"event": "error", "error": f"no job {number} runs in the background; `qbed ps LAB` lists them"}
            )
        else:
            job.client, job.cancelled = client, True

    def _kill(self, number: int, command: Running) -> None:
        """Send the command its next signal, and advance time long enough for it to exit."""
        script = f"kill -{command.signals.popleft()} $(cat {PID_FILE.format(number)})"
        message = {"node": command.what.partition(":")[0], "argv": ["/bin/sh", "-c", script], "env": {}, "cwd": "/"}
        self._guest.send(message | {"command": "background", "id": 0})
        self._advance(LARGEST_STEP_NS)

    def _output(self, number: int) -> Path:
        return self._folder / f"background-{number}.log"

    # --- messages of the guest ---

    def _on_guest(self, _: object) -> None:
        messages = self._guest.wait(0)
        if messages is None:
            lines = console_tail(self._folder / CELL / "console.log")
            why = panic(lines, self._toolchain.folder) or "the guest has ended: " + "; ".join(lines[-3:])
            return self._abort(why)
        self._last_message_at = time.monotonic()
        for message in messages:
            self._forward(message)
        self._proceed()

    def _forward(self, message: Message) -> None:
        number, event = message.get("id"), message.get("event")
        if "time_ns" in message:
            self._time_ns = int(message["time_ns"])
        if self._step is not None and number == self._step[0]:
            self._stepped()
        elif number in self._running:
            command = self._running[number]
            if event == "terminal":
                command.input_pending = command.input_pending or (message["prompt"] and not command.at_prompt)
                command.raw, command.at_prompt = message["raw"], message["prompt"]
                return
            command.input_pending = command.input_pending or command.settling  # it still produces output
            if event == "exit":
                del self._running[number]
            if command.background and "data" in message:
                with self._output(number).open("ab") as log:
                    log.write(base64.b64decode(message["data"]))
            elif command.client is not None and event == "exit" and self._step is not None:
                self._exits.append((command.client, message))
            elif command.client is not None:
                command.client.send(message)
        elif event == "error":
            self._on_error(message)

    def _stepped(self) -> None:
        assert self._step is not None
        passed_ns = self._time_ns - self._step[1]
        self._step = None
        self._report_exits()
        if not self._advances:
            return
        client, left = self._advances.popleft()
        if left > passed_ns:
            self._advances.appendleft((client, left - passed_ns))
        else:
            client.send({"event": "exit", "code": 0, "time_ns": self._time_ns})

    def _report_exits(self) -> None:
        """Report the commands that ended in the last step. The agent writes all samples before it ends a step."""
        for client, message in self._exits:
            client.send(message)
        self._exits.clear()

    def _on_error(self, message: Message) -> None:
        """Handle an error without an id (an unknown node): it belongs to the newest command."""
        number = next(reversed(self._running), None)
        if number is not None:
            command = self._running.pop(number)
            if command.client is not None:
                command.client.send(message)

    def _stop(self, by: Client) -> None:
        """Power the guest off, or kill it if it does not respond."""
        self._fail_waiting(f"the lab was taken down by {by.peer_name()}")
        with suppress(OSError):
            self._guest.send({"command": "stop"})
        until = time.monotonic() + (DOWN_S / 4 if self._step is None else 0.5)
        while time.monotonic() < until and self._guest.wait(until - time.monotonic()) is not None:
            pass
        self._ended = True


def _become_ready(guest: Guest, folder: Path) -> None:
    """Wait until the guest's nodes are ready."""
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
    """Keep the lab of a session's folder. Print `ready` or an error on stdout."""
    raise_on(signal.SIGTERM, SystemExit, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    lock = (folder / LOCK).open("wb")
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    try:
        plan = Plan.loads((folder / CELL / "plan.json").read_bytes())
        session = Session(plan.lab, folder)
        toolchain = toolchain_of(plan.kernel)
        with boot(toolchain, folder / CELL, plan, "lab", session.seen()) as guest:
            _become_ready(guest, folder)
            with listen(folder, SOCKET) as listener:
                _report("ready")
                Keeper(guest, toolchain, folder, listener, session.limits()).serve()
    except QbedError as error:
        _report(str(error).replace("\n", "\x1f"))


def _report(word: str) -> None:
    print(word, flush=True)
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
