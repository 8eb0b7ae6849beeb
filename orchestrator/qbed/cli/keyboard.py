# SPDX-License-Identifier: Apache-2.0
"""Forwards the user's terminal in raw mode to a program on a node."""

from __future__ import annotations

import os
import signal
import sys
import termios
import threading
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from qbed.substrates import Execution, SessionError, Terminal

PIECE = 4096


def is_interactive() -> bool:
    """Whether standard input and output are a terminal."""
    return os.isatty(0) and os.isatty(1)


def terminal(*, shell: bool = False) -> Terminal:
    """The terminal's current size and kind. COLUMNS and LINES do not follow resizing."""
    columns, rows = os.get_terminal_size(1)
    return Terminal(rows or 24, columns or 80, os.environ.get("TERM", "dumb"), shell=shell)


@contextmanager
def forward_terminal(execution: Execution, initial: Terminal) -> Iterator[None]:
    """Forward keys and size changes to a program, and restore the terminal on exit. `initial`: its current size."""
    keyboard = sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)
    resized = signal.signal(signal.SIGWINCH, lambda *_: _ignore_ended(lambda: execution.resize(terminal())))
    typing = threading.Thread(target=_type, args=(keyboard, execution), daemon=True)
    try:
        if (now := terminal(shell=initial.shell)) != initial:  # resized before the signal handler was set
            execution.resize(now)
        tty.setraw(keyboard)
        typing.start()
        yield
    finally:
        termios.tcsetattr(keyboard, termios.TCSAFLUSH, before)
        signal.signal(signal.SIGWINCH, resized)


def _type(keyboard: int, execution: Execution) -> None:
    with suppress(OSError):
        while keys := os.read(keyboard, PIECE):
            _ignore_ended(lambda keys=keys: execution.send_input(keys))  # type: ignore[misc]
    # The terminal is closed. A process that ignores SIGHUP (nohup) is ended only by this.
    os.kill(os.getpid(), signal.SIGTERM)


def _ignore_ended(action: Callable[[], None]) -> None:
    """Call `action`; ignore that the program has ended."""
    with suppress(OSError, SessionError):
        action()
