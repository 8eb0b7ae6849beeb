# SPDX-License-Identifier: Apache-2.0
"""Resolution of a lab's `programs`: their nodes and the files beside the lab file that they need."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from qbed.base.errors import nearest
from qbed.base.files import MIB, read_text
from qbed.config.problems import Problems
from qbed.config.reach import ReachError, beneath, refuse_foreign
from qbed.config.selectors import is_wide
from qbed.config.source import FieldPath
from qbed.config.units import format_duration
from qbed.lab.programs import BUILT_IN, Program, unknown_names

MAX_BYTES, MAX_FILES, MAX_ENTRIES = MIB, 200, 2_000
MAX_LAUNCHES = 10_000


@dataclass(frozen=True)
class Launch:
    """An entry of `programs`: its nodes by name, and the contents of its files by their paths beside the lab file."""

    program: Program
    nodes: tuple[str, ...]
    files: dict[str, str]


class Launches:
    """Resolves a lab's `programs`; errors are added to `problems`."""

    def __init__(self, nodes: dict[str, int], duration_ns: int, problems: Problems) -> None:
        self._nodes, self._duration_ns, self._problems = nodes, duration_ns, problems
        self._count = 0

    def of(self, number: int, program: Program) -> Launch:
        path: FieldPath = ("programs", number)
        self._times(path, program)
        for name in unknown_names(program):
            known = [*program.arguments, *BUILT_IN]
            text = f"`{{{name}}}` is none of its `arguments`{nearest(name, known)}"
            self._problems.error((*path, "run"), text)
        nodes = self._named((*path, "on"), program.on)
        self._count += len(nodes)
        if self._count > MAX_LAUNCHES:
            text = f"{self._count} programs up to here, one a node; expected at most {MAX_LAUNCHES}"
            self._problems.error((*path, "on"), text)
        return Launch(program, tuple(nodes), self._files(path, program))

    def _times(self, path: FieldPath, program: Program) -> None:
        start = program.start if isinstance(program.start, int) else 0
        if start >= self._duration_ns:
            end = format_duration(self._duration_ns)
            text = f"starts at {format_duration(start)}, after the lab's end at {end}"
            self._problems.error((*path, "start"), text)
        if program.stop is not None and program.stop <= start:
            self._problems.error((*path, "stop"), f"expected a time after the start at {format_duration(start)}")
        if program.stop is not None and program.stop > self._duration_ns:
            self._problems.warn((*path, "stop"), f"is after the lab's end at {format_duration(self._duration_ns)}")

    def _named(self, path: FieldPath, patterns: list[str]) -> list[str]:
        found: dict[str, None] = {}
        for pattern in patterns:
            chosen = self._problems.select(path, pattern, self._nodes)
            if not chosen and not is_wide(pattern):
                self._problems.error(path, f"no node is called `{pattern}`{nearest(pattern, self._nodes)}")
            elif not chosen:
                self._problems.error(path, f"no node matches `{pattern}`")
            found |= dict.fromkeys(chosen)
        return list(found)

    # --- files beside the lab file ---

    def _files(self, path: FieldPath, program: Program) -> dict[str, str]:
        """Return the program's files; a `ReachError` or an unreadable file is an error at the field that names it."""
        try:
            refuse_foreign(program.run[0])  # also checked for programs of the machine
        except ReachError as error:
            self._problems.error((*path, "run"), str(error))
            return {}
        found: dict[str, str] = {}
        named = [((*path, "run"), program.run[0])] if program.is_beside_lab else []
        named += [((*path, "files", number), name) for number, name in enumerate(program.files)]
        for place, name in named:
            try:
                for file in self._beneath(name):
                    found[self._relative(file)] = self._text(file)
                    self._check_size(found)
            except ReachError as error:
                self._problems.error(place, str(error))
            except OSError as error:
                self._problems.error(place, f"{name}: cannot read it: {error.strerror}")
            except ValueError as error:
                self._problems.error(place, str(error))
        if program.is_beside_lab and found and not next(iter(found.values())).startswith("#!"):
            text = f"{program.run[0]} is no script: expected `#!/usr/bin/env python3`, or another, as its first line"
            self._problems.error((*path, "run"), text)
        return found

    @property
    def _folder(self) -> Path:
        return self._problems.source.folder

    def _beneath(self, name: str) -> Iterator[Path]:
        place = beneath(self._folder, name)
        if not place.is_dir():
            yield place
            return
        entries = list(islice(place.rglob("*"), MAX_ENTRIES + 1))
        if len(entries) > MAX_ENTRIES:
            raise ValueError(f"{name} has more than {MAX_ENTRIES} entries; expected a folder of a few files")
        for path in sorted(entries):
            hidden = any(part.startswith(".") or part == "__pycache__" for part in path.relative_to(place).parts)
            if path.is_file() and not hidden:
                yield beneath(self._folder, os.path.relpath(path, self._folder))

    def _relative(self, file: Path) -> str:
        """Return a file's path beside the lab file, as the program sees it. A file from elsewhere (`--trust`) keeps
        only its name.
        """
        place, home = Path(os.path.normpath(file)), Path(os.path.normpath(self._folder))
        return str(place.relative_to(home)) if place.is_relative_to(home) else place.name

    @staticmethod
    def _text(file: Path) -> str:
        try:
            return read_text(file, MAX_BYTES)
        except UnicodeDecodeError:
            text = "is no text; expected a script: what is compiled has to be installed, in /usr/local or /opt"
            raise ValueError(f"{file.name} {text}") from None

    @staticmethod
    def _check_size(files: dict[str, str]) -> None:
        if len(files) > MAX_FILES or sum(map(len, files.values())) > MAX_BYTES:
            raise ValueError(f"expected at most {MAX_FILES} files of {MAX_BYTES >> 20} MiB in all")
