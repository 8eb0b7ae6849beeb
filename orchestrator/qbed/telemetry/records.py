# SPDX-License-Identifier: Apache-2.0
"""What the agent writes into a cell's `out/` folder (docs/formats.md section 2), read and checked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from qbed.errors import QbedError
from qbed.files import MIB, open_regular, read_bytes

Row = dict[str, Any]
_Model = TypeVar("_Model", bound=BaseModel)
AS_THEY_ARE = ("*.pcap", "program-*.stdout", "program-*.stderr")
"""Of what the agent writes, what is a result as it is: captures, and what programs printed."""
_LARGEST = 256 * MIB  # the counters of 65,536 nodes are 100 MB


class RecordError(QbedError):
    """A file that the agent wrote is not what docs/formats.md says."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True)


class Done(_Record):
    """`done.json`: the agent's last word."""

    status: Literal["complete", "failed"]
    end_ns: int | None = None
    error: str | None = None


class LinkCounters(_Record):
    """One link end: what its transmitter did, and the device's own counters."""

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
    """The root qdisc's own statistics (`tc -s qdisc`)."""

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
"""Of `struct qp4_counters`: packets that went nowhere (`refused` by a queue are that queue's drops)."""


class ParkingCounters(_Record):
    """A port of a switch in P4 that has no link: frames that left it all the same, and its queue."""

    sent: int
    queue: QueueCounters


class SwitchCounters(_Record):
    """A switch in P4: packets by what the kernel's module did with them, and by what its program did; drops by reason;
    the program's own counters and registers, by index. An absent number is 0.
    """

    shell: dict[str, int]
    totals: dict[str, int]
    drops: dict[str, int]
    counters: dict[str, dict[int, int]]
    registers: dict[str, dict[int, int]]
    parking: dict[int, ParkingCounters] = Field(default_factory=dict)


class Counters(_Record):
    """`counters.json`: every counter of the lab at one instant. `nodes` are SNMP groups; an absent counter is 0.
    `switches`: those in P4, by name.
    """

    time_ns: int
    links: list[LinkPair]
    queues: list[QueueCounters]
    nodes: list[dict[str, dict[str, int]]] = Field(default_factory=list)
    switches: dict[str, SwitchCounters] = Field(default_factory=dict)


def read_done(path: Path) -> Done | None:
    """The agent's last word, or None if it never came to that."""
    return _read(path, Done) if path.exists() else None


def read_counters(path: Path) -> Counters:
    return _read(path, Counters)


def read_rows(path: Path) -> Iterator[Row]:
    """The objects of an NDJSON file, one at a time; an absent file has none."""
    if not path.exists():
        return
    with open_regular(path) as stream:
        for number, line in enumerate(stream, 1):
            try:
                row = json.loads(line)
            except ValueError as error:
                raise RecordError(f"{path.name}, line {number}: not JSON ({error})") from error
            if not isinstance(row, dict):
                raise RecordError(f"{path.name}, line {number}: a JSON object was expected")
            yield row


def _read(path: Path, model: type[_Model]) -> _Model:
    try:
        return model.model_validate_json(read_bytes(path, _LARGEST))
    except OSError as error:
        raise RecordError(f"{path.name} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise RecordError(f"{path.name}: {where or 'the file'}: {first['msg']}") from error
