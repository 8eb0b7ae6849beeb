# SPDX-License-Identifier: Apache-2.0
"""Which files of the machine a guest's process may open, enforced by the host: a Landlock ruleset (landlock(7)).

Root in the guest, and even a module in its kernel, runs with the rights of the user who started it. The ruleset allows
the machine's programs, the toolchain, the cell's folder, and for an interactive lab the user's working folders. The
guest's kernel enforces it after the boot (`confine=`, kernel/uml/um_confine.h).
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import stat
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

SYSTEM = tuple(map(Path, ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt")))
"""Folders of programs and their libraries."""

CONFINE_FD = 220
FILTERED = frozenset({"6.12"})
"""Kernel series that also drop system calls by seccomp. Later series need the one filter for the guest's calls."""
SIGNALS = 6
"""The first Landlock version that keeps a guest from signalling other processes."""

_LIBC = ctypes.CDLL(None, use_errno=True)
_CREATE_RULESET, _ADD_RULE = 444, 445  # system calls
_VERSION, _PATH_BENEATH = 1, 1
_WRITE_FILE, _READ_FILE, _READ_DIR, _REMOVE_DIR, _REMOVE_FILE = (1 << bit for bit in (1, 2, 3, 4, 5))
_MAKE_DIR, _MAKE_REG, _REFER, _TRUNCATE = (1 << bit for bit in (7, 8, 13, 14))
_READ = _READ_FILE | _READ_DIR
# Files and folders: no symbolic link, no device, no FIFO, no socket.
_CHANGE = _WRITE_FILE | _REMOVE_DIR | _REMOVE_FILE | _MAKE_DIR | _MAKE_REG | _REFER | _TRUNCATE
_FILE_RIGHTS = _READ_FILE | _WRITE_FILE | _TRUNCATE
_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}  # how many rights a version knows
_NEWEST = 16
_NETWORK = 0b11  # to bind and to connect TCP sockets
_SCOPES = 0b11  # abstract sockets, and signals, of processes that are not the guest's


@cache
def landlock_version() -> int:
    """The host's Landlock version; 0 without Landlock."""
    return int(max(0, _LIBC.syscall(_CREATE_RULESET, None, 0, _VERSION)))


@contextmanager
def ruleset(writable: Path, readable: Iterable[Path]) -> Iterator[int]:
    """Yield a descriptor of the ruleset (/dev/null without Landlock), with the same number in every run."""
    version = landlock_version()
    made = _create(version) if version else os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    try:
        rules = fcntl.fcntl(made, fcntl.F_DUPFD_CLOEXEC, CONFINE_FD)
    finally:
        os.close(made)
    try:
        if version:
            _allow(rules, writable, (_READ | _CHANGE) & _known_rights(version))
            for path in (*SYSTEM, *readable):
                _allow(rules, path, _READ)
        yield rules
    finally:
        os.close(rules)


def _known_rights(version: int) -> int:
    return (1 << _RIGHTS.get(version, _NEWEST)) - 1


def _create(version: int) -> int:
    sizes = {1: 8, 2: 8, 3: 8, 4: 16, 5: 16}
    attributes = struct.pack("=QQQ", _known_rights(version), _NETWORK, _SCOPES)[: sizes.get(version, 24)]
    rules = _LIBC.syscall(_CREATE_RULESET, attributes, len(attributes), 0)
    if rules < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), "Landlock")
    return int(rules)


def _allow(rules: int, path: Path, rights: int) -> None:
    """Allow `rights` beneath `path`, if it exists."""
    with suppress(FileNotFoundError, PermissionError, NotADirectoryError):
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            if not stat.S_ISDIR(os.fstat(place).st_mode):
                rights &= _FILE_RIGHTS
            if _LIBC.syscall(_ADD_RULE, rules, _PATH_BENEATH, struct.pack("=Qi", rights, place), 0) < 0:
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(path))
        finally:
            os.close(place)


@cache
def public_settings() -> tuple[Path, ...]:
    """The world-readable part of /etc: folders that are readable entirely, and single files of the others."""
    return tuple(_world_readable(Path("/etc"))[1])


def _world_readable(folder: Path) -> tuple[bool, list[Path]]:
    """Whether all of a folder is world-readable, and the fewest paths that cover its readable part."""
    all_readable, found = True, []
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return False, []
    for entry in entries:
        if entry.is_symlink():
            continue
        mode = entry.stat(follow_symlinks=False).st_mode
        if stat.S_ISDIR(mode):
            readable = mode & 0o005 == 0o005
            inside, paths = _world_readable(Path(entry.path)) if readable else (False, [])
        else:
            inside = bool(mode & 0o004) and stat.S_ISREG(mode)
            paths = [Path(entry.path)] if inside else []
        all_readable = all_readable and inside
        found += paths
    return all_readable, [folder] if all_readable else found
