# SPDX-License-Identifier: Apache-2.0
"""Whether a compiled P4 program is of the sources beside it, and compiling it again if it is not.

A lock has the checksums of a program's sources and of what was compiled of them: `p4/lock.json` of the programs that
come with qbed (tools/p4), `NAME.lock.json` beside any other program (`qbed p4 compile`). Where there is no lock,
modification times decide.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qbed.base import terminal
from qbed.base.json_files import read_json, write_json
from qbed.base.locations import p4_folder
from qbed.p4.compiler import (
    CompileError,
    checksum,
    compile_program,
    compiled_files,
    find_compiler,
    sources,
    version_of,
)

SLACK_NS = 2 * 10**9
"""How much older compiled files may be than their sources: a copy or a clone writes files in any order."""
Status = tuple[int, int, int, int]
_checked: dict[Path, dict[Path, Status | None]] = {}
"""By program: the files that belonged together when they were compared, for a process that compiles many labs."""


class StaleError(ValueError):
    """A compiled program is not of its sources; the message says how to compile it."""


@dataclass(frozen=True)
class Lock:
    """The checksums of one program's sources and compiled files, by name."""

    sources: Mapping[str, str]
    made: Mapping[str, str]


def ensure_current(program: Path) -> None:
    """Compile a program if its sources changed since it was compiled; `StaleError` if that is not possible here.

    A program without a source has nothing to compare.
    """
    if program in _checked and _statuses(_checked[program]) == _checked[program]:
        return
    if not program.is_file():
        return
    try:
        problem = _problem(program)
        if problem is None:
            files = [*sources(program, p4_folder()), *compiled_files(program), lock_file(program)]
            _checked[program] = _statuses(files)
            return
    except OSError as error:
        raise StaleError(f"{error.filename}: cannot read it: {error.strerror}") from error
    if _bundled(program) is not None:
        raise StaleError(f"{problem}; `make p4` compiles it, where p4c is installed")
    if (found := find_compiler()) is None:
        raise StaleError(f"{problem}; `qbed p4 compile {program}` compiles it, where p4c-bm2-ss is installed")
    terminal.print_status(f"{problem}: compiling it")
    compile_and_lock(found, program)


def _statuses(files: Iterable[Path]) -> dict[Path, Status | None]:
    """Return the size and times of each file, which change when it is written; None if it does not exist."""
    found: dict[Path, Status | None] = {}
    for path in files:
        try:
            status = path.stat()
        except OSError:
            found[path] = None
        else:
            found[path] = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    return found


def compile_and_lock(found: str, program: Path) -> str:
    """Compile a program and write its lock; returns the compiler's warnings. `StaleError` has its errors."""
    try:
        warnings = compile_program(found, program, p4_folder(), warnings_are_errors=False)
        _write_lock(program, version_of(found))
    except CompileError as error:
        raise StaleError(f"{program} does not compile: {str(error).strip()}") from error
    except OSError as error:
        raise StaleError(f"{program} cannot be compiled: {error.filename}: {error.strerror}") from error
    return warnings


def _write_lock(program: Path, version: str) -> None:
    lock = {
        "p4c": version,
        "sources": _checksums(program, sources(program, p4_folder())),
        "made": _checksums(program, compiled_files(program)),
    }
    write_json(lock_file(program), lock)


def copy_program(program: Path, place: Path) -> None:
    """Copy a program that comes with qbed, with its compiled files, to another path, and write a lock there."""
    shutil.copyfile(program, place)
    form, info = compiled_files(program)
    form_place, info_place = compiled_files(place)
    form_place.write_text(json.dumps(read_json(form) | {"program": place.name}, indent=0) + "\n")
    shutil.copyfile(info, info_place)
    _write_lock(place, str(_read(p4_folder() / "lock.json").get("p4c")))


def lock_file(program: Path) -> Path:
    """The lock beside a program."""
    return program.with_suffix(".lock.json")


def _problem(program: Path) -> str | None:
    """Return the error in a program's compiled files; None if there is none or they do not exist."""
    made = compiled_files(program)
    missing = [path for path in made if not path.exists()]
    if missing:
        return f"there is no {missing[0]}" if find_compiler() else None
    used = sources(program, p4_folder())
    lock = _lock(program)
    if lock is not None:
        is_made = _checksums(program, made) == lock.made
        changed = [path for path in used if lock.sources.get(_name(program, path)) != checksum(path)]
        if not changed and len(used) == len(lock.sources):
            return None if is_made else f"{made[0]} or {made[1].name} is not what was compiled of {program.name}"
        if is_made:
            return f"{(changed or [program])[0]} changed after {made[0].name} was compiled"
    # No lock, or one that is older than files that were compiled without it. What comes with qbed is as old as its
    # checkout or its wheel, which says nothing.
    compiled_ns = min(map(_modified_ns, made))
    shared = p4_folder().resolve()
    newest = max((path for path in used if not path.resolve().is_relative_to(shared)), key=_modified_ns)
    if _modified_ns(newest) <= compiled_ns + SLACK_NS:
        return None
    return f"{newest} is newer than {made[0].name}, which was compiled of it"


def _modified_ns(path: Path) -> int:
    return path.stat().st_mtime_ns


def _lock(program: Path) -> Lock | None:
    """The checksums recorded for a program; None: there are none."""
    entry = _bundled(program)
    if entry is None:
        entry = _read(lock_file(program))
    used, made = entry.get("sources"), entry.get("made")
    return Lock(used, made) if isinstance(used, dict) and isinstance(made, dict) else None


def _bundled(program: Path) -> dict[str, Any] | None:
    """The entry in p4/lock.json of a program that comes with qbed; None: it is another one."""
    name = _name_in_tree(program.with_suffix(".json"))
    if name is None:
        return None
    entries = _read(p4_folder() / "lock.json").get("programs")
    for entry in entries.values() if isinstance(entries, dict) else ():
        if isinstance(entry, dict) and name in entry.get("made", ()):
            return entry
    return None


def _name_in_tree(path: Path) -> str | None:
    """A file's name in the tree of qbed's own schemes, labs and shared sources; None: it is elsewhere."""
    root, place = p4_folder().parent.resolve(), path.resolve()
    return str(place.relative_to(root)) if place.is_relative_to(root) else None


def _read(path: Path) -> dict[str, Any]:
    """A lock's content; empty if there is none. `StaleError` if it is damaged."""
    try:
        value = read_json(path)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise StaleError(f"{path}: cannot read it: {error.strerror}") from error
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise StaleError(f"{path} is damaged: expected JSON; remove it, and compile the program again")
    return value


def _checksums(program: Path, paths: Iterable[Path]) -> dict[str, str]:
    return {_name(program, path): checksum(path) for path in paths}


def _name(program: Path, path: Path) -> str:
    """A file's name in a lock: in qbed's own tree from its root (`p4/headers.p4`), elsewhere from the program."""
    return _name_in_tree(path) or os.path.relpath(path, program.parent)
