# SPDX-License-Identifier: Apache-2.0
"""Names, globs and ranges: `h1`, `h*`, `h1..h10`."""

import re
from collections.abc import Iterable
from fnmatch import translate

_RANGE = re.compile(r"(.*?)(\d{1,6})\.\.(.*?)(\d{1,6})")
_LONGEST_RANGE = 16384


def is_glob(pattern: str) -> bool:
    """Whether it has wildcards."""
    return any(character in pattern for character in "*?[")


def expand_range(name: str) -> list[str]:
    """`h1..h3` to its names; any other text is itself. ValueError if it is a range that makes no sense."""
    if ".." not in name:
        return [name]
    match = _RANGE.fullmatch(name)
    first, last = (int(match[2]), int(match[4])) if match else (1, 0)
    if match is None or match[1] != match[3] or last < first or last - first >= _LONGEST_RANGE:
        raise ValueError(f"expected a range such as `h1..h10`, got `{name}`")
    return [f"{match[1]}{number}" for number in range(first, last + 1)]


def select(pattern: str, names: Iterable[str]) -> list[str]:
    """Those of `names` that the pattern means: for a range in its order, otherwise in theirs. ValueError for a
    senseless range.
    """
    if ".." in pattern:
        known = set(names)
        return [name for name in expand_range(pattern) if name in known]
    if is_glob(pattern):
        matches = re.compile(translate(pattern)).match
        return [name for name in names if matches(name)]
    return [name for name in names if name == pattern]
