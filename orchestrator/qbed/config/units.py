# SPDX-License-Identifier: Apache-2.0
"""Quantities with units: text such as `10 Gbit/s` to integers in base units and back.

Base units are nanoseconds, bytes and bits per second. Prefixes are SI: 1 KB = 1000 bytes, 1 KiB = 1024 bytes. Values
are exact: `0.5 ns` is refused, not rounded. A number without a unit is refused, also zero.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, GetJsonSchemaHandler, PlainSerializer, WithJsonSchema
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

DURATIONS = {"ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000, "min": 60_000_000_000}
SIZES = {
    "B": 1, "KB": 10**3, "kB": 10**3, "MB": 10**6, "GB": 10**9,
    "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "byte": 1, "bytes": 1,
}  # fmt: skip
RATES = {
    f"{prefix}{name}": factor
    for prefix, factor in {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}.items()
    for name in ("bit/s", "bps", "b/s")
}
PACKETS = {"packet": 1, "packets": 1}

_QUANTITY = re.compile(r"\s*([0-9][0-9_]*(?:\.[0-9]+)?(?:[eE][0-9]{1,2})?)\s*([^\s0-9.][^\s]*)\s*", re.ASCII)
_PERCENTAGE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*%\s*", re.ASCII)
_OTHER_RATE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([kKmMgGtT]?)(bit|bits|b|B|byte|bytes)(/s|ps|/sec|)\s*", re.ASCII)
LARGEST = 2**63 - 1
_LONGEST = 64


def shown(value: object) -> str:
    """Format a value of a file as a message quotes it."""
    if isinstance(value, dict | list):
        return "fields" if isinstance(value, dict) else "a list"
    words = str(value).lower() if isinstance(value, bool) else value
    text = "nothing" if value is None else f"`{words}`"
    return text if len(text) <= 60 else text[:57] + "...`"


def _match(expected: re.Pattern[str], value: object) -> re.Match[str] | None:
    """Match a value against a pattern. Longer texts are not searched, which bounds the time."""
    return expected.fullmatch(value) if isinstance(value, str) and len(value) <= _LONGEST else None


def _parse(value: object, units: dict[str, int], expected: str) -> int:
    """Return the quantity in base units. ValueError has the expected and the actual value."""
    match = _match(_QUANTITY, value)
    if match is None or match[2] not in units:
        raise ValueError(f"expected {expected}, got {shown(value)}")
    exact = Fraction(match[1].replace("_", "")) * units[match[2]]
    if exact.denominator != 1:
        smallest = min(units, key=lambda unit: units[unit])
        raise ValueError(f"expected a whole number of {smallest}, got {shown(value)}")
    if exact > LARGEST:
        raise ValueError(f"expected {expected}, got {shown(value)}, which is too large")
    return int(exact)


def parse_duration(value: object) -> int:
    """Convert `5 us` to nanoseconds."""
    return _parse(value, DURATIONS, "a duration such as `5 us`")


def parse_size(value: object) -> int:
    """Convert `32 KB` to bytes."""
    return _parse(value, SIZES, "a size such as `32 KB`")


def parse_rate(value: object) -> int:
    """Convert `10 Gbit/s` to bits per second."""
    try:
        return _parse(value, RATES, "a rate such as `10 Gbit/s`")
    except ValueError as error:
        raise ValueError(f"{error}{_rate_hint(value)}") from None


def _rate_hint(value: object) -> str:
    """Return `; write 800 Mbit/s` for a rate in bytes, or in the words of tc; otherwise nothing."""
    bps = _other_rate(value)
    return "" if bps is None else f"; write `{format_rate(bps)}`"


def _other_rate(value: object) -> int | None:
    """The bits per second of a rate in bytes, or in the words of tc."""
    match = _match(_OTHER_RATE, value)
    if match is None:
        return None
    bits = 8 if match[3] in ("B", "byte", "bytes") else 1
    exact = Fraction(match[1]) * bits * RATES[f"{match[2].upper()}bit/s"]
    if exact.denominator != 1 or exact > LARGEST or f"{match[2]}{match[3]}{match[4]}" in RATES:
        return None
    return int(exact)


def parse_any_rate(value: object) -> int:
    """Convert a rate to bits per second; tc's words (`20mbit`) and bytes (`100 MB/s`) too, as a terminal's user types
    them.
    """
    bps = _other_rate(value)
    return parse_rate(value) if bps is None else bps


def parse_packets(value: object) -> int:
    """Convert `10 packets` to a number."""
    return _parse(value, PACKETS, "a number of packets such as `10 packets`")


@dataclass(frozen=True, order=True)
class Amount:
    """A queue length in bytes (of frames with their Ethernet header) or in packets, as in the file."""

    value: int
    unit: Literal["bytes", "packets"]

    def __str__(self) -> str:
        return format_size(self.value) if self.unit == "bytes" else format_packets(self.value)

    def in_bytes(self, frame_bytes: int) -> int:
        """Return the length in bytes if every frame has `frame_bytes`."""
        return self.value if self.unit == "bytes" else self.value * frame_bytes

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: object, _handler: object) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            parse_amount, serialization=core_schema.to_string_ser_schema()
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, _schema: CoreSchema, _handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"type": "string", "pattern": pattern(SIZES | PACKETS), "examples": ["128 KB", "20 packets"]}


def parse_amount(value: object) -> Amount:
    """Parse `128 KB` or `20 packets`."""
    if isinstance(value, Amount):
        return value
    match = _match(_QUANTITY, value)
    if match is not None and match[2] in PACKETS:
        return Amount(parse_packets(value), "packets")
    return Amount(_parse(value, SIZES, "an amount such as `128 KB` or `20 packets`"), "bytes")


def parse_fraction(value: object) -> float:
    """Convert `0.01` or `1 %` to a number from 0 to 1."""
    number: float | None = None
    if match := _match(_PERCENTAGE, value):
        number = float(Fraction(match[1]) / 100)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        number = float(value)
    if number is None or not 0 <= number <= 1:
        raise ValueError(f"expected a fraction from 0 to 1 or a percentage such as `1 %`, got {shown(value)}")
    return number


def _format(value: int, units: list[tuple[str, int]]) -> str:
    """Format the value in the largest unit that needs at most three decimals, without rounding."""
    for name, factor in units:
        if value >= factor and (value * 1000) % factor == 0:
            integer, rest = divmod(value, factor)
            decimals = f"{rest * 1000 // factor:03d}".rstrip("0")
            return f"{integer}.{decimals} {name}" if decimals else f"{integer} {name}"
    return f"{value} {units[-1][0]}"


def format_duration(ns: int) -> str:
    """Format nanoseconds as `5 us`."""
    return _format(ns, [("s", 10**9), ("ms", 10**6), ("us", 10**3), ("ns", 1)])


def format_size(size_bytes: int) -> str:
    """Format bytes as `128 KB`."""
    return _format(size_bytes, [("GB", 10**9), ("MB", 10**6), ("KB", 10**3), ("B", 1)])


def format_rate(bps: int) -> str:
    """Format bits per second as `10 Gbit/s`."""
    return _format(bps, [("Tbit/s", 10**12), ("Gbit/s", 10**9), ("Mbit/s", 10**6), ("kbit/s", 10**3), ("bit/s", 1)])


def format_packets(count: int) -> str:
    """Format a number as `20 packets`."""
    return f"{count} packet" if count == 1 else f"{count} packets"


def pattern(units: dict[str, int]) -> str:
    """Return a JSON Schema pattern of a quantity in one of these units."""
    names = "|".join(sorted((re.escape(u).replace("/", "/") for u in units), key=lambda u: (-len(u), u)))
    return rf"^\s*[0-9][0-9_]*(\.[0-9]+)?([eE][0-9]{{1,2}})?\s*({names})\s*$"


def _schema(units: dict[str, int], example: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": pattern(units), "examples": [example]})


def between(low: int, high: int, show: Callable[[int], str]) -> AfterValidator:
    """Return a validator of a quantity's bounds in base units, which its messages show with their unit."""

    def check(value: int) -> int:
        if value < low:
            raise ValueError(f"expected at least {show(low)}, got `{show(value)}`")
        if value > high:
            raise ValueError(f"expected at most {show(high)}, got `{show(value)}`")
        return value

    return AfterValidator(check)


Duration = Annotated[int, BeforeValidator(parse_duration), PlainSerializer(format_duration), _schema(DURATIONS, "5 us")]
Size = Annotated[int, BeforeValidator(parse_size), PlainSerializer(format_size), _schema(SIZES, "32 KB")]
Rate = Annotated[int, BeforeValidator(parse_rate), PlainSerializer(format_rate), _schema(RATES, "10 Gbit/s")]
Packets = Annotated[
    int, BeforeValidator(parse_packets), PlainSerializer(format_packets), _schema(PACKETS, "10 packets")
]
Share = Annotated[
    float,
    BeforeValidator(parse_fraction),
    WithJsonSchema({"type": ["number", "string"], "minimum": 0, "maximum": 1, "examples": [0.01, "1 %"]}),
]
PositiveDuration = Annotated[Duration, between(1, LARGEST, format_duration)]
PositiveRate = Annotated[Rate, between(1, LARGEST, format_rate)]
