# SPDX-License-Identifier: Apache-2.0
"""P4Info as p4c writes it (`--p4runtime-files`, protobuf's text format): what a program's tables and registers are."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

_TOKEN = re.compile(r'#[^\n]*|"(?:[^"\\]|\\.)*"|[{}:]|[^\s{}:#"]+')
_DEEPEST = 32
_PRIORITIES = frozenset({"TERNARY", "RANGE", "OPTIONAL"})


class InfoError(ValueError):
    """Text that is no P4Info."""


@dataclass(frozen=True)
class MatchField:
    """A field of a table's key."""

    name: str
    width: int
    kind: str
    """EXACT, LPM, TERNARY, RANGE or OPTIONAL."""


@dataclass(frozen=True)
class Action:
    """An action as a table has it."""

    name: str
    alias: str
    params: Mapping[str, int]
    """Their widths."""
    scope: str
    """TABLE_AND_DEFAULT, TABLE_ONLY or DEFAULT_ONLY."""


@dataclass(frozen=True)
class Table:
    """A table."""

    name: str
    alias: str
    matches: Mapping[str, MatchField]
    actions: tuple[Action, ...]
    size: int
    constant: bool
    initial_entries: bool
    """Whether the program has entries that may be changed."""
    constant_default: bool
    profile: bool

    @property
    def has_priorities(self) -> bool:
        """Whether several entries may fit a packet."""
        return any(match.kind in _PRIORITIES for match in self.matches.values())


@dataclass(frozen=True)
class Register:
    """An array of registers; 0 bits: of something else than a number."""

    name: str
    alias: str
    size: int
    width: int
    new_type: bool
    """Whether it is of a `type`: P4Info has its width elsewhere, or that of its translation."""


@dataclass(frozen=True)
class Widths:
    """Widths of a program's values in bits. P4Info has those of what it translates them to."""

    keys: Mapping[tuple[str, str], int]
    """By table and key field."""
    params: Mapping[tuple[str, str], int]
    """By action and parameter."""
    registers: Mapping[str, int]


@dataclass(frozen=True)
class P4Info:
    """The tables and registers of a program."""

    tables: tuple[Table, ...]
    registers: tuple[Register, ...]
    text: str
    """As p4c writes it."""

    def with_widths(self, program: Widths) -> "P4Info":
        """Return the same objects with the program's widths."""

        def match(table: Table, one: MatchField) -> MatchField:
            return replace(one, width=program.keys.get((table.name, one.name), one.width))

        def action(one: Action) -> Action:
            params = {name: program.params.get((one.name, name), width) for name, width in one.params.items()}
            return replace(one, params=params)

        tables = tuple(
            replace(
                table,
                matches={name: match(table, one) for name, one in table.matches.items()},
                actions=tuple(map(action, table.actions)),
            )
            for table in self.tables
        )
        registers = tuple(
            replace(one, width=program.registers.get(one.name, 0)) if one.new_type else one for one in self.registers
        )
        return replace(self, tables=tables, registers=registers)


Message = dict[str, list[Any]]


def p4info(text: str) -> P4Info:
    """The objects of a P4Info; InfoError."""
    try:
        message = _message(iter([token for token in _TOKEN.findall(text) if not token.startswith("#")]), 0, "")
        actions = {_one(one, "preamble")["id"][0]: one for one in message.get("actions", [])}
        tables = tuple(_table(one, actions) for one in message.get("tables", []))
        registers = tuple(_register(one) for one in message.get("registers", []))
    except (LookupError, ValueError, TypeError, AttributeError):
        raise InfoError("it is not P4Info in protobuf's text format") from None
    return P4Info(tables, registers, text)


def _message(tokens: Iterator[str], depth: int, end: str) -> Message:
    """Fields up to the end; each may come several times."""
    found: Message = {}
    if depth > _DEEPEST:
        raise InfoError("nested too deeply")
    for name in tokens:
        if name == end:
            return found
        sign = next(tokens, "")
        if sign == "{":
            found.setdefault(name, []).append(_message(tokens, depth + 1, "}"))
            continue
        value = next(tokens, "")
        if sign != ":" or not value or value in "{}:":
            raise InfoError("no value")
        found.setdefault(name, []).append(value.strip('"'))
    if end:
        raise InfoError("it ends too early")
    return found


def _one(message: Message, name: str) -> Message:
    found: Message = message[name][0]
    return found


def _names(message: Message) -> tuple[str, str]:
    preamble = _one(message, "preamble")
    return preamble["name"][0], preamble.get("alias", preamble["name"])[0]


def _table(message: Message, actions: Mapping[str, Message]) -> Table:
    matches = (
        MatchField(one["name"][0], _bitwidth(one), one["match_type"][0]) for one in message.get("match_fields", [])
    )
    refs = [(actions[ref["id"][0]], ref.get("scope", ["TABLE_AND_DEFAULT"])[0]) for ref in message["action_refs"]]
    return Table(
        *_names(message),
        {match.name: match for match in matches},
        tuple(_action(action, scope) for action, scope in refs),
        int(message.get("size", ["0"])[0]),
        "is_const_table" in message,
        "has_initial_entries" in message and "is_const_table" not in message,
        "const_default_action_id" in message,
        "implementation_id" in message,
    )


def _action(message: Message, scope: str) -> Action:
    params = {one["name"][0]: _bitwidth(one) for one in message.get("params", [])}
    return Action(*_names(message), params, scope)


def _bitwidth(message: Message) -> int:
    """0: a `bit<0>`, an `error`, or a type that is translated to a string."""
    return int(message.get("bitwidth", ["0"])[0])


def _register(message: Message) -> Register:
    spec = _one(message, "type_spec")
    width = _bitwidth(spec.get("bitstring", [{}])[0].get("bit", [{}])[0])
    return Register(*_names(message), int(message["size"][0]), width, "new_type" in spec)
