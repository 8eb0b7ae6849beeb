# SPDX-License-Identifier: Apache-2.0
"""Table entries of P4 programs, and the inputs from which a scheme's `p4/entries.py` makes them (docs/p4.md)."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import (
    BeforeValidator,
    ConfigDict,
    PlainSerializer,
    SerializerFunctionWrapHandler,
    WithJsonSchema,
    model_serializer,
)
from pydantic.dataclasses import dataclass

from qbed.config.units import Amount

QUEUE_LENGTH_MAX = (1 << 19) - 1
"""The largest value of v1model's `enq_qdepth` and `deq_qdepth`, in packets."""

_LARGEST_INT = (1 << 64) - 1
_FORBID = ConfigDict(defer_build=True, extra="forbid")

Values = Mapping[str, Any]
"""A port's effective parameters of the scheme (scheme.yml), by name, in base units."""
SignalFormats = Iterable[tuple[str, int]]
"""Units and numbers of bits in which hosts request occupancy."""


class SettingError(ValueError):
    """A parameter that the scheme's program cannot take."""

    def __init__(self, parameter: str, text: str) -> None:
        super().__init__(text)
        self.parameter = parameter


def plan_number(number: int) -> int | str:
    """A number as it is in plan.json: above 64 bits as hexadecimal text, since not every reader has larger integers."""
    return number if number <= _LARGEST_INT else hex(number)


def _from_plan(value: Any) -> Any:
    return int(value, 16) if isinstance(value, str) and value.startswith("0x") else value


_HEXADECIMAL = {"type": "string", "pattern": "^0x[0-9a-f]+$", "examples": ["0xfd000000000000000000000000000001"]}
_JSON_NUMBER = {"anyOf": [{"type": "integer", "minimum": 0}, _HEXADECIMAL]}
Number = Annotated[int, BeforeValidator(_from_plan), PlainSerializer(plan_number), WithJsonSchema(_JSON_NUMBER)]
"""An unsigned integer of any width."""


@dataclass(frozen=True, config=_FORBID)
class Prefix:
    """A match of the kind lpm."""

    value: Number
    """The value, with 0 in the bits that are not compared."""
    prefix: int
    """The number of leading bits that are compared."""


@dataclass(frozen=True, config=_FORBID)
class Masked:
    """A match of the kind ternary."""

    value: Number
    """The value, with 0 in the bits that are not compared."""
    mask: Number
    """The bits that are compared."""


@dataclass(frozen=True, config=_FORBID)
class Range:
    """A match of the kind range, with both bounds."""

    low: Number
    """The smallest value."""
    high: Number
    """The largest value."""


Match = Number | Prefix | Masked | Range
"""The match of one key field; a number is a match of the kind exact or optional."""


@dataclass(frozen=True, config=_FORBID)
class Entry:
    """An entry of a table, or, without a key, the table's default action. Names are the program's, values are numbers.

    The plan has it in this form; a key field that is left out matches any value.
    """

    table: str
    """The table."""
    action: str
    """The action."""
    arguments: Mapping[str, Number]
    """Values by the names of the action's parameters."""
    key: Mapping[str, Match] | None = None
    """Matches by the names of key fields; a field that is left out matches any value. null: the default action."""
    priority: int = 0
    """If several entries match, the one with the highest priority applies."""

    @model_serializer(mode="wrap")
    def _without_defaults(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in handler(self).items() if value not in (None, 0)}


@dataclass(frozen=True)
class Port:
    """A port of a switch: its number, and the link behind its queue."""

    number: int
    rate_bps: int
    frame_bytes: int
    """The size of the largest frame, with its Ethernet header."""


@dataclass(frozen=True)
class RecirculationPort:
    """A port without a link. Packets that the program sends there return to its ingress."""

    port: int
    rate_bps: int | None
    """None: without delay."""
    buffer: Amount


def packets(values: Values, name: str, maximum: int) -> int:
    """A queue length in packets, at most `maximum`; `SettingError` if the parameter is in bytes."""
    amount: Amount = values[name]
    if amount.unit != "packets":
        text = f"in P4 a queue's length is a number of packets: expected such as `20 packets`, got `{amount}`"
        raise SettingError(name, text)
    return min(amount.value, maximum)


def microseconds(values: Values, name: str) -> int:
    """A duration in whole microseconds."""
    return int(values[name]) // 1000


def buffer_packets(port: Port, values: Values) -> int:
    """The port's `buffer` in packets of the largest size."""
    buffer: Amount = values["buffer"]
    return buffer.value if buffer.unit == "packets" else max(1, buffer.value // port.frame_bytes)
