# SPDX-License-Identifier: Apache-2.0
"""Queueing schemes: the folders of `schemes/`, each declared by its scheme.yml, with the kernel's option layout.

`Scheme.options(values)` packs parameters into the TCA_OPTIONS payload of the qdisc, either netlink attributes or the fields of a C
structure; `Scheme.decode(xstats)` unpacks the statistics. Both are read off scheme.yml: a new scheme needs no code here.
"""

import os
import struct
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, model_validator

from qbed.errors import QbedError
from qbed.source import read
from qbed.topology import Strict
from qbed.units import (
    Amount,
    format_duration,
    format_packets,
    format_rate,
    format_size,
    parse_amount,
    parse_duration,
    parse_fraction,
    parse_packets,
    parse_rate,
    parse_size,
)

_FORMATS = {"u8": "B", "u16": "H", "u32": "I", "u64": "Q", "s32": "i", "s64": "q"}
_SCALES = {"ns": 1, "us": 1_000, "ms": 1_000_000}

FieldType = Literal["u8", "u16", "u32", "u64", "s32", "s64"]
ParameterType = Literal["amount", "bytes", "packets", "duration", "rate", "fraction", "number", "flag"]


class Attribute(Strict):
    """Where the kernel takes a parameter: a netlink attribute's number, or an offset in the options structure."""

    number: int | None = Field(default=None, ge=1)
    """The attribute's number (TCA_*), in the layout `attributes`."""
    offset: int | None = Field(default=None, ge=0)
    """The field's offset in bytes, in the layout `struct`."""
    type: FieldType = "u32"
    """The field's type; little-endian."""
    unit: str | None = None
    """Of a duration: `ns` (without it), `us` or `ms`."""
    one: int = 1
    """Of a fraction: the value that stands for 1."""


class Parameter(Strict):
    """A parameter that the lab file can give."""

    name: str
    """Its name in the lab file."""
    type: ParameterType
    """The kind of quantity."""
    default: str | int | float | bool | None = None
    """What holds without it, with its unit."""
    min: str | int | float | None = None
    """The smallest value that is allowed."""
    max: str | int | float | None = None
    """The largest value that is allowed."""
    help: str
    """What it does, in one sentence."""
    attribute: Attribute | None = None
    """Where the kernel takes it."""
    bytes: Attribute | None = None
    """Of an amount: where the kernel takes it if it is given in bytes."""
    packets: Attribute | None = None
    """Of an amount: where the kernel takes it if it is given in packets."""

    def parse(self, value: object) -> Any:
        """The value in base units; ValueError says what was expected."""
        parsed = _PARSERS[self.type](value)
        for bound, word in ((self.min, "at least"), (self.max, "at most")):
            limit = None if bound is None else _PARSERS[self.type](bound)
            if limit is None or (isinstance(limit, Amount) and limit.unit != parsed.unit):
                continue
            if parsed < limit if word == "at least" else parsed > limit:
                raise ValueError(f"expected {word} {bound}, got `{value}`")
        return parsed

    def show(self, value: Any) -> str:
        """The value as the lab file would say it."""
        return _SHOW.get(self.type, str)(value)

    def target(self, value: Any) -> Attribute | None:
        """Where this value goes."""
        if isinstance(value, Amount):
            return (self.bytes if value.unit == "bytes" else self.packets) or self.attribute
        return self.attribute


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"expected a whole number, got `{value}`")
    return value


def _flag(value: object) -> bool:
    if value in ("on", "off") or isinstance(value, bool):
        return value in ("on", True)
    raise ValueError(f"expected `on` or `off`, got `{value}`")


_PARSERS: dict[str, Any] = {
    "amount": parse_amount,
    "bytes": parse_size,
    "packets": parse_packets,
    "duration": parse_duration,
    "rate": parse_rate,
    "fraction": parse_fraction,
    "number": _number,
    "flag": _flag,
}
_SHOW: dict[str, Any] = {
    "bytes": format_size,
    "packets": format_packets,
    "duration": format_duration,
    "rate": format_rate,
    "flag": lambda value: "on" if value else "off",
}


class Statistic(Strict):
    """A counter or state that the qdisc reports (TCA_STATS_APP)."""

    name: str
    """Its name in the results."""
    unit: str
    """What it counts, or its unit."""
    offset: int = Field(ge=0)
    """The field's offset in bytes."""
    type: FieldType = "u32"
    """The field's type; little-endian."""
    help: str
    """What it means, in one sentence."""


class Qdisc(Strict):
    """How the kernel knows the scheme."""

    kind: str | dict[Literal["bytes", "packets"], str]
    """The qdisc's name, or one for each unit of `buffer`."""
    module: str | None = None
    """The kernel module that has it; none if the kernel itself has it."""
    layout: Literal["attributes", "struct"] = "attributes"
    """The form of its options."""


class Scheme(Strict):
    """A queueing scheme as its scheme.yml declares it."""

    name: str
    """Its name, the same as its folder's."""
    title: str
    """What it is, in a few words."""
    help: str
    """What it does, in a few sentences."""
    marks: bool
    """Whether it can signal congestion by marking ECN CE rather than dropping."""
    qdisc: Qdisc
    """How the kernel knows it."""
    parameters: list[Parameter]
    """What the lab file can give."""
    statistics: list[Statistic] = []
    """What the qdisc reports beyond packets, bytes and drops."""

    @model_validator(mode="after")
    def _complete(self) -> "Scheme":
        if not any(parameter.name == "buffer" and parameter.default is not None for parameter in self.parameters):
            raise ValueError("a scheme needs the parameter `buffer` and its default")
        for parameter in self.parameters:
            if parameter.default is not None:
                parameter.parse(parameter.default)
        return self

    @property
    def by_name(self) -> dict[str, Parameter]:
        """The parameters by their names."""
        return {parameter.name: parameter for parameter in self.parameters}

    def defaults(self) -> dict[str, Any]:
        """The defaults in base units."""
        return {p.name: p.parse(p.default) for p in self.parameters if p.default is not None}

    def kind(self, values: Mapping[str, Any]) -> str:
        """The qdisc's name for these parameters."""
        if isinstance(self.qdisc.kind, str):
            return self.qdisc.kind
        unit: Literal["bytes", "packets"] = values["buffer"].unit
        return self.qdisc.kind[unit]

    def options(self, values: Mapping[str, Any]) -> bytes:
        """The TCA_OPTIONS payload for parameters in base units; those that are not given take their defaults."""
        fields: list[tuple[Attribute, int]] = []
        for name, value in (self.defaults() | dict(values)).items():
            parameter = self.by_name[name]
            target = parameter.target(value)
            if target is not None:
                fields.append((target, _kernel_value(value, target)))
        if self.qdisc.layout == "struct":
            return _pack_struct(fields)
        return b"".join(
            _attribute(target.number or 0, struct.pack(f"<{_FORMATS[target.type]}", value))
            for target, value in sorted(fields, key=lambda pair: pair[0].number or 0)
        )

    def decode(self, xstats: bytes) -> dict[str, int]:
        """The statistics of a TCA_STATS_APP payload; a shorter payload (older module) leaves its last fields out."""
        return {
            s.name: int(struct.unpack_from(f"<{_FORMATS[s.type]}", xstats, s.offset)[0])
            for s in self.statistics
            if s.offset + struct.calcsize(f"<{_FORMATS[s.type]}") <= len(xstats)
        }


def _kernel_value(value: Any, target: Attribute) -> int:
    if isinstance(value, Amount):
        return value.value
    if isinstance(value, float):
        return round(value * target.one)
    return int(value) // _SCALES[target.unit or "ns"]


def _attribute(number: int, payload: bytes) -> bytes:
    """One netlink attribute: length, number, payload, padded to 4 bytes (struct nlattr)."""
    padding = -len(payload) % 4
    return struct.pack("<HH", 4 + len(payload), number) + payload + b"\0" * padding


def _pack_struct(fields: list[tuple[Attribute, int]]) -> bytes:
    size = max((target.offset or 0) + struct.calcsize(f"<{_FORMATS[target.type]}") for target, _ in fields)
    payload = bytearray(size)
    for target, value in fields:
        struct.pack_into(f"<{_FORMATS[target.type]}", payload, target.offset or 0, value)
    return bytes(payload)


def schemes_folder() -> Path:
    """`schemes/` of the repository, or what the environment's QBED_SCHEMES says."""
    return Path(os.environ.get("QBED_SCHEMES") or Path(__file__).parents[2] / "schemes")


def load_scheme(folder: Path) -> Scheme:
    """One scheme's declaration; QbedError if it is incomplete."""
    source = read(folder / "scheme.yml")
    try:
        scheme = Scheme.model_validate(source.values)
    except ValidationError as error:
        first = error.errors()[0]
        raise QbedError(source.message(tuple(first["loc"]), first["msg"])) from None
    if scheme.name != folder.name:
        raise QbedError(source.message(("name",), f"expected the folder's name `{folder.name}`, got `{scheme.name}`"))
    return scheme


@cache
def _registry(folder: Path) -> dict[str, Scheme]:
    return {path.parent.name: load_scheme(path.parent) for path in sorted(folder.glob("*/scheme.yml"))}


def registry(folder: Path | None = None) -> dict[str, Scheme]:
    """Every scheme by its name: the folders that have a scheme.yml."""
    return _registry(folder or schemes_folder())
