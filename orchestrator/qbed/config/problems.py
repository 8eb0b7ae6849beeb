# SPDX-License-Identifier: Apache-2.0
"""Errors and warnings of the checks of a lab, with positions in the file."""

from collections.abc import Collection
from dataclasses import dataclass, field

from qbed.base.errors import LabError
from qbed.config.messages import MAX_ERRORS
from qbed.config.selectors import count_range, is_glob, select
from qbed.config.source import FieldPath, Source

MAX_STEPS = 10_000_000


@dataclass(frozen=True)
class Unread:
    """The reason why no part of the lab reads a setting.

    `conditional`: the setting has an effect with another value of another setting, as a parameter has with another
    scheme.
    """

    text: str
    conditional: bool


@dataclass
class Problems:
    """The errors and warnings of a lab."""

    source: Source
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    steps: int = 0
    _read: set[FieldPath] = field(default_factory=set)
    _unread: dict[FieldPath, Unread] = field(default_factory=dict)

    def error(self, path: FieldPath, text: str, *, at_key: bool = False) -> None:
        """Record an error; `at_key`: the field's name is wrong, not its value."""
        message = self.source.message(path, text, at_key=at_key)
        if message not in self.errors:
            self.errors.append(message)
        if len(self.errors) == MAX_ERRORS:
            raise LabError([*self.errors, f"{self.source.file}: only the first {MAX_ERRORS} errors are listed"])

    def warn(self, path: FieldPath, text: str) -> None:
        """Record a warning: a setting that is valid but probably not intended."""
        message = self.source.message(path, text)
        if len(self.warnings) < MAX_ERRORS and message not in self.warnings:
            self.warnings.append(message)

    def read(self, path: FieldPath) -> None:
        """Record that some part of the lab reads a setting."""
        self._read.add(path)

    def not_read(self, path: FieldPath, text: str, *, conditional: bool = True) -> None:
        """Record that one of the elements to which a setting applies does not read it. The setting is unread if none
        does.
        """
        self._unread.setdefault(path, Unread(text, conditional))

    def is_known(self, path: FieldPath) -> bool:
        """Whether a setting is known to be read or unread."""
        return path in self._read or path in self._unread

    @property
    def unread(self) -> dict[FieldPath, Unread]:
        """The settings that no part of the lab reads."""
        return {path: unread for path, unread in self._unread.items() if path not in self._read}

    def spend(self, path: FieldPath, steps: int) -> None:
        """Count work that is repeated for each of many elements, and raise LabError when there is too much: a short
        file whose wildcards match a large network could take hours.
        """
        self.steps += steps
        if self.steps > MAX_STEPS:
            text = f"the lab names {self.steps} nodes, links and flows up to this field"
            raise LabError([*self.errors, self.source.message(path, f"{text}; expected at most {MAX_STEPS}")])

    def select(self, path: FieldPath, pattern: str, names: Collection[str]) -> list[str]:
        """Return the names that a pattern matches; record an error for an invalid range."""
        try:
            self.spend(path, len(names) if is_glob(pattern) else count_range(pattern))
            return select(pattern, names)
        except ValueError as error:
            self.error(path, str(error), at_key=True)
            return []
