# SPDX-License-Identifier: Apache-2.0
"""What the checks of a lab find: errors and warnings with the position in the file."""

from dataclasses import dataclass, field

from qbed.language.selectors import select
from qbed.language.source import FieldPath, Source


@dataclass
class Problems:
    """What is wrong (errors) or suspicious (warnings) in a lab."""

    source: Source
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def error(self, path: FieldPath, text: str, *, at_key: bool = False) -> None:
        """Something that must be put right; `at_key`: the field's name is wrong rather than its value."""
        message = self.source.message(path, text, at_key=at_key)
        if message not in self.errors:
            self.errors.append(message)

    def warn(self, path: FieldPath, text: str) -> None:
        """Something that is allowed but probably not meant."""
        message = self.source.message(path, text)
        if message not in self.warnings:
            self.warnings.append(message)

    def select(self, path: FieldPath, pattern: str, names: list[str]) -> list[str]:
        """The names that a pattern means; a senseless range is an error."""
        try:
            return select(pattern, names)
        except ValueError as error:
            self.error(path, str(error), at_key=True)
            return []
