# SPDX-License-Identifier: Apache-2.0
"""Programs in P4: a scheme's own, `schemes/NAME/p4/NAME.json`, or a user's, and what their tables are told.

A program is BMv2's JSON, as p4c makes it, with its P4Info beside it. `port_settings` says a scheme's parameters as its
program takes them: entries of its tables by egress port (docs/p4.md, schemes/NAME/p4/README.md).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from qbed.files import MIB, read_text
from qbed.language.units import Amount
from qbed.places import schemes_folder

DROP_PORT = 511
"""v1model's ports have 9 bits, and the last number means: drop."""
_LARGEST = 16 * MIB
_P4INFO_TABLE = re.compile(r'^tables \{\s*preamble \{\s*id: \d+\s*name: "([^"]+)"', re.MULTILINE)
_NS_PER_SECOND = 1_000_000_000
_LARGEST_STAMP_BYTES = 1 << 31
_U32 = (1 << 32) - 1
_NEVER_MARKED = (1 << 19) - 1  # v1model's enq_qdepth has 19 bits
_MOST_REGISTERS = 1 << 16


class ProgramError(ValueError):
    """A program that cannot be used; the message says why."""


class SettingError(ValueError):
    """A parameter that the scheme's program cannot take."""

    def __init__(self, parameter: str, text: str) -> None:
        super().__init__(text)
        self.parameter = parameter


@dataclass(frozen=True)
class Program:
    """A compiled program: its JSON on one line, and of its tables the names of keys and of each action's parameters."""

    name: str
    text: str = field(repr=False)
    tables: Mapping[str, Table] = field(repr=False, hash=False)
    scheme: str | None = None
    """Whose program it is; None: a user's own."""


@dataclass(frozen=True)
class Table:
    """A table by its names."""

    keys: tuple[str, ...]
    actions: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Entry:
    """What a table is told: with a key an entry, without one its default action."""

    table: str
    action: str
    arguments: Mapping[str, int | str]
    key: Mapping[str, int | str] | None = None


@dataclass(frozen=True)
class Port:
    """A port of a switch: its number, and the link's end behind its queue."""

    number: int
    rate_bps: int
    frame_bytes: int
    """Of the largest frame, with its Ethernet header."""


def with_programs() -> list[str]:
    """The schemes that have a program."""
    folders = (path.parent for path in schemes_folder().glob("*/p4/*.json"))
    return sorted(folder.parent.name for folder in folders if (folder / f"{folder.parent.name}.json").exists())


@cache
def scheme_program(name: str) -> Program:
    """A scheme's own program; ProgramError."""
    return load(schemes_folder() / name / "p4" / f"{name}.p4", name)


def load(source: Path, scheme: str | None = None) -> Program:
    """The program whose source this is, of the JSON and the P4Info beside it; ProgramError."""
    path, info = source.with_suffix(".json"), source.with_suffix(".p4info.txtpb")
    text = _read(path, f"the program's JSON: `p4c-bm2-ss -o {path.name} --p4runtime-files {info.name} {source.name}`")
    try:
        form = json.loads(text)
        major = form["__meta__"]["version"][0]
        tables = _tables(form)
    except (ValueError, LookupError, TypeError, RecursionError):
        raise ProgramError(f"{path} is not BMv2's JSON") from None
    if major != 2:
        raise ProgramError(f"{path} has version {major} of BMv2's JSON; expected 2")
    _check_info(info, path, tables)
    return Program(source.stem, json.dumps(form, separators=(",", ":")), tables, scheme)


def _read(path: Path, what: str) -> str:
    try:
        return read_text(path, _LARGEST)
    except FileNotFoundError:
        raise ProgramError(f"there is no {path}, {what}") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise ProgramError(f"{path}: cannot read it: {reason}") from None


def _tables(form: Any) -> dict[str, Table]:
    parameters = {action["id"]: tuple(one["name"] for one in action["runtime_data"]) for action in form["actions"]}
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


def _check_info(info: Path, path: Path, tables: Mapping[str, Table]) -> None:
    """Those that are in P4Info are all in the JSON: which has tables of the compiler's own besides."""
    said = _P4INFO_TABLE.findall(_read(info, f"the P4Info that p4c writes with {path.name}"))
    if missing := [name for name in said if name not in tables]:
        raise ProgramError(
            f"{info.name} has a table `{missing[0]}` that {path} has not: expected what was made with it"
        )


# --- what a scheme's parameters are to its program ---


def port_settings(scheme: str, port: Port, values: Mapping[str, Any]) -> Iterator[Entry]:
    """What a scheme's program is told of a port with these parameters, in base units. SettingError."""
    if scheme in _OF_PORT:
        table, action, arguments = _OF_PORT[scheme](port, values)
        yield Entry(table, action, arguments, {"port": port.number})


def switch_settings(scheme: str, ports: Iterable[Mapping[str, Any]]) -> Iterator[Entry]:
    """What a scheme's program is told of the switch as a whole, of the parameters of all its ports. SettingError."""
    if scheme == "rpm":
        first: Entry | None = None
        for values in ports:
            entry = _registers(values)
            if first is not None and entry != first:
                raise SettingError("registers", "in P4 a switch has the same registers for all its ports")
            first = entry
        if first is not None:
            yield first


Setting = tuple[str, str, dict[str, int | str]]


def _packets(values: Mapping[str, Any], name: str, most: int) -> int:
    amount: Amount = values[name]
    if amount.unit != "packets":
        text = f"in P4 a queue's length is a number of packets: expected such as `20 packets`, got `{amount}`"
        raise SettingError(name, text)
    return min(amount.value, most)


def _us(values: Mapping[str, Any], name: str) -> int:
    return int(values[name]) // 1000


def _ecn(_: Port, values: Mapping[str, Any]) -> Setting:
    return "marking", "mark_above", {"packets": _packets(values, "threshold", _NEVER_MARKED)}


def _codel(_: Port, values: Mapping[str, Any]) -> Setting:
    return "codel", "law", {**_law(values), "ecn": int(values["ecn"])}


def _rpm(_: Port, values: Mapping[str, Any]) -> Setting:
    return "codel", "law", _law(values)


def _law(values: Mapping[str, Any]) -> dict[str, int | str]:
    return {"target_us": _us(values, "target"), "interval_us": _us(values, "interval")}


def _registers(values: Mapping[str, Any]) -> Entry:
    if values["registers"] > _MOST_REGISTERS:
        raise SettingError("registers", f"in P4 there are at most {_MOST_REGISTERS}, got `{values['registers']}`")
    timeout = min(_us(values, "reverse_timeout"), (1 << 48) - 1)
    mask, per_port = values["registers"] - 1, int(values["per_port"])
    return Entry("rpm", "registers", {"mask": mask, "reverse_timeout_us": timeout, "per_port": per_port})


def _stamp(port: Port, values: Mapping[str, Any]) -> Setting:
    """As schemes/stamp/kernel/stamp_algorithm.h (stamp_vars_set) has them."""
    for name, only in (("exponent", 1), ("fine_at_full", False)):
        if values[name] != only:
            raise SettingError(name, "in P4 all bins are equal: expected it left out")
    buffer: Amount = values["buffer"]
    packets = buffer.value if buffer.unit == "packets" else max(1, buffer.value // port.frame_bytes)
    size = buffer.in_bytes(port.frame_bytes)
    rate = values["rate"] or port.rate_bps // 1_000_000 * 1_000_000  # as the device says it
    time = 8 * min(size, _LARGEST_STAMP_BYTES) * _NS_PER_SECOND // rate if rate else 0
    full = {"packets": min(packets, _U32), "bytes": min(size, _U32), "ns": time if time <= _U32 else 0}
    flags = ("at_enqueue", "count_own", "middle", "reverse")
    return "stamp", "settings", {
        "threshold": _packets(values, "threshold", _U32),
        "frame_bytes": port.frame_bytes,
        "wire_time": 65536 * 8 * _NS_PER_SECOND // rate if rate else 0,
        **{name: int(values[name]) for name in flags},
        **{name: value for unit, most in full.items() for name, value in _scale(unit, most).items()},
    }  # fmt: skip


def _scale(unit: str, full: int) -> dict[str, int]:
    """A full buffer, and its inverse, by which the program multiplies instead of dividing."""
    return {f"full_{unit}": full, f"inverse_{unit}": min((1 << 64) // full, (1 << 64) - 1) if full else 0}


_OF_PORT: dict[str, Callable[[Port, Mapping[str, Any]], Setting]] = {
    "ecn": _ecn,
    "codel": _codel,
    "rpm": _rpm,
    "stamp": _stamp,
}
RUNNABLE = frozenset({"droptail", *_OF_PORT})
"""Whose programs a lab can run. Those of abq and qcn need a port without a link, by which packets come again."""
