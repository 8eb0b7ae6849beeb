# SPDX-License-Identifier: Apache-2.0
"""Reads and validates the agent's files in a cell's `out/` folder (docs/formats.md section 2)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from qbed.base.errors import QbedError
from qbed.base.files import MIB, open_regular, read_bytes
from qbed.base.json_files import Row

_Model = TypeVar("_Model", bound=BaseModel)
RAW_FILES = ("*.pcap", "program-*.stdout", "program-*.stderr")
"""The agent's files that are results without conversion: captures and the output of programs."""
_MAX_BYTES = 256 * MIB  # the counters of 65,536 nodes are 100 MB


class RecordError(QbedError):
    """Raised if a file of the agent violates docs/formats.md."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True)


class Done(_Record):
    """`done.json`: the cell's result, which the agent writes last."""

    status: Literal["complete", "failed"]
    end_ns: int | None = None
    error: str | None = None


class LinkCounters(_Record):
    """The counters of a link end: its transmitter's and its network device's."""

    sent: int = 0
    delivered: int = 0
    lost: int = 0
    tx_bytes: int = 0
    rx_packets: int = 0
    rx_bytes: int = 0
    rx_dropped: int = 0
    tx_dropped: int = 0


class LinkPair(_Record):
    a: LinkCounters
    b: LinkCounters


class QueueCounters(_Record):
    """The statistics of the root qdisc (`tc -s qdisc`)."""

    kind: str
    packets: int = 0
    bytes: int = 0
    drops: int = 0
    overlimits: int = 0
    requeues: int = 0
    backlog_bytes: int = 0
    backlog_packets: int = 0
    xstats: str = Field(default="", pattern="^([0-9a-f]{2})*$")


SHELL_DROPS = frozenset(
    {"no_program", "no_port", "too_many_rounds", "foreign", "runt", "no_memory", "no_group", "packets_in_lost"}
)
"""Fields of `struct qp4_counters` that count dropped packets. `refused` is not one: the queue counts those drops."""


class RecirculationCounters(_Record):
    """The counters of a recirculation port: frames sent, and its queue's."""

    sent: int
    queue: QueueCounters


class ArrayState(_Record):
    """A counter, register or meter of a P4 program. An element is its index and value, its index, packets and bytes, or
    its index and the packets by colour: green, yellow, red.

    `nonzero`: how many elements are not zero; None: the agent does not read the array, as it is too large or too wide.
    """

    kind: Literal["counter", "register", "meter"]
    name: str
    size: int
    nonzero: int | None
    elements: list[tuple[int, int] | tuple[int, int, int] | tuple[int, int, int, int]]
    over_limit: bool = False
    """Whether the array is not read because the cell's limit was reached."""


class SwitchCounters(_Record):
    """The counters of a P4 switch: the kernel module's (`shell`), the program's totals, drops by reason, and the
    program's counters and registers: by index for statistics of schemes, and all of them (`arrays`). An absent number
    is 0.
    """

    shell: dict[str, int]
    totals: dict[str, int]
    drops: dict[str, int]
    counters: dict[str, dict[int, int]]
    registers: dict[str, dict[int, int]]
    arrays: list[ArrayState] = Field(default_factory=list)
    recirculation: dict[int, RecirculationCounters] = Field(default_factory=dict)
    """By port number."""


class Counters(_Record):
    """`counters.json`: every counter of the lab at one instant. `nodes` are SNMP groups; an absent counter is 0.
    `switches` are the P4 switches by name.
    """

    time_ns: int
    links: list[LinkPair]
    queues: list[QueueCounters]
    nodes: list[dict[str, dict[str, int]]] = Field(default_factory=list)
    switches: dict[str, SwitchCounters] = Field(default_factory=dict)


def read_done(path: Path) -> Done | None:
    """Read `done.json`; None if the agent did not write it."""
    return _read(path, Done) if path.exists() else None


def read_counters(path: Path) -> Counters:
    return _read(path, Counters)


def read_rows(path: Path) -> Iterator[Row]:
    """Yield the objects of an NDJSON file. An absent file has none."""
    if not path.exists():
        return
    with open_regular(path) as stream:
        for number, line in enumerate(stream, 1):
            try:
                row = json.loads(line)
            except ValueError as error:
                raise RecordError(f"{path.name}, line {number}: not JSON ({error})") from error
            if not isinstance(row, dict):
                raise RecordError(f"{path.name}, line {number}: expected a JSON object")
            yield row


def _read(path: Path, model: type[_Model]) -> _Model:
    try:
        return model.model_validate_json(read_bytes(path, _MAX_BYTES))
    except OSError as error:
        raise RecordError(f"{path.name} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise RecordError(f"{path.name}: {where or 'the file'}: {first['msg']}") from error
