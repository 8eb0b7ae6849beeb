# SPDX-License-Identifier: Apache-2.0
"""Fields set from outside the file: a campaign's axes and `--set`. They change the raw values before validation,
general ones first, so that the more specific of two overlapping overrides takes precedence.
"""

import copy
import re
from collections.abc import Mapping

from qbed.base.errors import LabError
from qbed.config.source import FieldPath, Source, show_path

_PART = re.compile(r'(?:^|\.)(?:"([^"]+)"|([^.\["]+))|\[(\d+)\]')


def parse_path(text: str) -> FieldPath:
    """Parse `workload[0].incast.senders` into its parts; a part with dots is quoted. ValueError if it is not a path."""
    parts: list[str | int] = []
    position = 0
    while position < len(text):
        match = _PART.match(text, position)
        if match is None:
            break
        parts.append(int(match[3]) if match[3] is not None else match[1] or match[2])
        position = match.end()
    if position < len(text) or not parts or not isinstance(parts[0], str):
        raise ValueError(f"expected a field such as `links.default.rate` or `workload[0].flow.size`, got `{text}`")
    return tuple(parts)


def apply_overrides(source: Source, overrides: Mapping[str, object]) -> None:
    """Set each field in `source.values`. LabError for an impossible path; validation finds unknown names."""
    errors: list[str] = []
    found: list[tuple[FieldPath, str, object]] = []
    for text, value in overrides.items():
        try:
            found.append((parse_path(text), text, value))
        except ValueError as error:
            errors.append(f"{source.file} with {text}={value}: {error}")
    if found:
        source.values = copy.deepcopy(source.values)
    for path, text, value in sorted(found, key=lambda item: len(item[0])):
        try:
            source.values = _set(source.values, path, copy.deepcopy(value), ())
            source.axes[path] = value
        except ValueError as error:
            errors.append(f"{source.file} with {text}={value}: {error}")
    if errors:
        raise LabError(errors)


def _set(tree: object, path: FieldPath, value: object, done: FieldPath) -> object:
    """Return the tree with the field set. ValueError if the path leads into a scalar."""
    if not path:
        return value
    part, rest = path[0], path[1:]
    if isinstance(part, int):
        if not isinstance(tree, list):
            raise ValueError(f"{show_path(done)} is not a list")
        if part >= len(tree):
            raise ValueError(f"{show_path(done)} has {len(tree)} entries; expected an index below that, got {part}")
        tree[part] = _set(tree[part], rest, value, (*done, part))
        return tree
    if tree is None:
        tree = {}
    if not isinstance(tree, dict):
        raise ValueError(f"{show_path(done)} is `{tree}`, which has no field `{part}`")
    tree[part] = _set(tree.get(part), rest, value, (*done, part))
    return tree
