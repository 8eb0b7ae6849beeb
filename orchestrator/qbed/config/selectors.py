# SPDX-License-Identifier: Apache-2.0
"""Names, globs and ranges: `h1`, `h*`, `h1..h10`."""

import re
from collections.abc import Collection, Mapping, Set
from fnmatch import translate

_RANGE = re.compile(r"(.*?)(\d{1,6})\.\.(.*?)(\d{1,6})")
_LONGEST_RANGE = 16384
_LONGEST_TEXT = 256


def is_glob(pattern: str) -> bool:
    """Whether a pattern has wildcards."""
    return any(character in pattern for character in "*?[")


def is_wide(pattern: str) -> bool:
    """Whether a pattern is a glob or a range."""
    return ".." in pattern or is_glob(pattern)


def expand_range(name: str) -> list[str]:
    """Return the names of a range such as `h1..h3`; any other text is returned as the only name. ValueError for an
    invalid range.
    """
    if ".." not in name:
        return [name]
    prefix, numbers = _range(name)
    return [f"{prefix}{number}" for number in numbers]


def count_range(name: str) -> int:
    """Return the number of names in a range."""
    return len(_range(name)[1]) if ".." in name else 1


def _range(name: str) -> tuple[str, range]:
    match = _RANGE.fullmatch(name) if len(name) <= _LONGEST_TEXT else None
    first, last = (int(match[2]), int(match[4])) if match else (1, 0)
    if match is None or match[1] != match[3] or last < first or last - first >= _LONGEST_RANGE:
        raise ValueError(f"expected a range such as `h1..h10`, got `{name}`")
    return match[1], range(first, last + 1)


def select(pattern: str, names: Collection[str]) -> list[str]:
    """Return the names that the pattern matches: in the range's order for a range, otherwise in the order of `names`.
    ValueError for an invalid range.
    """
    if ".." in pattern:
        known = names if isinstance(names, Mapping | Set) else set(names)
        return [name for name in expand_range(pattern) if name in known]
    if is_glob(pattern):
        if len(pattern) > _LONGEST_TEXT:
            raise ValueError(f"expected a glob of at most {_LONGEST_TEXT} characters")
        matches = re.compile(translate(pattern)).match
        return [name for name in names if matches(name)]
    return [pattern] if pattern in names else []
