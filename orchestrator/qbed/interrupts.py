# SPDX-License-Identifier: Apache-2.0
"""Exceptions that signals raise: not in the middle of an import, and not lost where Python swallows them."""

from __future__ import annotations

import os
import signal
import sys
from threading import Timer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

AGAIN_S = 0.02


def raise_on(number: int, error: type[BaseException], *told: object, once: bool = False) -> None:
    """From now on this signal raises this exception where it does no harm; `once`: later signals change nothing.

    An extension module given up half way crashes as the process ends, so an import comes to its end first. What is
    raised in a finalizer or between the halves of a fork nobody can catch: the signal comes once more.
    """

    def handle(_number: int, frame: FrameType | None) -> None:
        if _importing(frame):
            _again(number)
            return
        if once:
            signal.signal(number, heard)
        raise error(*told)

    def swallowed(what: sys.UnraisableHookArgs) -> None:
        if what.exc_type is not error:
            before(what)
            return
        if once:
            signal.signal(number, handle)
        _again(number)

    before = sys.unraisablehook
    sys.unraisablehook = swallowed
    signal.signal(number, handle)


def heard(*_: object) -> None:
    """Changes nothing any more. Were the signal ignored instead, Python would complain of one that came just before."""


def _again(number: int) -> None:
    again = Timer(AGAIN_S, os.kill, (os.getpid(), number))
    again.daemon = True
    again.start()


def _importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False
