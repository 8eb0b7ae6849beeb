# SPDX-License-Identifier: Apache-2.0
"""The kinds of workload a lab file can list: each entry of `workload` is one of them."""

import re
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)

from qbed.base.errors import nearest
from qbed.base.files import MIB, read_text
from qbed.base.json_files import Schema
from qbed.config.reach import beneath
from qbed.config.strict import Strict
from qbed.config.units import LARGEST, Duration, PositiveDuration, PositiveRate, Size, between, format_size, shown
from qbed.lab.distributions import Sizes, SizesOrSize, Times, TimesOrTime
from qbed.lab.settings import CongestionControl, OnOff

_LARGEST_REPLAY = 64 * MIB
_INTEGER = re.compile("[0-9]{1,19}")


def _names(value: object) -> list[str]:
    given = value if isinstance(value, list) else [value]
    names = [name for name in given if isinstance(name, str)]
    if not names or len(names) < len(given):
        raise ValueError(
            f"expected a host such as `h1`, a glob, a range such as `h1..h10` or a list of these, got `{value}`"
        )
    return names


def _count_or_names(value: object) -> int | list[str]:
    if isinstance(value, int) and not isinstance(value, bool):
        if value < 1:
            raise ValueError(f"expected at least 1 sender, got `{value}`")
        return value
    return _names(value)


_NAMES: Schema = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}
Hosts = Annotated[list[str], BeforeValidator(_names), WithJsonSchema(_NAMES)]
"""Hosts by name, glob (`h*`), range (`h1..h10`), or a list of these."""
CountOrHosts = Annotated[
    int | list[str],
    PlainValidator(_count_or_names),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 1}, *_NAMES["anyOf"]]}),
]


_CLASSES = {"LE": 1, "DF": 0, "EF": 46, "VA": 44} | {f"CS{number}": 8 * number for number in range(8)}
_CLASSES |= {f"AF{number}{drop}": 8 * number + 2 * drop for number in range(1, 5) for drop in range(1, 4)}


def _dscp(value: object) -> int:
    if isinstance(value, str) and value in _CLASSES:
        return _CLASSES[value]
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 64:
        return value
    like = nearest(value, _CLASSES) if isinstance(value, str) else ""
    raise ValueError(f"expected a class such as `EF`, `CS1`, `AF41` or a number from 0 to 63, got {shown(value)}{like}")


Dscp = Annotated[
    int,
    PlainValidator(_dscp),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "pattern": f"^({'|'.join(sorted(_CLASSES))})$", "examples": ["EF", "CS1", "AF41"]},
                {"type": "integer", "minimum": 0, "maximum": 63},
            ]
        }
    ),
]
"""A class of packets: a name of the IANA's registry of DSCPs, or its number."""


class _Workload(Strict):
    """Fields of all workloads."""

    label: str | None = None
    """Name of the workload in the results. The default is its kind."""
    start: Duration = 0
    """Time of its start after the lab's epoch."""
    family: Literal[4, 6] | None = None
    """IPv4 or IPv6, if hosts have addresses of both. The default is 4."""
    dscp: Dscp | None = None
    """DSCP of its packets in both directions: `EF`, `CS1`, `AF41` or a number. Some qdiscs classify packets by it,
    such as cake with `diffserv4`. The transport `rate` has none.
    """


class _Stream(_Workload):
    """Fields of workloads with reliable flows."""

    transport: Literal["tcp", "rate"] = "tcp"
    """`tcp`, or `rate`: reliable flows over UDP, each paced by its sender's controller (`hosts.NAME.controller`)."""
    tcp: CongestionControl | None = None
    """Congestion control of the transport `tcp`, instead of that of the hosts."""
    connect: Literal["at start", "before"] = "at start"
    """`at start`: the handshake is part of the flow. `before`: connections are established before the epoch. The
    transport `rate` has no handshake.
    """


def _size(value: object) -> object:
    return None if value == "unlimited" else value


FlowSize = Annotated[Size | None, BeforeValidator(_size, json_schema_input_type=Size | Literal["unlimited"])]


class _Flows(_Stream):
    """Fields of workloads with flows between given hosts."""

    size: FlowSize = None
    """Bytes of each flow. With `unlimited`, the default, a flow sends until `stop`."""
    stop: Duration | None = None
    """Time at which unlimited flows stop. The default is the lab's end."""
    spread: Duration = 0
    """Each flow starts at `start` plus a random time from 0 to this one, uniformly distributed."""
    count: int = Field(default=1, ge=1, le=100_000)
    """Number of flows for each pair of hosts."""


class Flow(_Flows):
    """Flows from one host to another."""

    source: str = Field(alias="from")
    """The sending host."""
    to: str
    """The receiving host."""


class Paired(Strict):
    """Fields of workloads between pairs of hosts."""

    pairs: Annotated[list[tuple[str, str]], Field(min_length=1)] | None = None
    """Pairs of a sender and a receiver."""
    source: Hosts | None = Field(default=None, alias="from")
    """The senders. The first sends to the first of `to`, and so on."""
    to: Hosts | None = None
    """The receivers: as many as senders, or one for all senders."""
    pairing: Literal["in order", "permutation", "random"] = "in order"
    """Pairing of `from` and `to`. `in order`: as they are listed. `permutation`: each receiver once, at random.
    `random`: a random receiver for each sender, with replacement. A host is not paired with itself.
    """


class Flows(Paired, _Flows):
    """Flows between pairs of hosts, usually long-lived."""


class Probes(Paired, _Workload):
    """Small datagrams that the receiver returns at once, as in ping. The one-way delays and the round-trip time of each
    are measured.
    """

    interval: Annotated[PositiveDuration, Field(examples=["200 ms"])]
    """Time between two probes of a pair. A probe does not wait for the reply to the previous one."""
    size: Annotated[Size, between(32, 65000, format_size)] = 64
    """Bytes of payload of each probe and reply."""
    stop: Duration | None = None
    """Time after which no probe is sent. The default is the lab's end."""
    spread: Duration = 0
    """Each pair starts at `start` plus a random time from 0 to this one, uniformly distributed."""


class Incast(_Flows):
    """Flows from many senders to one receiver at the same time."""

    senders: CountOrHosts
    """Number of senders (the first hosts except the receiver), or the senders."""
    receiver: str
    """The receiving host."""
    size: FlowSize
    """Bytes that each sender sends."""


class Udp(_Workload):
    """Datagrams at a constant rate from one host to another."""

    source: str = Field(alias="from")
    """The sending host."""
    to: str
    """The receiving host."""
    rate: PositiveRate
    """Bits of payload per second."""
    packet: Annotated[Size, between(1, 65507, format_size)] = 1472
    """Bytes of payload in each datagram."""
    size: FlowSize = None
    """Total bytes of payload. With `unlimited`, the default, the flow sends until `stop`."""
    stop: Duration | None = None
    """Time of its end. The default is the lab's end."""
    count: int = Field(default=1, ge=1, le=100_000)
    """Number of such flows."""


class Arrivals(_Stream):
    """Flows that arrive at random, whether or not the earlier ones have ended (open loop)."""

    source: Hosts | None = Field(default=None, alias="from")
    """The senders, one drawn for each flow. The default is all hosts."""
    to: Hosts | None = None
    """The receivers, one drawn for each flow, except its sender. The default is all hosts."""
    pairs: Annotated[list[tuple[str, str]], Field(min_length=1)] | None = None
    """Instead of `from` and `to`: the pairs from which each flow draws one."""
    interval: PositiveDuration | None = None
    """Mean time between two arrivals of the whole workload."""
    load: float | None = Field(default=None, gt=0, le=10)
    """Instead of `interval`: offered payload, as a share of the capacity of the senders' links or of the receivers'
    links, whichever is smaller in total.
    """
    together: OnOff = "off"
    """`on`: each arrival is an incast: a flow from every sender to every receiver (or for each of `pairs`) at the same
    time, each with a size of its own. `off`: each arrival is one flow of a drawn pair.
    """
    spacing: Literal["poisson", "fixed"] = "poisson"
    """Times between arrivals. `poisson`: exponentially distributed. `fixed`: always the mean."""
    size: SizesOrSize
    """Bytes of each flow: a size, or a distribution."""
    stop: Duration | None = None
    """Time after which no flow arrives. The default is the lab's end."""
    limit: int | None = Field(default=None, ge=1, le=LARGEST)
    """Maximum number of flows."""

    @model_validator(mode="after")
    def _one_pace(self) -> "Arrivals":
        if (self.interval is None) == (self.load is None):
            raise ValueError("expected exactly one of `interval`, `load`")
        if self.together == "on" and self.load is not None:
            raise ValueError("expected `interval` with `together`, not `load`")
        if self.pairs is not None and (self.source is not None or self.to is not None):
            raise ValueError("expected `pairs`, or `from` and `to`, not both")
        return self


class Replayed(NamedTuple):
    """A flow of a file."""

    start_ns: int
    src: str
    dst: str
    size_bytes: int


def _read_flows(name: str, info: ValidationInfo) -> str | list[Replayed]:
    """The flows of a CSV file. ValueError with the line that is none."""
    folder = (info.context or {}).get("folder")
    if folder is None:
        return name
    try:
        header, *lines = read_text(beneath(Path(folder), name), _LARGEST_REPLAY).splitlines() or [""]
    except OSError as error:
        raise ValueError(f"cannot read `{name}`: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"`{name}` is no text") from None
    columns = header.split(",")
    if sorted(columns) != sorted(Replayed._fields):
        raise ValueError(f"`{name}`, line 1: expected the columns `{','.join(Replayed._fields)}`, got `{header[:80]}`")
    if not lines:
        raise ValueError(f"`{name}` has no flows")
    return [_replayed(name, number, columns, line) for number, line in enumerate(lines, start=2)]


def _replayed(name: str, number: int, columns: list[str], line: str) -> Replayed:
    values = line.split(",")
    location = f"`{name}`, line {number}"
    if len(values) != len(columns):
        raise ValueError(f"{location}: expected {len(columns)} values, got `{line[:80]}`")
    row = dict(zip(columns, values, strict=True))
    for column, smallest in (("start_ns", 0), ("size_bytes", 1)):
        text = row[column]
        if not _INTEGER.fullmatch(text) or not smallest <= int(text) <= LARGEST:
            wanted = f"expected a whole number from {smallest} to {LARGEST}"
            raise ValueError(f"{location}: `{column}`: {wanted}, got `{text[:80]}`")
    return Replayed(int(row["start_ns"]), row["src"], row["dst"], int(row["size_bytes"]))


class Replay(_Stream):
    """Flows from a file: measured ones, or those of another run."""

    file: Annotated[str, AfterValidator(_read_flows)]
    """A CSV file beside the lab file, with the columns `start_ns`, `src`, `dst` and `size_bytes`, as
    `qbed sql RUN --csv "SELECT start_ns, src, dst, size_bytes FROM flows"` writes it. Times count from `start`.
    Flows after the lab's end do not start.
    """

    def flows(self) -> list[Replayed]:
        """The flows of `file`."""
        assert isinstance(self.file, list)
        return self.file


HEADER_BYTES = 16
"""Length of the header of a request or a burst: its size and the size of the response
(crates/agent/src/transport/exchanges).
"""


def _with_header(sizes: Sizes) -> Sizes:
    smallest = (
        sizes.fixed if sizes.fixed is not None else sizes.uniform[0] if sizes.uniform is not None else HEADER_BYTES
    )
    if smallest < HEADER_BYTES:
        raise ValueError(f"expected at least {HEADER_BYTES} B, which its header takes, got {format_size(smallest)}")
    return sizes


SizesWithHeader = Annotated[SizesOrSize, AfterValidator(_with_header)]


class _Closed(_Workload):
    """Fields of closed-loop workloads: the next step waits for the previous response."""

    tcp: CongestionControl | None = None
    """Congestion control instead of that of the hosts."""
    connect: Literal["at start", "before"] = "at start"
    """`at start`: a connection is opened at its first use. `before`: persistent connections are established before the
    epoch.
    """
    spread: Duration = 0
    """Each begins at `start` plus a random time from 0 to this one, uniformly distributed."""
    stop: Duration | None = None
    """Time after which nothing new begins. The default is the lab's end."""


class Requests(_Closed):
    """Clients that send requests to servers, wait for the responses, and pause before the next request."""

    clients: Hosts | None = None
    """Hosts that send requests."""
    servers: Hosts | None = None
    """Hosts that respond. A host that is also a client sends no request to itself."""
    pairs: Annotated[list[tuple[str, str]], Field(min_length=1)] | None = None
    """Instead of `clients` and `servers`: pairs of a client and a server."""
    fanout: Annotated[int, Field(ge=1)] | Literal["all"] = 1
    """Number of servers of an exchange, drawn for each one, or `all` (partition/aggregate: their responses are an
    incast). The exchange ends with the last response.
    """
    request: SizesWithHeader
    """Bytes of each request: a size, or a distribution. At least 16."""
    response: SizesOrSize
    """Bytes of each response: a size, or a distribution."""
    think: TimesOrTime = Times.model_validate({"fixed": "0 us"})
    """Time from the last response to the next request: a duration, or a distribution."""
    exchanges: int | None = Field(default=None, ge=1, le=LARGEST)
    """Number of exchanges of each client. The default is no limit before `stop` or the lab's end."""
    connections: Literal["persistent", "new"] = "persistent"
    """`persistent`: one connection to each server. `new`: one for each request, which the server closes."""
    outstanding: int = Field(default=1, ge=1, le=10_000)
    """Concurrent exchanges of each client (or pair), each on separate connections."""

    @model_validator(mode="after")
    def _check_hosts(self) -> "Requests":
        if (self.pairs is None) == (self.clients is None and self.servers is None):
            raise ValueError("expected `pairs`, or `clients` and `servers`")
        if self.pairs is None and (self.clients is None or self.servers is None):
            raise ValueError(f"`{'servers' if self.servers is None else 'clients'}` is missing")
        if self.connections == "new" and self.connect == "before":
            raise ValueError("`connect: before` needs persistent connections, but `connections` is `new`")
        if self.pairs is not None and self.fanout not in (1, "all"):
            raise ValueError(f"`fanout` is {self.fanout}, but a pair has one server; expected `clients` and `servers`")
        return self


class Bursts(Paired, _Closed):
    """Sources that send a burst, pause, and send the next one on the same connection."""

    size: SizesWithHeader | None = None
    """Bytes of each burst: a size, or a distribution. At least 16."""
    on: TimesOrTime | None = None
    """Instead of `size`: time during which a source writes as fast as TCP accepts: a duration, or a distribution."""
    off: TimesOrTime
    """Pause after the receiver has the complete burst: a duration, or a distribution."""
    bursts: int | None = Field(default=None, ge=1, le=LARGEST)
    """Number of bursts of each source. The default is no limit before `stop` or the lab's end."""
    count: int = Field(default=1, ge=1, le=100_000)
    """Number of sources for each pair of hosts."""

    @model_validator(mode="after")
    def _one_measure(self) -> "Bursts":
        if (self.size is None) == (self.on is None):
            raise ValueError("expected exactly one of `size`, `on`")
        return self


Stream = Flow | Flows | Incast | Arrivals | Replay
"""Workloads that have a transport."""
Content = Flow | Flows | Incast | Arrivals | Replay | Requests | Bursts | Udp | Probes


class Workload(Strict):
    """One entry of `workload`: exactly one of these."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1, "maxProperties": 1})

    flow: Flow | None = None
    """Flows from one host to another."""
    flows: Flows | None = None
    """Flows between pairs of hosts, usually long-lived."""
    incast: Incast | None = None
    """Flows from many senders to one receiver at the same time."""
    arrivals: Arrivals | None = None
    """Flows that arrive at random (open loop)."""
    replay: Replay | None = None
    """Flows from a file."""
    requests: Requests | None = None
    """Clients that send requests to servers and wait for the responses (closed loop)."""
    onoff: Bursts | None = None
    """Sources that send bursts and pause (closed loop)."""
    udp: Udp | None = None
    """Datagrams at a constant rate."""
    probes: Probes | None = None
    """Round trips of small datagrams: latency, loss."""

    @model_validator(mode="after")
    def _exactly_one(self) -> "Workload":
        if len([name for name in Workload.model_fields if getattr(self, name) is not None]) != 1:
            raise ValueError("expected exactly one of " + ", ".join(f"`{name}`" for name in Workload.model_fields))
        return self

    @property
    def kind(self) -> str:
        """The name of the one that is given."""
        return next(name for name in Workload.model_fields if getattr(self, name) is not None)

    @property
    def content(self) -> Content:
        """The one that is given."""
        found: Content = getattr(self, self.kind)
        return found
