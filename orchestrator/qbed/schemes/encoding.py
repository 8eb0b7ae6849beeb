# SPDX-License-Identifier: Apache-2.0
"""Encoding of a qdisc's options and statistics: netlink attributes, or the fields of a C structure. All numbers are
little-endian, as on every machine that qbed runs on.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import Literal

from qbed.config.strict import Strict
from qbed.config.units import Amount

_FORMATS = {"u8": "<B", "u16": "<H", "u32": "<I", "u64": "<Q", "s32": "<i", "s64": "<q"}
_UNITS = {"ns": 1, "us": 1_000, "ms": 1_000_000}
_HEADER = struct.Struct("<HH")  # struct nlattr: length with this header, number
_NUMBER = 0x3FFF  # NLA_TYPE_MASK: the other bits are flags


class Number(Strict):
    """A number of a fixed size."""

    type: Literal["u8", "u16", "u32", "u64", "s32", "s64"] = "u32"
    """Its size in bits, unsigned or signed."""

    @property
    def format(self) -> str:
        """For `struct`."""
        return _FORMATS[self.type]

    @property
    def size(self) -> int:
        """Bytes."""
        return struct.calcsize(self.format)

    def fits(self, value: int) -> bool:
        """Whether it can hold the value."""
        bits = 8 * self.size
        low, high = (0, 2**bits) if self.type[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1))
        return bool(low <= value < high)


class Field(Number):
    """Location of a parameter: a netlink attribute's number, or an offset in the options structure."""

    number: int | None = None
    """The attribute's number (TCA_*), in the layout `attributes`."""
    offset: int | None = None
    """The field's offset in bytes, in the layout `struct`."""
    unit: Literal["ns", "us", "ms"] = "ns"
    """Unit of a duration in the kernel."""
    scale: int | None = None
    """The value that represents 1, for a fraction."""
    choices: tuple[str, ...] = ()
    """The names of a choice's values, which the kernel numbers from 0."""
    absent: str | int | float | bool | None = None
    """The qdisc's value without the attribute, if it differs from the parameter's default."""


Value = int | float | str | Amount
"""A parameter in base units."""


def kernel_value(value: Value, field: Field) -> int:
    """A parameter in base units as the kernel counts it."""
    if isinstance(value, Amount):
        return value.value
    if isinstance(value, str):
        return field.choices.index(value)
    if field.scale is not None:
        return round(value * field.scale)
    return int(value) // _UNITS[field.unit]


def base_value(raw: int, field: Field) -> int | float | str:
    """Return a parameter in base units from the kernel's value, except for amounts."""
    if field.choices:
        return field.choices[raw] if raw < len(field.choices) else raw
    return raw / field.scale if field.scale is not None else raw * _UNITS[field.unit]


def unpack(number: Number, payload: bytes) -> int:
    """The number at the beginning of a payload."""
    return int(struct.unpack_from(number.format, payload)[0])


def attribute(number: int, payload: bytes) -> bytes:
    """A netlink attribute, padded to 4 bytes."""
    return _HEADER.pack(_HEADER.size + len(payload), number) + payload + bytes(-len(payload) % 4)


def pack_attributes(fields: Sequence[tuple[Field, int]]) -> bytes:
    """Netlink attributes in the order of their numbers."""
    ordered = sorted(fields, key=lambda pair: pair[0].number or 0)
    return b"".join(attribute(field.number or 0, struct.pack(field.format, value)) for field, value in ordered)


def attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The number and payload of each netlink attribute up to the first incomplete one."""
    position = 0
    while position + _HEADER.size <= len(data):
        length, number = _HEADER.unpack_from(data, position)
        if length < _HEADER.size or position + length > len(data):
            return
        yield number & _NUMBER, data[position + _HEADER.size : position + length]
        position += length + -length % 4


def pack_struct(fields: Sequence[tuple[Field, int]]) -> bytes:
    """The options structure, as long as its last field reaches."""
    payload = bytearray(max((field.offset or 0) + field.size for field, _ in fields))
    for field, value in fields:
        struct.pack_into(field.format, payload, field.offset or 0, value)
    return bytes(payload)
