# SPDX-License-Identifier: Apache-2.0
"""Errors that a user can act on. The command line prints them without a traceback and exits with their status."""

import difflib
from collections.abc import Iterable, Sequence

MAX_NAME_LENGTH = 200
"""Longer names are truncated before they are compared, which bounds the time."""
_MAX_NAMES = 2000


class QbedError(Exception):
    """An error that the user can fix: one sentence that states what is wrong and what to do."""

    exit_status = 1


class LabError(QbedError):
    """An invalid lab file: every message has the file, line, column, field and what was expected."""

    exit_status = 2

    def __init__(self, messages: Sequence[str]) -> None:
        super().__init__("\n".join(messages))
        self.messages = list(messages)


class MissingError(QbedError):
    """The object of a request does not exist."""


def nearest(name: str, valid: Iterable[str]) -> str:
    """Return `; did you mean X?` for the valid name closest to `name`, or a short list of valid names, or nothing."""
    names = sorted(set(valid))
    if len(names) > _MAX_NAMES:  # too slow, and no help
        return ""
    close = difflib.get_close_matches(name[:MAX_NAME_LENGTH], names, n=1, cutoff=0.6)
    if close:
        return f"; did you mean `{close[0]}`?"
    if names and len(names) <= 12:
        return "; expected one of " + ", ".join(f"`{n}`" for n in names)
    return ""
