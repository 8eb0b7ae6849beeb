# SPDX-License-Identifier: Apache-2.0
"""Parameters of schemes, controllers and congestion controls: their types and bounds, and their places in the kernel's
options.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal

from qbed.config.strict import Strict
from qbed.config.units import (
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
from qbed.schemes.encoding import Field, Value, kernel_value

ParameterType = Literal[
    "amount", "bytes", "packets", "duration", "rate", "fraction", "number", "flag", "choice", "scheme"
]


_KERNEL_UNITS = {"bytes": "bytes", "packets": "packets", "rate": "bps"}


class Parameter(Strict):
    """A parameter that the lab file can give."""

    name: str
    """Its name in the lab file."""
    type: ParameterType
    """The kind of quantity."""
    default: str | int | float | bool | None = None
    """The default, with its unit."""
    min: str | int | float | None = None
    """The smallest value that is allowed."""
    max: str | int | float | None = None
    """The largest value that is allowed."""
    help: str
    """The effect, in one sentence."""
    attribute: Field | None = None
    """Location of the parameter in the kernel's options."""
    bytes: Field | None = None
    """Location of an amount that is given in bytes."""
    packets: Field | None = None
    """Location of an amount that is given in packets."""
    power_of_two: bool = False
    """Whether a number must be a power of two."""
    fixed: bool = False
    """Whether the qdisc takes it at its creation only."""

    def parse(self, value: object) -> Value:
        """The value in base units; ValueError says what was expected."""
        parsed = self._chosen(value) if self.type == "choice" else _PARSERS[self.type](value)
        for bound, word in ((self.min, "at least"), (self.max, "at most")):
            limit = None if bound is None else _PARSERS[self.type](bound)
            if limit is None or (
                isinstance(limit, Amount) and isinstance(parsed, Amount) and limit.unit != parsed.unit
            ):
                continue
            distance = magnitude(parsed) - magnitude(limit)
            if distance < 0 if word == "at least" else distance > 0:
                raise ValueError(f"expected {word} `{bound}`, got `{value}`")
        if self.power_of_two and isinstance(parsed, int) and parsed.bit_count() != 1:
            raise ValueError(f"expected a power of two, got `{value}`")
        field = self.field(parsed)
        if field is not None and not field.fits(kernel_value(parsed, field)):
            raise ValueError(f"expected what fits the kernel's {field.type}, got `{value}`")
        return parsed

    def _chosen(self, value: object) -> str:
        choices = self.attribute.choices if self.attribute is not None else ()
        if not isinstance(value, str) or value not in choices:
            listed = ", ".join(f"`{word}`" for word in choices)
            raise ValueError(f"expected one of {listed}, got `{value}`")
        return value

    def show(self, value: Value) -> str:
        """The value as the lab file would say it."""
        return str(_SHOW.get(self.type, str)(value))

    @property
    def kernel_unit(self) -> str:
        """The unit of the kernel's number, which is part of its name in C; empty for a plain number and an amount."""
        if self.type == "duration" and self.attribute is not None:
            return self.attribute.unit
        return _KERNEL_UNITS.get(self.type, "")

    def kernel_name(self, unit: str) -> str:
        """The name in C, which ends in the unit."""
        return self.name if not unit or self.name.endswith(f"_{unit}") else f"{self.name}_{unit}"

    def field(self, value: Value) -> Field | None:
        """Where this value goes."""
        if isinstance(value, Amount):
            return (self.bytes if value.unit == "bytes" else self.packets) or self.attribute
        return self.attribute


def magnitude(value: Value) -> int | float:
    """The number by which values of a parameter are compared."""
    if isinstance(value, Amount):
        return value.value
    assert not isinstance(value, str), "text has no bounds"
    return value


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"expected a whole number, got `{value}`")
    return value


def _flag(value: object) -> bool:
    if value in ("on", "off") or isinstance(value, bool):
        return value in ("on", True)
    raise ValueError(f"expected `on` or `off`, got `{value}`")


def _name(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"expected a scheme's name, got `{value}`")
    return value


_PARSERS: dict[str, Callable[[object], Value]] = {
    "amount": parse_amount,
    "bytes": parse_size,
    "packets": parse_packets,
    "duration": parse_duration,
    "rate": parse_rate,
    "fraction": parse_fraction,
    "number": _number,
    "flag": _flag,
    "scheme": _name,
}
_SHOW: dict[str, Callable[[Any], str]] = {
    "bytes": format_size,
    "packets": format_packets,
    "duration": format_duration,
    "rate": format_rate,
    "flag": lambda value: "on" if value else "off",
}


def check_parameters(parameters: Iterable[Parameter]) -> None:
    """ValueError for the first inconsistent declaration."""
    for parameter in parameters:
        for value in (parameter.default, parameter.attribute and parameter.attribute.absent):
            if value is not None:
                parameter.parse(value)
        if parameter.power_of_two and parameter.type != "number":
            raise ValueError(f"expected the type `number` of the parameter `{parameter.name}`, a power of two")
        if (parameter.type == "choice") != bool(parameter.attribute and parameter.attribute.choices):
            raise ValueError(
                f"expected `choices` of the attribute of the choice `{parameter.name}`, and of no other type"
            )
        if (parameter.bytes is None) != (parameter.packets is None):
            raise ValueError(f"expected `bytes` and `packets` of the amount `{parameter.name}`, or one other type")


def kernel_fields(by_name: Mapping[str, Parameter], values: Mapping[str, Value]) -> Iterator[tuple[Field, int]]:
    """Return the location and the kernel's value of each parameter."""
    for name, value in values.items():
        field = by_name[name].field(value)
        if field is not None:
            yield field, kernel_value(value, field)
