# SPDX-License-Identifier: Apache-2.0
"""What the checks of a lab find: errors and warnings with the position in the file."""

from collections.abc import Collection
from dataclasses import dataclass, field

from qbed.errors import LabError
from qbed.language.messages import MOST_ERRORS
from qbed.language.selectors import count_range, is_glob, select
from qbed.language.source import FieldPath, Source

MOST_STEPS = 10_000_000


@dataclass(frozen=True)
class Unread:
    """Why nothing in the lab reads a setting.

    `conditional`: another value of another setting gives it an effect, as another scheme does to a parameter.
    """

    text: str
    conditional: bool


@dataclass
class Problems:
    """What is wrong (errors) or suspicious (warnings) in a lab."""

    source: Source
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    steps: int = 0
    _read: set[FieldPath] = field(default_factory=set)
    _unread: dict[FieldPath, Unread] = field(default_factory=dict)

    def error(self, path: FieldPath, text: str, *, at_key: bool = False) -> None:
        """Something that must be put right; `at_key`: the field's name is wrong rather than its value."""
        message = self.source.message(path, text, at_key=at_key)
        if message not in self.errors:
            self.errors.append(message)
        if len(self.errors) == MOST_ERRORS:
            raise LabError([*self.errors, f"{self.source.file}: and perhaps more: the first {MOST_ERRORS} are listed"])

    def warn(self, path: FieldPath, text: str) -> None:
        """Something that is allowed but probably not meant."""
        message = self.source.message(path, text)
        if len(self.warnings) < MOST_ERRORS and message not in self.warnings:
            self.warnings.append(message)

    def read(self, path: FieldPath) -> None:
        """Record that something in the lab reads a setting."""
        self._read.add(path)

    def not_read(self, path: FieldPath, text: str, *, conditional: bool = True) -> None:
        """Record that one of the places to which a setting applies does not read it; it is unread if no place does."""
        self._unread.setdefault(path, Unread(text, conditional))

    def is_known(self, path: FieldPath) -> bool:
        """Whether a setting is known to be read, or known not to be."""
        return path in self._read or path in self._unread

    @property
    def unread(self) -> dict[FieldPath, Unread]:
        """The settings that nothing in the lab reads."""
        return {path: unread for path, unread in self._unread.items() if path not in self._read}

    def spend(self, path: FieldPath, steps: int) -> None:
        """Something is done for each of many: a short file, whose wildcards meet a large network, is not worth hours.
        LabError, at once, when that is too much.
        """
        self.steps += steps
        if self.steps > MOST_STEPS:
            text = f"what the lab names up to here is {self.steps} nodes, links and flows, one by one"
            raise LabError([*self.errors, self.source.message(path, f"{text}; expected at most {MOST_STEPS}")])

    def select(self, path: FieldPath, pattern: str, names: Collection[str]) -> list[str]:
        """The names that a pattern means; a senseless range is an error."""
        try:
            self.spend(path, len(names) if is_glob(pattern) else count_range(pattern))
            return select(pattern, names)
        except ValueError as error:
            self.error(path, str(error), at_key=True)
            return []
