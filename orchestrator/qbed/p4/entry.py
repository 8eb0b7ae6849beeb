# SPDX-License-Identifier: Apache-2.0
"""Table entries of P4 programs, and the inputs from which a scheme's `p4/entries.py` makes them (docs/p4.md)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from qbed.config.units import Amount

QUEUE_LENGTH_MAX = (1 << 19) - 1
"""The largest value of v1model's `enq_qdepth` and `deq_qdepth`, in packets."""

Values = Mapping[str, Any]
"""A port's effective parameters of the scheme (scheme.yml), by name, in base units."""
Asked = Iterable[tuple[str, int]]
"""The units and numbers of bits in which hosts ask for occupancy."""


class SettingError(ValueError):
    """A parameter that the scheme's program cannot take."""

    def __init__(self, parameter: str, text: str) -> None:
        super().__init__(text)
        self.parameter = parameter


@dataclass(frozen=True)
class Entry:
    """An entry of a table, or, without a key, the table's default action."""

    table: str
    action: str
    arguments: Mapping[str, int | str]
    key: Mapping[str, int | str] | None = None
    """Numbers, or text in the plan's form: `10.0.0.0/8`, `5..9`."""
    priority: int = 0
    """If several entries match, the one with the highest priority applies."""


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
