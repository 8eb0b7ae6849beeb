# SPDX-License-Identifier: Apache-2.0
"""Somebody at a terminal where a command of qbed runs: a test types, and looks at what comes."""

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

RUNS = r"\x1b\[\?2004l"
"""Bash has given the terminal to a command: keys from now on are that one's."""


class Typist:
    """Somebody at a terminal where a command of qbed runs."""

    def __init__(self, environment: dict[str, str], *arguments: str, deaf: bool = False) -> None:
        self._process, self.keyboard = pty.fork()
        if self._process == 0:
            signal.signal(signal.SIGHUP, signal.SIG_IGN if deaf else signal.SIG_DFL)
            self._size(0, 30, 100)
            os.execve(sys.executable, [sys.executable, "-m", "qbed", *arguments], environment | {"TERM": "xterm"})
        self._seen = b""

    def window(self, rows: int, columns: int) -> None:
        self._size(self.keyboard, rows, columns)

    @staticmethod
    def _size(end: int, rows: int, columns: int) -> None:
        fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))

    def keys(self, text: str) -> None:
        os.write(self.keyboard, text.encode())

    def see(self, pattern: str) -> re.Match[str]:
        """Wait for a text; what came before it is not looked at again."""
        until = time.monotonic() + 60
        while (found := re.search(pattern, self._seen.decode(errors="replace"))) is None:
            assert time.monotonic() < until, self._seen
            if select.select([self.keyboard], [], [], 1)[0]:
                self._seen += os.read(self.keyboard, 4096)
        self._seen = self._seen.decode(errors="replace")[found.end() :].encode()
        return found

    def end(self) -> int:
        """The command's exit status."""
        with suppress(OSError):  # of a terminal that nobody has open any more
            while os.read(self.keyboard, 4096):
                pass
        return os.waitstatus_to_exitcode(os.waitpid(self._process, 0)[1])


@contextmanager
def typist(environment: dict[str, str], *arguments: str, deaf: bool = False) -> Iterator[Typist]:
    """`deaf`: the command ignores SIGHUP, as under nohup."""
    one = Typist(environment, *arguments, deaf=deaf)
    try:
        yield one
    finally:
        os.close(one.keyboard)
