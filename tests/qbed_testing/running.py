# SPDX-License-Identifier: Apache-2.0
"""A lab that is up in a guest of the test."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Callable, Sequence
from typing import Any

from qbed.substrates.virtual.guest import Guest


class RunningLab:
    """A lab that is up; its nodes run programs of the host."""

    def __init__(self, guest: Guest) -> None:
        self._guest = guest
        self._numbers = itertools.count(1)

    @property
    def pid(self) -> int:
        return self._guest.pid

    def _wait_for(self, wanted: Callable[[dict[str, Any]], bool]) -> tuple[dict[str, Any], str]:
        output = ""
        while True:
            messages = self._guest.wait(120)
            assert messages, f"the guest sends nothing or has ended; its output: {output}"
            for message in messages:
                if message["event"] in ("stdout", "stderr"):
                    output += base64.b64decode(message["data"]).decode()
                elif message["event"] == "error":
                    raise AssertionError(message["error"])
                elif wanted(message):
                    return message, output

    def wait_until_ready(self) -> None:
        """Wait until the lab is up and its epoch is reached."""
        self._wait_for(lambda message: message["event"] == "ready")

    def run(self, node: str, *argv: str) -> tuple[int, str]:
        """Run a command to its end, and return its exit status and its output."""
        number = self._send("exec", node, argv)
        message, output = self._wait_for(lambda message: message["event"] == "exit" and message["id"] == number)
        return int(message["code"]), output

    def start(self, node: str, *argv: str) -> None:
        """Start a command; the guest runs the next command after it has ended."""
        self._send("exec", node, argv)

    def stop(self) -> None:
        """Take the lab down, which writes its results to its folder."""
        self._guest.send({"command": "stop"})
        while self._guest.wait(120):
            pass

    def background(self, node: str, *argv: str) -> None:
        """Start a command in the background; the guest runs the next command at once."""
        self._send("background", node, argv)

    def _send(self, command: str, node: str, argv: Sequence[str]) -> int:
        number = next(self._numbers)
        self._guest.send({"command": command, "id": number, "node": node, "argv": list(argv), "env": {}, "cwd": "/"})
        return number
