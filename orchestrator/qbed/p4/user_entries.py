# SPDX-License-Identifier: Apache-2.0
"""User-supplied state of a P4 program: table entries, registers, clone sessions and multicast groups. They are checked
against the program's P4Info when the lab is read; values in all notations are converted to numbers.
"""

import ipaddress
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from qbed.base.errors import nearest
from qbed.config.layers import Layer
from qbed.config.problems import Problems
from qbed.config.source import FieldPath
from qbed.lab.settings import EntrySettings
from qbed.p4.entry import Entry, Masked, Match, Prefix, Range
from qbed.p4.p4info import Action, MatchField, P4Info, Register, Table

_STEPS = 20  # Problems.spend, for one entry
_MAC = re.compile(r"[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}")
_NUMBER = re.compile(r"[0-9]{1,80}|0x[0-9A-Fa-f]{1,640}")
_MAX_GROUP, _MAX_SESSION = 65535, 32767


@dataclass
class UserEntries:
    """The user-supplied state of one switch's program."""

    entries: list[Entry] = field(default_factory=list)
    registers: list[tuple[str, int, int]] = field(default_factory=list)
    """Name, index, value."""
    sessions: dict[int, tuple[list[int], int]] = field(default_factory=dict)
    """Ports, and the length in bytes to which clones are truncated; 0: not truncated."""
    groups: dict[int, list[int]] = field(default_factory=dict)


class ValueReadError(ValueError):
    """A value that is invalid for its field."""


class EntryReader:
    """Reads a switch's user-supplied entries. `ports`: port numbers by the name of the neighbour; `taken`: tables that
    the plan fills.
    """

    def __init__(self, info: P4Info, ports: Mapping[str, int], numbers: Iterable[int], problems: Problems) -> None:
        self.info, self.ports, self.problems = info, ports, problems
        self.numbers = set(numbers)

    def read_user_entries(self, given: Layer, taken: Iterable[str]) -> UserEntries:
        """Return all entries; errors are added to the problems."""
        found = UserEntries()
        readers: dict[str, Callable[[Any, FieldPath, UserEntries], None]] = {
            "tables": lambda value, path, user_entries: self._tables(value, path, user_entries, frozenset(taken)),
            "initial": self._registers,
            "clones": self._clones,
            "groups": self._groups,
        }
        for name, read in readers.items():
            if name in given:
                read(*given[name], found)
        return found

    # --- tables ------------------------------------------------------------------------------------------------

    def _tables(
        self,
        given: Mapping[str, list[EntrySettings]],
        path: FieldPath,
        user_entries: UserEntries,
        taken: frozenset[str],
    ) -> None:
        known = {name: table for table in self.info.tables for name in (table.alias, table.name)}
        for name, entries in given.items():
            field_path = (*path, name)
            table = known.get(name)
            if table is None:
                self.problems.error(field_path, f"the program has no table `{name}`{nearest(name, known)}", at_key=True)
            elif table.name in taken:
                self.problems.error(field_path, "the plan fills it with the routes of the lab", at_key=True)
            elif table.profile:
                text = "entries of a table with an action profile come by P4Runtime (docs/p4.md)"
                self.problems.error(field_path, text, at_key=True)
            else:
                self._table(table, entries, field_path, user_entries)

    def _table(self, table: Table, given: list[EntrySettings], path: FieldPath, user_entries: UserEntries) -> None:
        self.problems.spend(path, _STEPS * len(given))
        seen: dict[Any, int] = {}
        with_match = sum(entry.match is not None for entry in given)
        if with_match > table.size:
            text = f"{with_match} entries; the table has room for {table.size}"
            self.problems.error(path, text, at_key=True)
            return
        for number, settings in enumerate(given):
            field_path = (*path, number)
            entry = self._entry(table, settings, field_path, len(given) - number)
            if entry is None:
                continue
            key = None if entry.key is None else (tuple(sorted(entry.key.items())), entry.priority)
            if key in seen:
                what = "a second default action" if key is None else "the same match"
                line = self.problems.source.where((*path, seen[key]))
                self.problems.error(field_path, f"{what} as in entry {seen[key]} ({line})")
                continue
            seen[key] = number
            user_entries.entries.append(entry)

    def _entry(self, table: Table, given: EntrySettings, path: FieldPath, rank: int) -> Entry | None:
        if table.constant and given.match is not None:
            self.problems.error(path, f"the entries of `{table.alias}` are the program's own (`const`)")
            return None
        action = self._action(table, given, path)
        if action is None:
            return None
        arguments = self._values(given.params, action.params, (*path, "params"), f"the action `{action.alias}`")
        if given.match is None:
            if table.constant_default:
                self.problems.error(path, f"the default action of `{table.alias}` is constant: expected a `match`")
            return None if arguments is None else Entry(table.name, action.name, arguments)
        key = self._key(table, given.match, (*path, "match"))
        if not table.has_priorities and given.priority is not None:
            self.problems.error((*path, "priority"), f"no two entries of `{table.alias}` fit the same packet: not used")
            return None
        if key is None or arguments is None:
            return None
        priority = (given.priority or rank) if table.has_priorities else 0
        return Entry(table.name, action.name, arguments, key, priority)

    def _action(self, table: Table, given: EntrySettings, path: FieldPath) -> Action | None:
        known = {name: action for action in table.actions for name in (action.alias, action.name)}
        action = known.get(given.action)
        if action is None:
            text = f"the table `{table.alias}` has no action `{given.action}`{nearest(given.action, known)}"
            self.problems.error((*path, "action"), text)
            return None
        other = "TABLE_ONLY" if given.match is None else "DEFAULT_ONLY"
        if action.scope == other:
            what = "never the default" if given.match is None else "the default only"
            self.problems.error((*path, "action"), f"`{action.alias}` is {what} of `{table.alias}`")
            return None
        return action

    def _values(
        self, given: Mapping[str, int | str], widths: Mapping[str, int], path: FieldPath, where: str
    ) -> dict[str, int] | None:
        """Return the values if their names are exactly those expected."""
        before = len(self.problems.errors)
        for name in given:
            if name not in widths:
                self.problems.error((*path, name), f"{where} has no `{name}`{nearest(name, widths)}", at_key=True)
        if missing := [name for name in widths if name not in given]:
            self.problems.error(path, f"{where} has `{missing[0]}`, too: expected a value of {widths[missing[0]]} bits")
        found = {name: self._read((*path, name), given[name], widths[name]) for name in widths if name in given}
        return found if len(self.problems.errors) == before else None  # type: ignore[return-value]

    def _read(self, path: FieldPath, value: int | str, width: int) -> int | None:
        try:
            return self.number(value, width)
        except ValueReadError as error:
            self.problems.error(path, str(error))
            return None

    def _key(self, table: Table, given: Mapping[str, int | str], path: FieldPath) -> dict[str, Match] | None:
        before = len(self.problems.errors)
        found: dict[str, Match] = {}
        for name in given:
            if name not in table.matches:
                text = f"the key of `{table.alias}` has no `{name}`{nearest(name, table.matches)}"
                self.problems.error((*path, name), text, at_key=True)
        for name, match in table.matches.items():
            if given.get(name, "*") == "*":
                if match.kind == "EXACT":
                    self.problems.error(path, f"`{name}` is of the kind exact: expected a value of {match.width} bits")
                continue
            try:
                found[name] = self._matched(match, given[name])
            except ValueReadError as error:
                self.problems.error((*path, name), str(error))
        return found if len(self.problems.errors) == before else None

    def _matched(self, match: MatchField, value: int | str) -> Match:
        """Parse a key field's value. ValueReadError."""
        width, ones = match.width, (1 << match.width) - 1
        if match.kind in ("EXACT", "OPTIONAL"):
            return self.number(value, width)
        text = str(value)
        if match.kind == "RANGE":
            low, _, high = text.partition("..")
            first, last = self.number(low, width), self.number(high or low, width)
            if first > last:
                raise ValueReadError(f"`{text}` ends before it begins")
            return Range(first, last)
        mask = ones
        if match.kind == "TERNARY" and "&&&" in text:
            text, _, given = text.partition("&&&")
            mask = self.number(given.strip(), width)
        elif match.kind in ("TERNARY", "LPM") and "/" in text:
            text, _, given = text.partition("/")
            length = int(given) if given.isdigit() and len(given) < 5 else width + 1
            if length > width:
                raise ValueReadError(f"expected a prefix of 0 to {width} bits, got `{value}`")
            mask = ones ^ (ones >> length)
        number = self.number(text.strip(), width)
        if number & ~mask:
            raise ValueReadError(f"`{value}` has bits that its mask or prefix leaves out")
        if match.kind == "LPM":
            return Prefix(number, mask.bit_count())
        return Masked(number, mask)

    def number(self, value: int | str, width: int) -> int:
        """Parse a number, an address, or `>h1`, the port that leads to h1. ValueReadError."""
        if isinstance(value, str) and value.startswith(">"):
            if value[1:] not in self.ports:
                raise ValueReadError(f"no link leads to `{value[1:]}`{nearest(value[1:], self.ports)}")
            value = self.ports[value[1:]]
        number, size = _parse(value)
        if size is not None and size != width:
            raise ValueReadError(f"`{value}` has {size} bits; expected {width}")
        if not 0 <= number < 1 << width:
            raise ValueReadError(f"`{value}` does not fit into {width} bits")
        return number

    # --- the rest ----------------------------------------------------------------------------------------------

    def _registers(
        self, given: Mapping[str, Mapping[str, int | str]], path: FieldPath, user_entries: UserEntries
    ) -> None:
        known = {name: register for register in self.info.registers for name in (register.alias, register.name)}
        for name, values in given.items():
            field_path = (*path, name)
            register = known.get(name)
            if register is None:
                self.problems.error(
                    field_path, f"the program has no register `{name}`{nearest(name, known)}", at_key=True
                )
            elif not register.width:
                self.problems.error(field_path, "its elements are not numbers", at_key=True)
            else:
                self._register(register, values, field_path, user_entries)

    def _register(
        self, register: Register, given: Mapping[str, int | str], path: FieldPath, user_entries: UserEntries
    ) -> None:
        seen: set[int] = set()
        for key, value in given.items():
            field_path = (*path, key)
            first, _, last = key.partition("..")
            low, high = (int(part) if part.isdigit() and len(part) < 10 else -1 for part in (first, last or first))
            if not 0 <= low <= high < register.size:
                text = f"expected an index up to {register.size - 1}, or some (`0..{register.size - 1}`), got `{key}`"
                self.problems.error(field_path, text, at_key=True)
                continue
            self.problems.spend(field_path, _STEPS * (high - low + 1))
            found = self._read(field_path, value, register.width)
            indices = range(low, high + 1)
            if not seen.isdisjoint(indices):
                self.problems.error(field_path, "an element that was given already", at_key=True)
            seen.update(indices)
            if found is not None:
                user_entries.registers.extend((register.name, index, found) for index in indices)

    def _clones(self, given: Mapping[int, Any], path: FieldPath, user_entries: UserEntries) -> None:
        for number, clone in given.items():
            field_path = (*path, str(number))
            self._bounded(number, _MAX_SESSION, field_path)
            user_entries.sessions[number] = (self._ports(clone.ports, (*field_path, "ports")), clone.truncate or 0)

    def _groups(self, given: Mapping[int, list[int | str]], path: FieldPath, user_entries: UserEntries) -> None:
        for number, ports in given.items():
            self._bounded(number, _MAX_GROUP, (*path, str(number)))
            user_entries.groups[number] = self._ports(ports, (*path, str(number)))

    def _bounded(self, number: int, maximum: int, path: FieldPath) -> None:
        if not 1 <= number <= maximum:
            self.problems.error(path, f"expected a number from 1 to {maximum}", at_key=True)

    def _ports(self, given: list[int | str], path: FieldPath) -> list[int]:
        found: list[int] = []
        for position, value in enumerate(given):
            try:
                port = self.number(value, 9)
            except ValueReadError as error:
                self.problems.error((*path, position), str(error))
                continue
            if port not in self.numbers:
                self.problems.error((*path, position), f"the switch has no port {port}")
            if port in found:
                self.problems.error((*path, position), f"port {port} is given twice")
            found.append(port)
        return found


def _parse(value: int | str) -> tuple[int, int | None]:
    """Parse a value. Return the number and the width implied by its notation (an address), if any. ValueReadError."""
    if isinstance(value, int):
        return value, None
    if _NUMBER.fullmatch(value):
        return int(value, 0) if value.startswith("0x") else int(value), None
    if _MAC.fullmatch(value):
        return int(value.replace(":", ""), 16), 48
    try:
        address = ipaddress.ip_address(value)
    except ValueError:
        text = "expected a number, `0x1f`, an address (`10.0.0.1`, `fd00::1`, `02:00:00:00:00:01`) or `>h1`"
        raise ValueReadError(f"{text}, got `{value}`") from None
    return int(address), address.max_prefixlen
