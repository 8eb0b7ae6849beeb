# SPDX-License-Identifier: Apache-2.0
"""Detects that the sources changed after the toolchain was built, and builds it again.

`make setup` leaves a record of what it built: the hash, size and time of each source, and the time of each folder in
which another file would be one (`tools/sources --record`), and a checksum of these lines. Sizes and times are compared,
which takes a millisecond; only if one differs, or the record is damaged, are the files read. A toolchain that was not
built here (`tools/setup --toolchain`, a wheel, `$QBED_TOOLCHAIN`) has no record and nothing to compare.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from qbed.base.files import read_bytes
from qbed.base.json_files import LARGEST
from qbed.base.locations import checkout, setup_folder
from qbed.substrates.build_lock import build_lock
from qbed.substrates.toolchain import Toolchain, ToolchainError, build_for_repository

BUILDING = "building"
"""The lock that serializes builds for a virtual environment, in its folder of the set-up."""
RECORD = "sources"
"""The record of the set-up's toolchain; those of other kernels are `sources-KERNEL`."""
BUILT_ON_DEMAND = ("p4switch",)
_MAX_NAMES = 3
Record = dict[str, tuple[str, str, str]]
"""By path in the checkout: hash, size, time."""


def changed_sources(record: str = RECORD) -> list[str]:
    """The sources that changed after the toolchain was built, by its record."""
    root, place = checkout(), setup_folder() / record
    if root is None or os.environ.get("QBED_TOOLCHAIN") or not place.exists():
        return []
    text = _read_record(place)
    before = _parse(text)
    if _is_intact(text) and all(_is_unchanged(root / path, size, time) for path, (_, size, time) in before.items()):
        return []
    now_text = _current_record(root, _series(text))
    now = _parse(now_text)
    differing = sorted(path for path in before.keys() | now.keys() if _hash(before, path) != _hash(now, path))
    if not differing:
        with suppress(OSError):  # the same content at another time: the next look is quick again
            beside = place.with_name(f"{record}.{os.getpid()}")
            beside.write_text(now_text)
            beside.replace(place)
    return differing


def build_changed(report: Callable[[str], None]) -> None:
    """Build what has changed since `make setup`, and the modules of the user's repository. Raise `ToolchainError` if
    the build fails.
    """
    _build_checkout(report)
    build_for_repository(report)


def _build_checkout(report: Callable[[str], None]) -> None:
    changed = changed_sources()
    if not changed:
        return
    root, place = checkout(), setup_folder()
    assert root is not None
    why = "it is another user's"
    if os.access(place, os.W_OK):
        with build_lock(place / BUILDING, f"building {shorten_names(changed)} in {root}", report):
            names = changed_sources()
            if not names:
                return  # another process has just built it
            report(f"{shorten_names(names)} changed after the set-up: building again")
            if run_setup(root, _series(_read_record(place / RECORD)), "--build"):
                return
            why = "see above"
    raise ToolchainError(
        f"{shorten_names(changed_sources())} changed after the set-up, and what runs was built before; building it"
        f" again failed ({why}): run `make setup`, or undo the change"
    )


def run_setup(root: Path, series: str, *options: str) -> bool:
    """Run a checkout's set-up for a kernel series, without the user's repository. Return whether it succeeds; it prints
    its errors.
    """
    environment = os.environ | {"QBED_KERNEL": series, "QBED_REPOSITORY": ""}
    command = [str(root / "tools" / "setup"), *options]
    done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False)
    return done.returncode == 0


def build_program(toolchain: Toolchain, name: str, report: Callable[[str], None]) -> bool:
    """Build a program that only few labs run (tools/programs). Return False if there is no such program or its build
    fails; the build prints its errors.
    """
    root = checkout()
    if root is None or name not in BUILT_ON_DEMAND:
        return False
    report(f"building {name}, which only labs with a controller run: a minute or two, once")
    command = [str(root / "tools" / "programs"), str(toolchain.folder)]
    return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False).returncode == 0


def shorten_names(names: list[str]) -> str:
    """The first names, and the number of the others."""
    more = len(names) - _MAX_NAMES
    return ", ".join(names[:_MAX_NAMES]) + (f" and {more} more" if more > 0 else "")


def _read_record(path: Path) -> str:
    """The record of sources, damaged or not."""
    try:
        return read_bytes(path, LARGEST).decode(errors="replace")
    except OSError as error:
        raise ToolchainError(f"{path} cannot be read: {error.strerror}; run `make setup`") from error


def _is_intact(text: str) -> bool:
    """Whether a record matches its checksum. If not, all sources are read and compared with its readable rows."""
    lines, _, last = text.removesuffix("\n").rpartition("\n")
    digest = hashlib.sha256((lines + "\n").encode()).hexdigest()
    return last == f"# sha256 {digest}"


def _parse(text: str) -> Record:
    rows = (line.split(" ", 3) for line in text.splitlines() if not line.startswith("#"))
    return {row[3]: (row[0], row[1], row[2]) for row in rows if len(row) == 4}


def _series(text: str) -> str:
    return text.partition("\n")[0].removeprefix("# series ")


def _hash(record: Record, path: str) -> str | None:
    """The recorded hash of a file; None for a folder or an absent file."""
    found = record.get(path, ("-",))[0]
    return None if found == "-" else found


def _is_unchanged(path: Path, size: str, time: str) -> bool:
    try:
        status = path.stat()
    except OSError:
        return False
    seconds, nanoseconds = divmod(status.st_mtime_ns, 10**9)
    return time == f"{seconds}.{nanoseconds:09d}" and size in ("-", str(status.st_size))


def _current_record(root: Path, series: str) -> str:
    command = [str(root / "tools" / "sources"), "--record"]
    environment = os.environ | {"QBED_KERNEL": series}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        detail = getattr(error, "stderr", None) or str(error)
        raise ToolchainError(f"{command[0]} does not list the sources: {detail.strip()}") from error
    return done.stdout
