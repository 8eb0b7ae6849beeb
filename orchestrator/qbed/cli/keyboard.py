# SPDX-License-Identifier: Apache-2.0
"""Somebody's terminal, lent to a program on a node: each key goes there, and what it says comes back as it is."""

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


def is_here() -> bool:
    """Whether somebody types here, and sees what is said."""
    return os.isatty(0) and os.isatty(1)


def terminal(*, shell: bool = False) -> Terminal:
    """This terminal, as a program is to find it. COLUMNS and LINES do not know of its changes."""
    columns, rows = os.get_terminal_size(1)
    return Terminal(rows or 24, columns or 80, os.environ.get("TERM", "dumb"), shell=shell)


@contextmanager
def lent(execution: Execution, told: Terminal) -> Iterator[None]:
    """Give a program the keyboard and the window's size; afterwards they are as they were. `told`: what it knows."""
    keyboard = sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)
    resized = signal.signal(signal.SIGWINCH, lambda *_: _unless_gone(lambda: execution.resize(terminal())))
    typing = threading.Thread(target=_type, args=(keyboard, execution), daemon=True)
    try:
        if (now := terminal(shell=told.shell)) != told:  # resized before anybody listened
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
            _unless_gone(lambda keys=keys: execution.send_input(keys))  # type: ignore[misc]
    # The terminal has gone. SIGHUP says so too, but to those who ignore it (nohup) nothing else ends the program.
    os.kill(os.getpid(), signal.SIGTERM)


def _unless_gone(act: Callable[[], None]) -> None:
    with suppress(OSError, SessionError):
        act()
