# SPDX-License-Identifier: Apache-2.0
"""The campaign.json of a run folder, which identifies its run.

This module is separate from the tables because importing Parquet takes 0.2 s.
"""

from __future__ import annotations

import errno
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from qbed.base.crash_report import describe_os_error
from qbed.base.errors import QbedError
from qbed.base.files import read_bytes
from qbed.base.json_files import LARGEST, Row, SealError, unsealed
from qbed.config.reach import ReachError, beneath

IDENTITY = "campaign.json"
CELL_FORM = 4
"""Version of the format of a cell's tables and record."""
COLUMN = re.compile(r"[a-z][a-z0-9_]*")
"""A valid name of an axis' column."""


class StoreError(QbedError):
    """The run folder cannot be used for this run."""

    exit_status = 2


@dataclass(frozen=True)
class RanOn:
    """The substrate and dilation of a run."""

    name: str
    dilation: int


def read_identity(run: Path) -> Row:
    """Read and validate the campaign.json of a run folder. StoreError if it is invalid."""
    value = read_any_identity(run)
    problem = _find_problem(value)
    if problem:
        raise StoreError(f"{run / IDENTITY} is damaged: {problem}")
    return value


def read_any_identity(run: Path) -> Row:
    """Read a campaign.json without validation of its fields, to compare or discard its run."""
    _check_entries(run)
    try:
        return unsealed(read_bytes(run / IDENTITY, LARGEST))
    except OSError as error:
        if error.errno in (errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM):  # says nothing about the folder
            raise StoreError(describe_os_error(error)) from error
        cause = f" ({error.strerror})" if error.errno in (errno.EACCES, errno.EPERM) else ""
        raise StoreError(f"{run} is no run folder: it has no readable {IDENTITY}{cause}") from error
    except SealError as error:
        raise StoreError(f"{run / IDENTITY} is damaged: its content does not match its checksum") from error


def _find_problem(value: Row) -> str | None:
    """The first invalid part of a campaign.json in words. Claims and figures are checked where they are used."""
    for name in ("name", "question", "lab_file", "lab_sha256"):
        if not isinstance(value.get(name, ""), str):
            return f"its `{name}` is no text"
    if not isinstance(value.get("profile"), str | None) or not isinstance(value.get("toolchain", {}), dict):
        return "its `profile` is no text, or its `toolchain` no object"
    matrix = value.get("matrix")
    if not isinstance(matrix, dict) or not all(map(_is_axis, _list(matrix.get("axes")))):
        return "its `matrix` has no axes with names and values"
    names = [axis["name"] for axis in matrix["axes"]]
    if len({name.lower() for name in names}) < len(names):
        return "two axes have the same name"
    for view in _list(value.get("views", [])):
        if not (isinstance(view, dict) and isinstance(view.get("name"), str) and isinstance(view.get("sql"), str)):
            return "a view has no name and SQL"
    return None if isinstance(value.get("figures", []), list) else "its `figures` are no list"


def _is_axis(axis: object) -> bool:
    values = axis.get("values") if isinstance(axis, dict) else None
    return (
        isinstance(axis, dict)
        and isinstance(axis.get("name"), str)
        and COLUMN.fullmatch(axis["name"]) is not None
        and isinstance(values, list)
        and bool(values)
        and all(isinstance(value, str | int | float) for value in values)
    )


def _list(value: object) -> list[object]:
    """`value` if it is a list, else a list that fails every check."""
    return value if isinstance(value, list) else [None]


def _check_entries(run: Path) -> None:
    """StoreError if a symlink leads out of a possibly untrusted run folder."""
    for folder in (run, run / "cells", run / "figures", run / "figures" / "paper"):
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_symlink():
                    _check_symlink(run, entry.path)


def _check_symlink(run: Path, link: str) -> None:
    try:
        beneath(run, os.path.relpath(link, run))
    except ReachError as error:
        raise StoreError(f"{run} was changed after its run: {error}") from None


def ran_on(run: Path) -> RanOn:
    """The substrate and dilation of a run. StoreError if its campaign.json does not name them."""
    try:
        entry = read_any_identity(run)["substrate"]
        return RanOn(str(entry["name"]), int(entry["dilation"]))
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(f"{run / IDENTITY} is damaged: its substrate has no name and dilation") from error
