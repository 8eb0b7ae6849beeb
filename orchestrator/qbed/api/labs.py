# SPDX-License-Identifier: Apache-2.0
"""Labs in code: those of files, and those that are made of dictionaries, as a lab file would say it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import yaml

from qbed.base.cache import cache_folder
from qbed.base.files import move
from qbed.base.json_files import Row
from qbed.lab.library import Entry, create, entries, find
from qbed.network.load import load_lab, of_folder
from qbed.network.resolve import ResolvedLab
from qbed.plan.compile import compile_lab
from qbed.plan.model import Plan
from qbed.report.show_plan import summary


@dataclass(frozen=True)
class Lab:
    """A lab file, and the fields of it that are set from outside, by their paths (`links.default.rate`)."""

    file: Path
    settings: Mapping[str, object] = field(default_factory=dict)

    @classmethod
    def of(cls, fields: Mapping[str, object] | None = None, /, **more: object) -> Lab:
        """A lab that is made in code: the fields of a lab file, as they would stand there. It is checked where it is
        used, with the messages that a file would have.
        """
        text = yaml.safe_dump({**(fields or {}), **more}, sort_keys=False, allow_unicode=True)
        folder = cache_folder() / "labs" / hashlib.sha256(text.encode()).hexdigest()[:16]
        file = folder / "lab.yml"
        if not file.exists():
            beside = folder.with_name(f".{folder.name}.{os.getpid()}")
            beside.mkdir(parents=True, exist_ok=True)
            (beside / file.name).write_text(text)
            with suppress(OSError):  # another process has just written the same
                move(beside, folder)
        return cls(file)

    def set(self, settings: Mapping[str, object] | None = None, /, **more: object) -> Lab:
        """Return the lab with other values: `lab.set({"links.default.rate": "1 Gbit/s"}, duration="1 s")`."""
        return Lab(self.file, {**self.settings, **(settings or {}), **more})

    @cached_property
    def resolved(self) -> ResolvedLab:
        """The resolved lab. `LabError` with all errors of the file."""
        return load_lab(self.file, self.settings)

    @property
    def warnings(self) -> list[str]:
        """Settings that are allowed but probably not intended."""
        return list(self.resolved.warnings)

    def plan(self, seed: int | None = None) -> Plan:
        """The plan, as `qbed compile` prints it."""
        return compile_lab(self.resolved, seed)

    def inspect(self, seed: int | None = None) -> Row:
        """Nodes, links, addresses and queues, as `qbed inspect --json` has them."""
        return summary(self.plan(seed))


def load(lab: str | Path) -> Lab:
    """Load a lab by its file, its folder, or its name in the library (`qbed labs`)."""
    path = find(Path(lab))
    return Lab(of_folder(path) if path.is_dir() else path)


def labs() -> list[Entry]:
    """List the labs of qbed with their names, questions and profiles."""
    return list(entries())


def new(folder: str | Path, like: str | Path = "dumbbell") -> Lab:
    """Write a lab folder to start from, and load it. Nothing is overwritten."""
    create(Path(folder), find(Path(like)))
    return load(folder)
