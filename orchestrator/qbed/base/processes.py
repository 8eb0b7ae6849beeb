# SPDX-License-Identifier: Apache-2.0
"""Signals between a process and its parent.

Exceptions that signal handlers raise are deferred during imports, and repeated where Python ignores them.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from threading import Timer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

RESEND_S = 0.02
_PR_SET_PDEATHSIG = 1


def end_with_parent(parent: int, number: int) -> bool:
    """Request this signal for the death of `parent`; False if it is dead already."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
    return os.getppid() == parent


def raise_on(number: int, error: type[BaseException], *arguments: object, once: bool = False) -> None:
    """Raise `error(*arguments)` on this signal. With `once`, later signals are ignored.

    An extension module crashes at exit if its import was interrupted, so the signal is sent again after the import. An
    exception in a finalizer or between the halves of a fork cannot be caught: the signal is sent again, too.
    """

    def handle(_number: int, frame: FrameType | None) -> None:
        if _importing(frame):
            _resend(number)
            return
        if once:
            signal.signal(number, ignore)
        raise error(*arguments)

    def handle_unraisable(unraisable: sys.UnraisableHookArgs) -> None:
        if unraisable.exc_type is not error:
            previous_hook(unraisable)
            return
        if once:
            signal.signal(number, handle)
        _resend(number)

    previous_hook = sys.unraisablehook
    sys.unraisablehook = handle_unraisable
    signal.signal(number, handle)


def ignore(*_: object) -> None:
    """Ignore the signal. With SIG_IGN, Python would report an error for a signal that arrived just before."""


def _resend(number: int) -> None:
    timer = Timer(RESEND_S, os.kill, (os.getpid(), number))
    timer.daemon = True
    timer.start()


def _importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False
