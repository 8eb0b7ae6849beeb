# SPDX-License-Identifier: Apache-2.0
"""All output to the terminal: everything that qbed prints goes through this module.

Names, errors, SQL and console lines come from untrusted files. A control character in them could move the cursor,
change colours, rename the window or send input, and a bidirectional control character could reorder the text. Such
characters are shown as escapes (`\\u001b`, as in JSON). Messages have a maximum length. Rich markup is not interpreted.

The output of a program in a lab (`qbed exec`) is passed on unchanged: the user started it on that terminal.
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

MAX_LENGTH = 4_000
"""Maximum number of characters of a message."""
MAX_MESSAGES = 50
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 except tab and newline, DEL, C1
    "\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"  # invisible, bidirectional
    "\ud800-\udfff"  # surrogates: undecodable bytes of a file's name
    "\U000e0000-\U000e007f]"  # invisible tags
)


def clean(text: object) -> str:
    """Return a text with all control and invisible characters escaped, except tabs and line ends."""
    return _UNSAFE.sub(_escape, str(text))


def _escape(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def shorten(text: object, max_length: int = MAX_LENGTH) -> str:
    """Return a clean text, truncated to `max_length` characters."""
    text = str(text)
    shown = clean(text[:max_length])
    return shown if len(text) <= max_length else f"{shown}... ({len(text) - max_length} more characters)"


def write_stdout(text: str) -> None:
    """Write results to standard output, not truncated."""
    _write(sys.stdout, clean(text))


def print_line(text: object) -> None:
    """Print a line to standard output."""
    _write(sys.stdout, shorten(text) + "\n")


def print_status(text: object) -> None:
    """Print a status line to standard error."""
    _write(sys.stderr, shorten(text) + "\n")


def warn(texts: Iterable[object]) -> None:
    """Print warnings, one line each."""
    _each("warning", texts)


def print_errors(texts: Iterable[object]) -> None:
    """Print errors, one line each."""
    _each("error", texts)


def _each(kind: str, texts: Iterable[object]) -> None:
    every = list(texts)
    for text in every[:MAX_MESSAGES]:
        print_status(f"{kind}: {text}")
    if len(every) > MAX_MESSAGES:
        print_status(f"{kind}: and at least {len(every) - MAX_MESSAGES} more")


def pass_on(data: bytes, *, error: bool = False) -> None:
    """Write the output of a program in a lab unchanged."""
    os.write(2 if error else 1, data)


def console(*, error: bool = False, **options: Any) -> Console:
    """Create a Rich console for tables and progress that prints texts without markup."""
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


def confirm(question: str) -> bool:
    """Ask the user to confirm. False if there is no terminal."""
    if sys.stdin is None or sys.stderr is None or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    _write(sys.stderr, f"{shorten(question)} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def prepare() -> None:
    """Escape characters that the terminal's encoding lacks."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError):  # closed, or replaced by a test
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def flush() -> None:
    """Flush standard output."""
    if sys.stdout is not None:
        sys.stdout.flush()


def discard_stdout() -> None:
    """Discard further output after the reader has closed the pipe."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _write(stream: TextIO | None, text: str) -> None:
    if stream is not None:  # a closed stream
        stream.write(text)
