# SPDX-License-Identifier: Apache-2.0
"""A pseudo-terminal where a `qbed` command runs: a test sends keys and waits for output."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

COMMAND_RUNS = r"\x1b\[\?2004l"
"""Output of Bash when it starts a command, which reads the keys from then on."""


class Terminal:
    """A pseudo-terminal where a `qbed` command runs."""

    def __init__(self, environment: dict[str, str], *arguments: str, ignore_hangup: bool = False) -> None:
        self._process, self.descriptor = pty.fork()
        if self._process == 0:
            signal.signal(signal.SIGHUP, signal.SIG_IGN if ignore_hangup else signal.SIG_DFL)
            self._set_size(0, 30, 100)
            os.execve(sys.executable, [sys.executable, "-m", "qbed", *arguments], environment | {"TERM": "xterm"})
        self._output = b""

    def resize(self, rows: int, columns: int) -> None:
        self._set_size(self.descriptor, rows, columns)

    @staticmethod
    def _set_size(descriptor: int, rows: int, columns: int) -> None:
        fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))

    def send_keys(self, text: str) -> None:
        os.write(self.descriptor, text.encode())

    def expect(self, pattern: str) -> re.Match[str]:
        """Wait for output that matches a pattern, and discard the output up to the match."""
        deadline = time.monotonic() + 60
        while (found := re.search(pattern, self._output.decode(errors="replace"))) is None:
            assert time.monotonic() < deadline, self._output
            if select.select([self.descriptor], [], [], 1)[0]:
                self._output += os.read(self.descriptor, 4096)
        self._output = self._output.decode(errors="replace")[found.end() :].encode()
        return found

    def wait(self) -> int:
        """Wait for the command's end, and return its exit status."""
        with suppress(OSError):  # EIO: no process has the terminal open any more
            while os.read(self.descriptor, 4096):
                pass
        return os.waitstatus_to_exitcode(os.waitpid(self._process, 0)[1])


@contextmanager
def open_terminal(environment: dict[str, str], *arguments: str, ignore_hangup: bool = False) -> Iterator[Terminal]:
    """Run a `qbed` command on a new terminal. With `ignore_hangup` it ignores SIGHUP, as under nohup."""
    terminal = Terminal(environment, *arguments, ignore_hangup=ignore_hangup)
    try:
        yield terminal
    finally:
        os.close(terminal.descriptor)
