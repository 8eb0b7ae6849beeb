# SPDX-License-Identifier: Apache-2.0
"""Settings that overlap: which one wins, and which cannot stand beside each other.

Of two settings of which one is a part of the other (`switches.default` and `switches.default.buffer`) the more specific
wins, in whatever order they are given; of two of the same field: `set` < a profile's `set` < an axis of alternatives <
an axis of values < `--set`. A profile's `set` and `--set` also replace all that is set below their fields.

No label may lie. An axis of values keeps its values in every cell. Alternatives keep what they *differ* in, unless an
axis of values has that very field: then its own column says what was run. Anything else is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from qbed.config.overrides import parse_path
from qbed.config.source import FieldPath, show_path

MISSING = object()
Fields = dict[FieldPath, object]


def fields(settings: Mapping[str, object]) -> Fields:
    """By path instead of text; ValueError where a text is no path."""
    return {parse_path(text): value for text, value in settings.items()}


def within(inner: FieldPath, outer: FieldPath) -> bool:
    """Whether a field is another one, or a part of it."""
    return inner[: len(outer)] == outer


def look(tree: object, path: Iterable[str | int]) -> object:
    """A part of a value, or `MISSING`."""
    for part in path:
        known = dict(enumerate(tree)) if isinstance(tree, list) else tree
        if not isinstance(known, dict) or part not in known:
            return MISSING
        tree = known[part]
    return tree


def without(settings: Mapping[str, object], replaced: Iterable[FieldPath]) -> dict[str, object]:
    """Those settings that are no part of what is set instead."""
    removed = list(replaced)
    return {
        text: value for text, value in settings.items() if not any(within(parse_path(text), path) for path in removed)
    }


def leaves(settings: Mapping[str, object]) -> Fields:
    """The single fields that settings give."""
    found: Fields = {}
    given: set[FieldPath] = set()
    for path, value in sorted(fields(settings).items(), key=lambda item: len(item[0])):
        if any(path[:length] in given for length in range(len(path))):  # what is there of it is replaced
            found = {leaf: old for leaf, old in found.items() if not within(leaf, path) and not within(path, leaf)}
        found |= dict(_leaves(path, value))
        given.add(path)
    return found


def _leaves(path: FieldPath, value: object) -> Iterator[tuple[FieldPath, object]]:
    inside = dict(enumerate(value)) if isinstance(value, list) else value
    if isinstance(inside, dict) and inside:
        for name, inner in inside.items():
            yield from _leaves((*path, name), inner)
    else:
        yield path, value


def count_fields(settings: Mapping[str, object]) -> int:
    """How many single fields settings give."""
    return sum(1 for _ in _leaves((), settings))


def varied(alternatives: Sequence[Fields]) -> set[FieldPath]:
    """The fields in which alternatives differ: what their names stand for."""
    every = {path for alternative in alternatives for path in alternative}
    first = alternatives[0]
    return {
        path
        for path in every
        if any(settings.get(path, MISSING) != first.get(path, MISSING) for settings in alternatives)
    }


def untrue(alternative: Fields, meaning: Iterable[FieldPath], path: FieldPath, value: object) -> FieldPath | None:
    """A field of an alternative's meaning that it no longer has when `path` is set to `value` above it."""
    for leaf in sorted((leaf for leaf in meaning if within(leaf, path) or within(path, leaf)), key=str):
        given = look(value, leaf[len(path) :]) if within(leaf, path) else MISSING
        if given is MISSING or alternative.get(leaf, MISSING) != given:
            return leaf
    return None


@dataclass(frozen=True)
class Setting:
    """A setting of an axis: its position in the campaign file, and the value if it is an alternative's."""

    axis: str
    place: FieldPath
    path: FieldPath
    value: object = MISSING


def clash(first: Setting, second: Setting) -> bool:
    """Whether two axes undo each other there."""
    outer, inner = sorted((first, second), key=lambda setting: len(setting.path))
    if not within(inner.path, outer.path):
        return False
    if len(outer.path) == len(inner.path) and outer.value is MISSING:
        outer, inner = inner, outer
    if outer.value is MISSING:  # a plain value has no parts
        return True
    given = look(outer.value, inner.path[len(outer.path) :])
    if inner.value is MISSING:  # its column says what is run, if that is one field
        return isinstance(given, dict | list)
    return given is not MISSING and given != inner.value


def shown(path: FieldPath) -> str:
    return f"`{show_path(path)}`"
