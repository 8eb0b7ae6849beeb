# SPDX-License-Identifier: Apache-2.0
"""Marks the tests of second-tries.txt for pytest-rerunfailures. No other test is tried again."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

import pytest


class SecondTry(NamedTuple):
    pattern: str
    tries: int
    reason: str


LIST = Path(__file__).with_name("second-tries.txt")


def read(path: Path = LIST) -> list[SecondTry]:
    """The entries of the list; `ValueError` names a line without a number or a reason."""
    found = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        fields = line.split(maxsplit=2)
        if len(fields) != 3 or not fields[1].isdecimal():
            raise ValueError(f"{path}:{number}: expected a pattern, a number and a reason, got `{line}`")
        found.append(SecondTry(fields[0], int(fields[1]), fields[2]))
    return found


def mark(items: Iterable[pytest.Item], entries: Iterable[SecondTry]) -> None:
    """Give each test that an entry matches its number of further tries; the first entry counts."""
    known = list(entries)
    for item in items:
        for entry in known:
            if fnmatchcase(item.nodeid, entry.pattern):
                item.add_marker(pytest.mark.flaky(reruns=entry.tries))
                break
