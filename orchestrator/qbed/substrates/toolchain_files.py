# SPDX-License-Identifier: Apache-2.0
"""Checksums of a toolchain's files: `files.json`, sealed, written where it is made and compared when it is used.

    python -m qbed.substrates.toolchain_files record FOLDER               writes it
    python -m qbed.substrates.toolchain_files add FOLDER NAME FILE        adds FILE, which is about to become NAME
    python -m qbed.substrates.toolchain_files check FOLDER                prints damaged files; exit status 1: some are
    python -m qbed.substrates.toolchain_files check-copy FOLDER           the same; optional folders may be left out
    python -m qbed.substrates.toolchain_files is FOLDER NAME FILE         exit status 0: FILE is what NAME was

A process reads a file once, and again only if its inode, size or times are others.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from qbed.base import terminal
from qbed.base.files import open_regular, read_bytes
from qbed.base.json_files import LARGEST, SealError, unsealed, write_sealed

RECORD, MANIFEST = "files.json", "manifest.json"
OPTIONAL = ("frr", "lines", "programs", "tc")
"""Folders without which most labs run."""
Status = tuple[int, int, int, int, int]
_read: dict[tuple[str, Status], str] = {}
"""The checksums of files that this process has read."""


def record(folder: Path) -> None:
    """Record all files of a toolchain as they are now."""
    names = sorted(set(_names(folder)) - {RECORD})
    write_sealed(folder / RECORD, {"files": {name: _checksum(folder / name) for name in names}})


def add(folder: Path, name: str, file: Path) -> None:
    """Record one more file before it gets its name."""
    write_sealed(folder / RECORD, {"files": {**checksums(folder), name: _checksum(file)}})


def checksums(folder: Path) -> dict[str, str]:
    """The recorded checksums, by the files' names in the folder; OSError, or `SealError` if the record is damaged."""
    files = unsealed(read_bytes(folder / RECORD, LARGEST)).get("files")
    if not isinstance(files, dict):
        raise SealError("names no files")
    return files


def damaged_files(folder: Path, recorded: Mapping[str, str], names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The files, of those with these names, that are not as recorded, and what is wrong with each."""
    for name in names:
        try:
            if name not in recorded:
                yield name, "is not one of the toolchain's files"
            elif _checksum(folder / name) != recorded[name]:
                yield name, "is not what was built"
        except FileNotFoundError:
            yield name, "is missing"
        except OSError as error:
            yield name, f"cannot be read: {error.strerror}"


def all_damaged_files(folder: Path, *, copied: bool = False) -> Iterator[tuple[str, str]]:
    """Whatever is damaged in a toolchain that was made with a record. `copied`: a copy may lack optional folders."""
    try:
        recorded = checksums(folder)
    except OSError as error:
        yield RECORD, f"cannot be read: {error.strerror}"
    except SealError as error:
        yield RECORD, str(error)
    else:
        left_out = [f"{name}/" for name in OPTIONAL if copied and not os.path.lexists(folder / name)]
        yield from damaged_files(folder, recorded, [name for name in recorded if not name.startswith(tuple(left_out))])


def _names(folder: Path) -> Iterator[str]:
    """Every file, by its name in the folder. Links are followed, as where a toolchain is copied."""
    for place, _, names in os.walk(folder, followlinks=True):
        for name in names:
            path = Path(place, name)
            if path.is_file():
                yield str(path.relative_to(folder))


def _checksum(path: Path) -> str:
    place = str(path)
    key = (place, _status(os.stat(place)))  # noqa: PTH116 - a Path takes as long again, before each cell
    if key not in _read:
        with open_regular(path) as file:
            key = (place, _status(os.fstat(file.fileno())))
            _read[key] = hashlib.file_digest(file, "sha256").hexdigest()
    return _read[key]


def _status(found: os.stat_result) -> Status:
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def main(arguments: list[str]) -> None:
    match arguments:
        case ["record", folder]:
            record(Path(folder))
        case ["add", folder, name, file]:
            add(Path(folder), name, Path(file))
        case [("check" | "check-copy") as command, folder]:
            found = [name for name, _ in all_damaged_files(Path(folder), copied=command == "check-copy")]
            for name in found:
                terminal.print_line(name)
            sys.exit(1 if found else 0)
        case ["is", folder, name, file]:
            sys.exit(0 if checksums(Path(folder)).get(name) == _checksum(Path(file)) else 1)
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
