# SPDX-License-Identifier: Apache-2.0
"""Tables and registers of a program, from p4c's P4Info (`--p4runtime-files`, protobuf's text format)."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from finsy.proto import p4i

_MESSAGES = "qbed_p4_config_v1"
_PRIORITIES = frozenset({"TERNARY", "RANGE", "OPTIONAL"})


class InfoError(ValueError):
    """The text is not P4Info."""


@dataclass(frozen=True)
class MatchField:
    """A field of a table's key."""

    name: str
    width: int
    kind: str
    """EXACT, LPM, TERNARY, RANGE or OPTIONAL."""


@dataclass(frozen=True)
class Action:
    """An action of a table."""

    name: str
    alias: str
    params: Mapping[str, int]
    """Widths of the parameters in bits, by name."""
    scope: str
    """TABLE_AND_DEFAULT, TABLE_ONLY or DEFAULT_ONLY."""


@dataclass(frozen=True)
class Table:
    """A match-action table."""

    name: str
    alias: str
    matches: Mapping[str, MatchField]
    actions: tuple[Action, ...]
    size: int
    constant: bool
    initial_entries: bool
    """Whether the program defines entries that can be modified."""
    constant_default: bool
    profile: bool

    @property
    def has_priorities(self) -> bool:
        """Whether several entries can match a packet."""
        return any(match.kind in _PRIORITIES for match in self.matches.values())


@dataclass(frozen=True)
class Register:
    """An array of registers. `width` is 0 if the values are not numbers."""

    name: str
    alias: str
    size: int
    width: int
    new_type: bool
    """Whether the values have a P4 `type`, whose width P4Info gives elsewhere or as the width of its translation."""


@dataclass(frozen=True)
class Widths:
    """Widths of a program's values in bits. P4Info has the widths of translated values instead."""

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
    """Output of p4c."""

    def with_widths(self, program: Widths) -> P4Info:
        """Replace the widths by the program's widths."""

        def match(table: Table, field: MatchField) -> MatchField:
            return replace(field, width=program.keys.get((table.name, field.name), field.width))

        def with_param_widths(action: Action) -> Action:
            params = {name: program.params.get((action.name, name), width) for name, width in action.params.items()}
            return replace(action, params=params)

        tables = tuple(
            replace(
                table,
                matches={name: match(table, field) for name, field in table.matches.items()},
                actions=tuple(map(with_param_widths, table.actions)),
            )
            for table in self.tables
        )
        registers = tuple(
            replace(register, width=program.registers.get(register.name, 0)) if register.new_type else register
            for register in self.registers
        )
        return replace(self, tables=tables, registers=registers)


def p4info(text: str) -> P4Info:
    """Parse a P4Info. InfoError."""
    from google.protobuf import text_format

    try:
        message = text_format.Parse(text, _messages().P4Info(), allow_unknown_field=True)
        actions = {action.preamble.id: action for action in message.actions}
        tables = tuple(_table(table, actions) for table in message.tables)
        registers = tuple(_register(register) for register in message.registers)
    except (text_format.ParseError, LookupError, ValueError, RecursionError):
        raise InfoError("it is not P4Info in protobuf's text format") from None
    return P4Info(tables, registers, text)


@cache
def _messages() -> ModuleType:
    """The module of P4Info's messages in finsy, loaded by path: `import finsy` imports gRPC (half a second)."""
    found = find_spec("finsy")
    assert found is not None and found.origin is not None
    package = ModuleType(_MESSAGES)
    package.__path__ = [str(Path(found.origin).parent / "proto" / "p4" / "config" / "v1")]
    sys.modules[_MESSAGES] = package
    return import_module(f"{_MESSAGES}.p4info_pb2")


def _names(preamble: p4i.Preamble) -> tuple[str, str]:
    return _required(preamble.name), preamble.alias or preamble.name


def _required(name: str) -> str:
    if not name:
        raise ValueError("no name")
    return name


def _table(message: p4i.Table, actions: Mapping[int, p4i.Action]) -> Table:
    matches = tuple(map(_match_field, message.match_fields))
    return Table(
        *_names(message.preamble),
        {match.name: match for match in matches},
        tuple(_action(actions[ref.id], ref) for ref in message.action_refs),
        message.size,
        message.is_const_table,
        message.has_initial_entries and not message.is_const_table,
        message.const_default_action_id != 0,
        message.implementation_id != 0,
    )


def _match_field(message: p4i.MatchField) -> MatchField:
    """Convert a field. The width is 0 for a `bit<0>`, an `error`, or a type that is translated to a string."""
    if not message.match_type:
        raise ValueError("a match kind of another architecture")
    return MatchField(_required(message.name), message.bitwidth, message.MatchType.Name(message.match_type))


def _action(message: p4i.Action, ref: p4i.ActionRef) -> Action:
    params = {_required(param.name): param.bitwidth for param in message.params}
    return Action(*_names(message.preamble), params, ref.Scope.Name(ref.scope))


def _register(message: p4i.Register) -> Register:
    spec = message.type_spec
    return Register(*_names(message.preamble), message.size, spec.bitstring.bit.bitwidth, spec.HasField("new_type"))
