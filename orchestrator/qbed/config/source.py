# SPDX-License-Identifier: Apache-2.0
"""YAML with positions: plain values, and the line and column of every field path.

Scalars follow the core schema of YAML 1.2 (`on` and `off` are text, `1:30` is not a number). Duplicate keys, cycles and
alias bombs are refused.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from yaml._yaml import CParser
from yaml.composer import Composer
from yaml.resolver import Resolver

from qbed.base.errors import LabError
from qbed.base.files import MIB, read_text

FieldPath = tuple[str | int, ...]
MAX_FILE_BYTES = 4 * MIB
_MAX_VALUES = 200_000
_MAX_TEXT = 16 * MIB  # all values together, aliases expanded
_MAX_DEPTH = 64
_MAX_SHOWN = 200  # characters of an override's value in a message


class _Loader(Composer, CParser, Resolver):
    """Composes nodes with YAML 1.2 scalars, with a limited number and depth. libyaml's composer has no limits."""

    yaml_implicit_resolvers: dict[str, object] = {}  # noqa: RUF012 - an attribute of PyYAML's class

    def __init__(self, text: str) -> None:
        CParser.__init__(self, text)
        Composer.__init__(self)
        Resolver.__init__(self)
        self._nodes = self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Return the next node, within the limits."""
        mark: yaml.Mark | None = getattr(self.peek_event(), "start_mark", None)
        self._nodes += 1
        if self._nodes > 2 * _MAX_VALUES:  # a field's name is a node, too
            raise yaml.MarkedYAMLError(problem=f"more than {_MAX_VALUES} values", problem_mark=mark)
        if self._depth > _MAX_DEPTH:
            raise yaml.MarkedYAMLError(problem="nested too deeply", problem_mark=mark)
        self._depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1


_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"true|false", re.I), list("tfTF"))
_Loader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile(r"(~|null|)$", re.I), ["~", "n", "N", ""])
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"[-+]?[0-9]{1,18}$"), list("-+0123456789"))
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*)([eE][-+]?[0-9]{1,3})?$"),
    list("-+.0123456789"),
)
_Loader.add_implicit_resolver("tag:yaml.org,2002:merge", re.compile(r"<<$"), ["<"])


def show_path(path: FieldPath) -> str:
    """Format `('workload', 0, 'flow')` as `workload[0].flow`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            shown = part if re.fullmatch(r"[\w>*?\[\]-]+", part) else f'"{part}"'
            text += f".{shown}" if text else shown
    return text


@dataclass
class Source:
    """A parsed file: its values and their positions. `axes`: fields that the campaign or `--set` sets."""

    file: str
    folder: Path
    values: object = None
    positions: dict[FieldPath, tuple[int, int]] = field(default_factory=dict)
    keys: dict[FieldPath, tuple[int, int]] = field(default_factory=dict)
    axes: dict[FieldPath, object] = field(default_factory=dict)

    def message(self, path: FieldPath, text: str, *, at_key: bool = False) -> str:
        """Return `file:line:column: field: text`. A field that is not in the file has the position of its nearest
        parent.
        """
        return f"{self.place(path, at_key=at_key)}: {text}"

    def place(self, path: FieldPath, *, at_key: bool = False) -> str:
        """Return `file:line:column: field`, the prefix of a message about a field."""
        axis = max((axis for axis in self.axes if self._is_of(axis, path)), key=len, default=None)
        if axis is not None:
            value = str(self.axes[axis])
            value = value if len(value) <= _MAX_SHOWN else value[: _MAX_SHOWN - 3] + "..."
            return f"{self.file} with {show_path(axis)}={value}: {show_path(path)}"
        line, column = self._position(path, at_key)
        where = f"{self.file}:{line}:{column}"
        return f"{where}: {show_path(path)}" if path else where

    def where(self, path: FieldPath) -> str:
        """Return `file:line` of a field's name."""
        return f"{self.file}:{self._position(path, at_key=True)[0]}"

    def is_override(self, path: FieldPath) -> bool:
        """Whether the campaign or `--set` sets a field."""
        return any(self._is_of(axis, path) for axis in self.axes)

    def _is_of(self, axis: FieldPath, path: FieldPath) -> bool:
        """Whether a field was set by an axis, or exists only because of it."""
        return path[: len(axis)] == axis or (path == axis[: len(path)] and path not in self.positions)

    def _position(self, path: FieldPath, at_key: bool) -> tuple[int, int]:
        if at_key and path in self.keys:
            return self.keys[path]
        for length in range(len(path), -1, -1):
            if path[:length] in self.positions:
                return self.positions[path[:length]]
        return (1, 1)


def read(path: Path) -> Source:
    """Parse a file. LabError if it cannot be read or is not one YAML document."""
    return parse(read_lab_text(path), file=str(path), folder=path.parent)


def read_lab_text(path: Path) -> str:
    """Return the text of a file. LabError if it cannot be read."""
    try:
        return read_text(path, MAX_FILE_BYTES)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise LabError([f"{path}: cannot read it: {reason}"]) from None


_UNQUOTED = re.compile(r".*:\s+>=?\s*\S").match
_TAB = re.compile(r" *\t").match


def parse(text: str, file: str = "<text>", folder: Path | None = None) -> Source:
    """Parse one YAML document. LabError has the position of the error."""
    source = Source(file=file, folder=folder or Path())
    try:
        root = _Loader(text).get_single_node()
        if root is not None:
            _Builder(source).fill(root)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{mark.line + 1}:{mark.column + 1}" if mark else "1:1"
        text_of_line = text.splitlines()[mark.line : mark.line + 1] if mark else []
        hint = "; quote text that begins with `>`" if any(map(_UNQUOTED, text_of_line)) else ""
        hint = "; write spaces instead of the tab" if any(map(_TAB, text_of_line)) else hint
        raise LabError([f"{file}:{where}: not valid YAML: {error.problem or error.context}{hint}"]) from None
    except yaml.reader.ReaderError as error:
        raise LabError([f"{file}:1:1: not valid YAML: character {error.character!r} at {error.position}"]) from None
    except UnicodeError:
        raise LabError([f"{file}:1:1: not valid YAML: a surrogate without its pair"]) from None
    return source


def scalar(text: str) -> object:
    """Parse one value as in the file (`--set field=value`)."""
    return parse(text, file="--set").values


class _Builder:
    """Converts PyYAML's node graph to plain values and records positions."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.count = self.text = 0
        self.ancestors: set[int] = set()

    def fill(self, root: yaml.Node) -> None:
        self.source.values = self.value(root, ())

    def value(self, node: yaml.Node, path: FieldPath) -> object:
        self.source.positions[path] = _position(node)
        if isinstance(node, yaml.ScalarNode):
            self.count_node(node, path, len(node.value))
            return self.scalar(node, path)
        with self.within(node, path):
            if isinstance(node, yaml.SequenceNode):
                return [self.value(item, (*path, i)) for i, item in enumerate(node.value)]
            return self.mapping(node, path)

    def count_node(self, node: yaml.Node, path: FieldPath, characters: int) -> None:
        """Count a node against the limits. Aliases are counted each time, because they expand."""
        self.count += 1
        self.text += characters
        if self.count > _MAX_VALUES:
            raise self.refuse(node, path, f"more than {_MAX_VALUES} values")
        if self.text > _MAX_TEXT:
            raise self.refuse(node, path, f"more than {_MAX_TEXT} characters")

    @contextmanager
    def within(self, node: yaml.Node, path: FieldPath) -> Iterator[None]:
        """Guard against cycles and depth while the children of a node are converted."""
        self.count_node(node, path, 0)
        if id(node) in self.ancestors:
            raise self.refuse(node, path, "the anchor contains itself")
        if len(self.ancestors) > _MAX_DEPTH:
            raise self.refuse(node, path, "nested too deeply")
        self.ancestors.add(id(node))
        try:
            yield
        finally:
            self.ancestors.remove(id(node))

    def mapping(self, node: yaml.Node, path: FieldPath) -> dict[str, object]:
        result: dict[str, object] = {}
        merged: dict[str, object] = {}
        for key_node, value_node in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                for mapping in self.merge_sources(value_node, path):
                    with self.within(mapping, path):
                        merged = self.mapping(mapping, path) | merged
                continue
            if not isinstance(key_node, yaml.ScalarNode):
                raise self.refuse(key_node, path, "a field's name must be plain text")
            key = key_node.value
            self.text += len(key)
            if key in result:
                raise self.refuse(key_node, path, f"the field `{key}` is given twice")
            self.source.keys[(*path, key)] = _position(key_node)
            result[key] = self.value(value_node, (*path, key))
        return merged | result

    def merge_sources(self, node: yaml.Node, path: FieldPath) -> Iterator[yaml.Node]:
        for item in node.value if isinstance(node, yaml.SequenceNode) else [node]:
            if not isinstance(item, yaml.MappingNode):
                raise self.refuse(item, path, "`<<` merges fields, so it needs a mapping")
            yield item

    def scalar(self, node: yaml.ScalarNode, path: FieldPath) -> object:
        kind = node.tag.rpartition(":")[2]
        if kind == "null":
            return None
        if kind == "bool":
            return node.value.lower() == "true"
        if kind in ("int", "float"):
            try:
                return int(node.value) if kind == "int" else float(node.value)
            except ValueError:
                raise self.refuse(node, path, f"`{node.value}` is not a number") from None
        if kind == "str":
            return node.value
        raise self.refuse(node, path, f"the tag `{node.tag}` is not allowed")

    def refuse(self, node: yaml.Node, path: FieldPath, text: str) -> LabError:
        line, column = _position(node)
        name = f"{show_path(path)}: " if path else ""
        return LabError([f"{self.source.file}:{line}:{column}: {name}{text}"])


def _position(node: yaml.Node) -> tuple[int, int]:
    return node.start_mark.line + 1, node.start_mark.column + 1
