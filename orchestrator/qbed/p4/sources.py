# SPDX-License-Identifier: Apache-2.0
"""Programs in P4: a scheme's own, `schemes/NAME/p4/NAME.json`, or a user's. A program is BMv2's JSON, as p4c makes it,
with its P4Info beside it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from qbed.base.files import MIB, read_text
from qbed.base.locations import scheme_folder, schemes_folders
from qbed.p4.compiler import compiled_files
from qbed.p4.p4info import InfoError, P4Info, Widths, p4info
from qbed.p4.source_lock import StaleError, ensure_current

DROP_PORT = 511
"""v1model's ports have 9 bits, and the last number means: drop."""
_LARGEST = 16 * MIB


class ProgramError(ValueError):
    """A program that cannot be used; the message says why."""


@dataclass(frozen=True)
class Program:
    """A compiled program: its JSON on one line, and of its tables the names of keys and of each action's parameters."""

    name: str
    text: str = field(repr=False)
    tables: Mapping[str, Table] = field(repr=False, hash=False)
    info: P4Info = field(repr=False, hash=False)
    scheme: str | None = None
    """The scheme of the program; None for a user-supplied program."""


@dataclass(frozen=True)
class Table:
    """A table by its names."""

    keys: tuple[str, ...]
    actions: Mapping[str, tuple[str, ...]]


def with_programs() -> list[str]:
    """The schemes that have a program."""
    folders = (path.parent for place in schemes_folders() for path in place.glob("*/p4/*.json"))
    return sorted(folder.parent.name for folder in folders if (folder / f"{folder.parent.name}.json").exists())


def scheme_program(name: str) -> Program:
    """A scheme's own program; ProgramError."""
    return load(scheme_folder(name) / "p4" / f"{name}.p4", name)


def load(source: Path, scheme: str | None = None) -> Program:
    """The program whose source this is, of the JSON and the P4Info beside it; ProgramError.

    If the source changed since, it is compiled or refused.
    """
    try:
        ensure_current(source)
    except StaleError as error:
        raise ProgramError(str(error)) from None
    times = [path.stat().st_mtime_ns if path.exists() else None for path in compiled_files(source)]
    return _load(source, scheme, tuple(times))


@cache
def _load(source: Path, scheme: str | None, _times_ns: tuple[int | None, ...]) -> Program:
    path, info = source.with_suffix(".json"), source.with_suffix(".p4info.txtpb")
    text = _read(path, f"the program's JSON: `p4c-bm2-ss -o {path.name} --p4runtime-files {info.name} {source.name}`")
    try:
        form = json.loads(text)
        major = form["__meta__"]["version"][0]
        tables, widths = _tables(form), _widths(form)
    except (ValueError, LookupError, TypeError, RecursionError):
        raise ProgramError(f"{path} is not BMv2's JSON") from None
    if major != 2:
        raise ProgramError(f"{path} has version {major} of BMv2's JSON; expected 2")
    found = _info(info, path, tables).with_widths(widths)
    _open_initial_entries(form, found)
    return Program(source.stem, json.dumps(form, separators=(",", ":")), tables, found, scheme)


def _read(path: Path, what: str) -> str:
    try:
        return read_text(path, _LARGEST)
    except FileNotFoundError:
        raise ProgramError(f"there is no {path}, {what}") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise ProgramError(f"{path}: cannot read it: {reason}") from None


def _tables(form: Any) -> dict[str, Table]:
    parameters = {
        action["id"]: tuple(parameter["name"] for parameter in action["runtime_data"]) for action in form["actions"]
    }
    return {
        table["name"]: Table(
            tuple(str(key.get("name", ".".join(map(str, key["target"])))) for key in table["key"]),
            {
                name: parameters[action]
                for name, action in zip(table["actions"], table["action_ids"], strict=True)
            },
        )
        for pipeline in form["pipelines"]
        for table in pipeline["tables"]
    }  # fmt: skip


def _widths(form: Any) -> Widths:
    types = {
        header_type["name"]: {name: width for name, width, *_ in header_type["fields"]}
        for header_type in form["header_types"]
    }
    fields = {
        (header["name"], field): width
        for header in form["headers"]
        for field, width in types[header["header_type"]].items()
    }
    keys = {
        (table["name"], key["name"]): fields[tuple(key["target"])]
        for pipeline in form["pipelines"]
        for table in pipeline["tables"]
        for key in table["key"]
        if isinstance(key["target"], list) and tuple(key["target"]) in fields and "name" in key
    }
    params = {
        (action["name"], parameter["name"]): parameter["bitwidth"]
        for action in form["actions"]
        for parameter in action["runtime_data"]
    }
    return Widths(
        keys, params, {register["name"]: register["bitwidth"] for register in form.get("register_arrays", [])}
    )


def _open_initial_entries(form: Any, info: P4Info) -> None:
    """Mark tables with initial entries only: BMv2's JSON has constant ones alike, and their number as the size."""
    initial = {table.name: table.size for table in info.tables if table.initial_entries}
    for pipeline in form["pipelines"]:
        for table in pipeline["tables"]:
            if table["name"] in initial:
                table |= {"constant_entries": False, "max_size": max(table.get("max_size", 0), initial[table["name"]])}


def _info(info: Path, path: Path, tables: Mapping[str, Table]) -> P4Info:
    """Those tables that are in P4Info are all in the JSON: which has tables of the compiler's own besides."""
    try:
        found = p4info(_read(info, f"the P4Info that p4c writes with {path.name}"))
    except InfoError as error:
        raise ProgramError(f"{info}: {error}") from None
    if missing := [table.name for table in found.tables if table.name not in tables]:
        raise ProgramError(
            f"{info.name} has a table `{missing[0]}` that {path} has not: expected what was made with it"
        )
    return found
