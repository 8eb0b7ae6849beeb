# SPDX-License-Identifier: Apache-2.0
"""The only way to the terminal: whatever qbed prints goes through this module.

Names, errors, SQL and console lines come from files of others. A control character among them would move the cursor,
recolour, rename the window or answer in the user's stead, and one that turns the direction of writing shows another
text than there is: they are shown as escapes (`\\u001b`, as JSON has them). Messages have a longest length. Rich's
markup means nothing in them.

What a program in a lab prints (`qbed exec`) is passed on as it is: it was asked for on that terminal.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console

LONGEST = 4_000
"""Characters of a message."""
MOST_MESSAGES = 50
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 but for tab and newline, DEL, C1
    "\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"  # invisible, or turning the text
    "\ud800-\udfff"  # what is no character: bytes of a file's name
    "\U000e0000-\U000e007f]"  # invisible tags
)


def clean(text: object) -> str:
    """A text whose characters are all seen, but for tabs and line ends."""
    return _UNSAFE.sub(_escape, str(text))


def _escape(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def shorten(text: object, longest: int = LONGEST) -> str:
    """The same, clean and cut where it is too long."""
    text = str(text)
    shown = clean(text[:longest])
    return shown if len(text) <= longest else f"{shown}... ({len(text) - longest} more characters)"


def give(text: str) -> None:
    """Results, whole and as they are made, to standard output."""
    _write(sys.stdout, clean(text))


def say(text: object) -> None:
    """A line to standard output."""
    _write(sys.stdout, shorten(text) + "\n")


def tell(text: object) -> None:
    """A line to standard error, beside the results."""
    _write(sys.stderr, shorten(text) + "\n")


def warn(texts: Iterable[object]) -> None:
    """Warnings, a line each."""
    _each("warning", texts)


def refuse(texts: Iterable[object]) -> None:
    """Errors, a line each."""
    _each("error", texts)


def _each(kind: str, texts: Iterable[object]) -> None:
    every = list(texts)
    for text in every[:MOST_MESSAGES]:
        tell(f"{kind}: {text}")
    if len(every) > MOST_MESSAGES:
        tell(f"{kind}: and at least {len(every) - MOST_MESSAGES} more")


def pass_on(data: bytes, *, error: bool = False) -> None:
    """What a program in a lab has printed."""
    os.write(2 if error else 1, data)


def console(*, error: bool = False, **options: Any) -> Console:
    """Rich's console for tables and progress: texts are shown as they are, without markup."""
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment
    from rich.text import Text

    class Screen(Console):
        def render_str(self, text: str, **options: Any) -> Text:
            return super().render_str(clean(text), **options)  # before its width is measured

        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
            for segment in super().render(renderable, options):
                yield segment if segment.control else Segment(clean(segment.text), segment.style)

    return Screen(stderr=error, markup=False, emoji=False, highlight=False, **options)


def agreed(question: str) -> bool:
    """Whether somebody at a terminal says yes; no, where nobody is."""
    if sys.stdin is None or sys.stderr is None or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    _write(sys.stderr, f"{shorten(question)} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def prepare() -> None:
    """A terminal that cannot show a character gets its escape instead."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError):  # closed, or a test's
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def flush() -> None:
    """Bring out what is still held back."""
    if sys.stdout is not None:
        sys.stdout.flush()


def abandon() -> None:
    """Nobody reads any more: the rest is for nobody."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _write(stream: TextIO | None, text: str) -> None:
    if stream is not None:  # a closed one
        stream.write(text)
