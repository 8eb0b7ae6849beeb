# SPDX-License-Identifier: Apache-2.0
"""Changes during a run: each entry of `events` changes one link, one queue's parameters or one host."""

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, ValidationInfo, model_validator

from qbed.base.files import MIB, read_text
from qbed.config.reach import ReachError, beneath
from qbed.config.strict import Strict
from qbed.config.units import LARGEST, Duration, PositiveRate, Share, parse_duration, parse_rate
from qbed.lab.settings import CongestionControl, QueueSettings

_LARGEST_TRACE = 16 * MIB
_BIN_NS = 100_000_000
_PACKET_BITS = 1500 * 8
_MIN_BPS = 1000
"""The rate during an outage in a trace: a link needs a rate, and at this one nothing passes until the outage ends."""

Rates = list[tuple[int, int]]
"""Times in ns and the rates in bit/s from then on."""


def read_rates(text: str) -> Rates:
    """Return the rates of a trace. Raise ValueError with the number of an invalid line.

    Lines are a time and a rate (`100 ms 5.2 Mbit/s`), or, as Mahimahi's are, one whole number each: a millisecond in
    which a packet of 1,500 bytes may leave; of these, the mean of each 100 ms. `#` starts a comment.
    """
    lines = [(number, line.partition("#")[0].strip()) for number, line in enumerate(text.splitlines(), 1)]
    lines = [(number, line) for number, line in lines if line]
    if not lines:
        raise ValueError("has no rates")
    read = _opportunities if all(line.isdigit() and line.isascii() for _, line in lines) else _rows
    return read(lines)


def _rows(lines: list[tuple[int, str]]) -> Rates:
    rates: Rates = []
    for number, line in lines:
        match = re.fullmatch(r"([0-9.]+ ?[a-z]+)\s+([0-9.]+ ?[A-Za-z/]+)", line)
        if match is None:
            raise ValueError(f"line {number}: expected a time and a rate such as `100 ms 5 Mbit/s`, got `{line[:60]}`")
        try:
            row = parse_duration(match[1]), parse_rate(match[2])
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None
        if row[1] < 1:
            raise ValueError(f"line {number}: expected at least 1 bit/s, got `{match[2]}`")
        if rates and row[0] <= rates[-1][0]:
            raise ValueError(f"line {number}: expected a time after that of the line before")
        rates.append(row)
    return rates


def _opportunities(lines: list[tuple[int, str]]) -> Rates:
    packets: dict[int, int] = {}
    last = 0
    for number, line in lines:
        at = int(line[:19])
        if at < last or at * 1_000_000 > LARGEST:
            raise ValueError(f"line {number}: expected a millisecond that is no earlier than the line before's")
        last = at
        packets[at * 1_000_000 // _BIN_NS] = packets.get(at * 1_000_000 // _BIN_NS, 0) + 1
    if max(packets) > 1_000_000:
        raise ValueError("expected a trace of less than 28 hours")
    rates: Rates = []
    end_ns = (last + 1) * 1_000_000
    for index in range(max(packets) + 1):
        width_ns = min(_BIN_NS, end_ns - index * _BIN_NS)  # the trace ends in its last bin, and the rate stays
        rate = max(packets.get(index, 0) * _PACKET_BITS * 1_000_000_000 // width_ns, _MIN_BPS)
        if not rates or rates[-1][1] != rate:
            rates.append((index * _BIN_NS, rate))
    return rates


def _read(name: str, info: ValidationInfo) -> str | Rates:
    folder = (info.context or {}).get("folder")
    if folder is None:
        return name
    try:
        return read_rates(read_text(beneath(Path(folder), name), _LARGEST_TRACE))
    except OSError as error:
        raise ValueError(f"cannot read `{name}`: {error.strerror}") from None
    except ReachError:
        raise
    except ValueError as error:
        raise ValueError(f"`{name}`: {error}") from None


class Event(Strict):
    """A change during the run of one link, one queue's parameters, or one host's congestion control."""

    at: Duration = Field(examples=["500 ms"])
    """Time of the change after the lab's epoch. A `trace` begins at this time."""
    link: str | None = None
    """Name, glob or range of names of links (`rack1-spine1`). The change applies to both directions. Except with
    `state`, one direction can be selected (`s1>s2`).
    """
    state: Literal["down", "up"] | None = None
    """The link's new state. Links are initially up."""
    rate: PositiveRate | None = None
    """New rate of the link. It also applies to the frame in transmission."""
    delay: Duration | None = None
    """New propagation delay of the link. Frames are not reordered."""
    loss: Share | None = None
    """New loss probability of the link."""
    trace: Annotated[str, AfterValidator(_read)] | None = None
    """A file beside the lab file with the link's rates over time. Each line has a time and a rate
    (`100 ms 5.2 Mbit/s`), or, in Mahimahi's format, a millisecond in which a packet may be sent. After the last line,
    the last rate applies.
    """
    queue: str | None = None
    """The queue to change, by its end of a link (`s1>s2`, `s1>*`)."""
    settings: QueueSettings | None = Field(default=None, alias="set")
    """New values of parameters of the queue's scheme and of its buffer. Other parameters keep their values."""
    host: str | None = None
    """Name, glob or range of hosts."""
    tcp: CongestionControl | None = None
    """New congestion control of the host. It also applies to current flows, unless their workload sets one."""

    @model_validator(mode="after")
    def _one_thing(self) -> "Event":
        fields_of = {"link": ("state", "rate", "delay", "loss", "trace"), "queue": ("settings",), "host": ("tcp",)}
        chosen = [kind for kind in fields_of if getattr(self, kind) is not None]
        if len(chosen) != 1:
            raise ValueError("expected exactly one of `link`, `queue` and `host`")
        set_fields = [name for names in fields_of.values() for name in names if getattr(self, name) is not None]
        words = ", ".join(f"`{'set' if name == 'settings' else name}`" for name in fields_of[chosen[0]])
        if not set_fields or set(set_fields) - set(fields_of[chosen[0]]):
            raise ValueError(f"`{chosen[0]}` changes by {words}, and by nothing else")
        if ("state" in set_fields and len(set_fields) > 1) or {"rate", "trace"} <= set(set_fields):
            raise ValueError("`state` stands alone, and `trace` in place of `rate`")
        return self
