# SPDX-License-Identifier: Apache-2.0
"""Errors that a user can act on. The command line prints them without a traceback and exits with their status."""

import difflib
from collections.abc import Iterable, Sequence

LONGEST_NAME = 200
"""What is longer is like no name, and takes long to compare."""
_MOST_NAMES = 2000


class QbedError(Exception):
    """Something that the user can put right: one sentence that says what and how."""

    exit_status = 1


class LabError(QbedError):
    """A lab file that does not hold together: every message names file, line, column, field and what was expected."""

    exit_status = 2

    def __init__(self, messages: Sequence[str]) -> None:
        super().__init__("\n".join(messages))
        self.messages = list(messages)


def nearest(name: str, valid: Iterable[str]) -> str:
    """`; did you mean X?` for the valid name closest to `name`, or the short list of valid names, or nothing."""
    names = sorted(set(valid))
    if len(names) > _MOST_NAMES:  # to compare takes long, and helps nobody
        return ""
    close = difflib.get_close_matches(name[:LONGEST_NAME], names, n=1, cutoff=0.6)
    if close:
        return f"; did you mean `{close[0]}`?"
    if names and len(names) <= 12:
        return "; expected one of " + ", ".join(f"`{n}`" for n in names)
    return ""
