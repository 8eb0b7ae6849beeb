# SPDX-License-Identifier: Apache-2.0
"""What a run folder's results are of: its campaign.json. Apart from its tables, whose Parquet takes 0.2 s to import."""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qbed.errors import QbedError
from qbed.files import read_bytes
from qbed.json_files import LARGEST, SEAL, unsealed
from qbed.language.reach import ReachError, beneath
from qbed.substrates import DEFAULT

IDENTITY = "campaign.json"
_WITH_CHECKSUMS = "arrow, with checksums"
CELL_FORM = f"{_WITH_CHECKSUMS}, without numbers, 3"
COLUMN = re.compile(r"[a-z][a-z0-9_]*")
"""The name of an axis' column."""


class StoreError(QbedError):
    """The run folder cannot be used for this run."""

    exit_status = 2


@dataclass(frozen=True)
class RanOn:
    """The substrate of a run, and how much slower than the clock it was there."""

    name: str = DEFAULT
    dilation: int = 1


def read_identity(run: Path) -> dict[str, Any]:
    """The campaign.json of a run folder, with the shapes that its readers rely on. StoreError if it is none."""
    value = any_identity(run)
    wrong = _wrong(value)
    if wrong:
        raise StoreError(f"{run / IDENTITY} is damaged: {wrong}")
    return value


def any_identity(run: Path) -> dict[str, Any]:
    """The same of whatever shape, of another version perhaps: to compare it, or to throw the run away."""
    _check_entries(run)
    try:
        content = read_bytes(run / IDENTITY, LARGEST)
    except OSError as error:
        raise StoreError(f"{run} is no run folder: it has no readable {IDENTITY}") from error
    try:
        value = json.loads(content)
        if isinstance(value, dict) and SEAL not in value and not with_checksums(value):
            return value  # of a run from before there were checksums
        return unsealed(content)
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{run / IDENTITY} is damaged: it is not what was written") from error


def with_checksums(identity: dict[str, Any]) -> bool:
    """Whether a run is of a time when there were checksums."""
    return str(identity.get("cells")).startswith(_WITH_CHECKSUMS)


def _wrong(value: dict[str, Any]) -> str | None:
    """What of a campaign.json is not as a run writes it. Claims and figures are checked where they are used."""
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
        and all(isinstance(one, str | int | float) for one in values)
    )


def _list(value: object) -> list[Any]:
    """A list as it is; of anything else one that no check passes."""
    return value if isinstance(value, list) else [None]


def _check_entries(run: Path) -> None:
    """StoreError if something in a run folder that may be a stranger's leads out of it, or is no file or folder.

    Where there are checksums, whoever reads a file finds the latter, and a cell that has it is run again.
    """
    checked = (run / "checksums.json").exists()
    for folder in (run, run / "cells", run / "figures", run / "figures" / "paper"):
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_symlink():
                    _follow(run, entry.path)
                elif not (checked or entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False)):
                    raise StoreError(f"{entry.path} is neither a file nor a folder: no run writes such a thing")


def _follow(run: Path, link: str) -> None:
    try:
        beneath(run, os.path.relpath(link, run))
    except ReachError as error:
        raise StoreError(f"{run} is not as a run leaves it: {error}") from None


def ran_on(run: Path) -> RanOn:
    """Where a run was carried out; one on the default substrate does not say so."""
    said = any_identity(run).get("substrate") if (run / IDENTITY).exists() else None
    if said is None:
        return RanOn()
    try:
        return RanOn(str(said["name"]), int(said["dilation"]))
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(f"{run / IDENTITY} is damaged: its substrate has no name and dilation") from error
