# SPDX-License-Identifier: Apache-2.0
"""The kinds of workload a lab file can list: each entry of `workload` is one of them."""

import re
from itertools import pairwise
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
from qbed.config.reach import ReachError, beneath
from qbed.config.strict import Strict
from qbed.config.units import LARGEST, Duration, PositiveDuration, PositiveRate, Size, between, format_size, shown
from qbed.lab.published import PUBLISHED
from qbed.lab.settings import CongestionControl, OnOff

_LARGEST_CDF, _LARGEST_REPLAY = MIB, 64 * MIB
_WHOLE = re.compile("[0-9]{1,19}")


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
    """A name for the results; the workload's kind without it."""
    start: Duration = 0
    """When it begins, counted from the lab's epoch."""
    family: Literal[4, 6] | None = None
    """IPv4 or IPv6, where the lab has both addresses; 4 without it."""
    dscp: Dscp | None = None
    """The class that its packets have, those of both directions: `EF`, `CS1`, `AF41`, or the number. For queues that
    look at it, such as cake's `diffserv4`. Not of the transport `rate`.
    """


class _Stream(_Workload):
    """Fields of workloads with reliable flows."""

    transport: Literal["tcp", "rate"] = "tcp"
    """`tcp`, or `rate`: reliable flows over UDP, each paced by its sender's controller (`hosts.NAME.controller`)."""
    tcp: CongestionControl | None = None
    """Congestion control instead of the hosts' own, of the transport `tcp`."""
    connect: Literal["at start", "before"] = "at start"
    """`at start`: the handshake is part of the flow; `before`: connections stand before the epoch. The transport `rate`
    has no handshake.
    """


def _size(value: object) -> object:
    return None if value == "unlimited" else value


FlowSize = Annotated[Size | None, BeforeValidator(_size, json_schema_input_type=Size | Literal["unlimited"])]


class _Flows(_Stream):
    """Fields of workloads with flows between given hosts."""

    size: FlowSize = None
    """Bytes of each flow; `unlimited` (or none) sends until `stop`."""
    stop: Duration | None = None
    """When unlimited flows stop; the lab's end without it."""
    spread: Duration = 0
    """Each flow starts at `start` plus a random share of this, uniformly."""
    count: int = Field(default=1, ge=1, le=100_000)
    """How many flows for each pair of hosts."""


class Flow(_Flows):
    """Flows from one host to another."""

    source: str = Field(alias="from")
    """The sending host."""
    to: str
    """The receiving host."""


class Paired(Strict):
    """Fields of workloads between pairs of hosts."""

    pairs: Annotated[list[tuple[str, str]], Field(min_length=1)] | None = None
    """The pairs: sender, receiver."""
    source: Hosts | None = Field(default=None, alias="from")
    """The senders; the first sends to the first of `to`, and so on."""
    to: Hosts | None = None
    """The receivers: as many as senders, or one for all."""
    pairing: Literal["in order", "permutation", "random"] = "in order"
    """Pairing of `from` and `to`: in their order, or drawn by the seed, no host with itself: each receiver once
    (`permutation`), or any for each sender, with replacement (`random`).
    """


class Flows(Paired, _Flows):
    """Flows between pairs of hosts, usually long-lived."""


class Probes(Paired, _Workload):
    """Small datagrams that the other host sends back at once, as ping does: each one's latency there and back is
    measured.
    """

    interval: Annotated[PositiveDuration, Field(examples=["200 ms"])]
    """From one probe of a pair to the next. None waits for the answer to the one before."""
    size: Annotated[Size, between(32, 65000, format_size)] = 64
    """Bytes of payload in each datagram, there and back."""
    stop: Duration | None = None
    """When the last may be sent; the lab's end without it."""
    spread: Duration = 0
    """Each pair starts at `start` plus a random share of this, uniformly."""


class Incast(_Flows):
    """Many senders, one receiver, at once."""

    senders: CountOrHosts
    """How many (the first hosts except the receiver), or which."""
    receiver: str
    """The receiving host."""
    size: FlowSize
    """Bytes of each sender."""


class Udp(_Workload):
    """Datagrams at a constant rate from one host to another."""

    source: str = Field(alias="from")
    """The sending host."""
    to: str
    """The receiving host."""
    rate: PositiveRate
    """Bits of payload a second."""
    packet: Annotated[Size, between(1, 65507, format_size)] = 1472
    """Bytes of payload in each datagram."""
    size: FlowSize = None
    """Bytes of payload in all; `unlimited` (or none) sends until `stop`."""
    stop: Duration | None = None
    """When it stops; the lab's end without it."""
    count: int = Field(default=1, ge=1, le=100_000)
    """How many such flows."""


class Pareto(Strict):
    """A Pareto distribution of sizes."""

    mean: Annotated[Size, between(1, LARGEST, format_size)]
    """The mean; without `most`, where there is one."""
    shape: float = Field(gt=1, le=100)
    """The tail's exponent: above 1, or there is no mean."""
    most: Annotated[Size | None, Field(examples=["100 KB"])] = None
    """The largest: what would be larger is drawn again, so that the sizes' mean is below `mean`."""

    @model_validator(mode="after")
    def _above_the_least(self) -> "Pareto":
        if self.most is not None and not self.least_bytes < self.most <= LARGEST:
            raise ValueError(f"`most` needs more than the smallest size, {self.least_bytes:.0f} B, got {self.most} B")
        return self

    @property
    def least_bytes(self) -> float:
        """The smallest."""
        return self.mean * (self.shape - 1) / self.shape

    def mean_bytes(self) -> float:
        """The mean of what is drawn."""
        if self.most is None:
            return float(self.mean)
        beyond = self.least_bytes / self.most
        return float(self.mean * (1 - beyond ** (self.shape - 1)) / (1 - beyond**self.shape))


def _read_cdf(name: str, info: ValidationInfo) -> str | list[tuple[int, float]]:
    """The points (bytes, probability) of a file of two columns; `#` starts a comment. ValueError if they are no
    distribution.
    """
    folder = (info.context or {}).get("folder")
    if folder is None:
        return name
    try:
        lines = read_text(beneath(Path(folder), name), _LARGEST_CDF).splitlines()
        rows = [line.partition("#")[0].split() for line in lines]
        points = [(int(row[0]), float(row[1])) for row in rows if row]
    except OSError as error:
        raise ValueError(f"cannot read `{name}`: {error.strerror}") from None
    except ReachError:
        raise
    except (ValueError, IndexError, UnicodeDecodeError):
        raise ValueError(f"`{name}`: expected lines of two numbers: bytes, cumulative probability") from None
    rising = all(a[0] <= b[0] and a[1] <= b[1] for a, b in pairwise(points))
    if not points or not rising or points[0][0] < 1 or points[0][1] < 0 or points[-1][1] != 1:
        raise ValueError(f"`{name}`: expected sizes from 1 and probabilities that rise to 1")
    if points[-1][0] > LARGEST:
        raise ValueError(f"`{name}`: expected sizes of at most {LARGEST} bytes")
    return points


Cdf = Annotated[str, AfterValidator(_read_cdf)]


class Sizes(Strict):
    """A distribution of flow sizes: exactly one of these."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1, "maxProperties": 1})

    fixed: Annotated[Size, between(1, LARGEST, format_size)] | None = None
    """Every flow has this size."""
    uniform: tuple[Size, Size] | None = None
    """From the first to the second, all equally likely."""
    pareto: Pareto | None = None
    """Many small flows and few huge ones."""
    cdf: Cdf | None = None
    """A file beside the lab file with lines of two numbers: bytes, cumulative probability."""
    published: Literal["web-search", "data-mining"] | None = None
    """As a paper measured them: `web-search` (Data Center TCP, SIGCOMM 2010, Fig. 4) or `data-mining` (VL2, SIGCOMM
    2009, Fig. 2).
    """

    @model_validator(mode="after")
    def _exactly_one(self) -> "Sizes":
        given = [name for name in Sizes.model_fields if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError("expected exactly one of " + ", ".join(f"`{name}`" for name in Sizes.model_fields))
        if self.uniform is not None and not 1 <= self.uniform[0] <= self.uniform[1]:
            raise ValueError("`uniform` needs two sizes from 1 byte, the smaller first")
        return self

    def mean_bytes(self) -> float:
        """The mean."""
        if self.fixed is not None:
            return float(self.fixed)
        if self.uniform is not None:
            return sum(self.uniform) / 2
        if self.pareto is not None:
            return self.pareto.mean_bytes()
        points = self.points()
        steps = zip([(points[0][0], 0.0), *points], points, strict=False)
        return sum((b[1] - a[1]) * (a[0] + b[0]) / 2 for a, b in steps)

    def points(self) -> list[tuple[int, float]]:
        """The points of `cdf` or `published`: bytes, cumulative probability."""
        if self.published is not None:
            return list(PUBLISHED[self.published])
        assert isinstance(self.cdf, list)
        return self.cdf


def _fixed_size(value: object) -> object:
    return {"fixed": value} if isinstance(value, str) else value


class Arrivals(_Stream):
    """Flows that arrive at random, whether or not the earlier ones have ended (open loop)."""

    source: Hosts | None = Field(default=None, alias="from")
    """The senders; each flow draws one. All hosts without it."""
    to: Hosts | None = None
    """The receivers; each flow draws one that is not its sender. All hosts without it."""
    pairs: Annotated[list[tuple[str, str]], Field(min_length=1)] | None = None
    """Instead of `from` and `to`: the pairs from which each flow draws one."""
    interval: PositiveDuration | None = None
    """Mean time between two arrivals of the whole workload."""
    load: float | None = Field(default=None, gt=0, le=10)
    """Instead of `interval`: payload offered, as a share of what the senders' links or the receivers' links (the
    smaller sum) carry.
    """
    together: OnOff = "off"
    """`on`: at each arrival every sender starts a flow of its own size to every receiver (or each of `pairs` does), at
    the same instant: an incast. `off`: one that is drawn.
    """
    spacing: Literal["poisson", "fixed"] = "poisson"
    """`poisson`: exponential times between arrivals; `fixed`: always the mean."""
    size: Annotated[Sizes, BeforeValidator(_fixed_size, json_schema_input_type=Size | Sizes)]
    """Bytes of each flow: a size, or a distribution."""
    stop: Duration | None = None
    """When the last flow may arrive; the lab's end without it."""
    limit: int | None = Field(default=None, ge=1, le=LARGEST)
    """The most flows."""

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
    here = f"`{name}`, line {number}"
    if len(values) != len(columns):
        raise ValueError(f"{here}: expected {len(columns)} values, got `{line[:80]}`")
    row = dict(zip(columns, values, strict=True))
    for column, least in (("start_ns", 0), ("size_bytes", 1)):
        text = row[column]
        if not _WHOLE.fullmatch(text) or not least <= int(text) <= LARGEST:
            wanted = f"expected a whole number from {least} to {LARGEST}"
            raise ValueError(f"{here}: `{column}`: {wanted}, got `{text[:80]}`")
    return Replayed(int(row["start_ns"]), row["src"], row["dst"], int(row["size_bytes"]))


class Replay(_Stream):
    """Flows from a file: measured ones, or those of another run."""

    file: Annotated[str, AfterValidator(_read_flows)]
    """A CSV file beside the lab file, with the columns `start_ns`, `src`, `dst` and `size_bytes`, as
    `qbed sql RUN --csv "SELECT start_ns, src, dst, size_bytes FROM flows"` writes it; times count from `start`. What
    starts after the lab's end does not.
    """

    def flows(self) -> list[Replayed]:
        """The flows of `file`."""
        assert isinstance(self.file, list)
        return self.file


class ParetoTime(Strict):
    """A Pareto distribution of times."""

    mean: PositiveDuration
    """The mean."""
    shape: float = Field(gt=1, le=100)
    """The tail's exponent: above 1, or there is no mean."""


class Times(Strict):
    """A distribution of times: exactly one of these."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1, "maxProperties": 1})

    fixed: Duration | None = None
    """Always this long."""
    exponential: PositiveDuration | None = None
    """Exponential distribution with this mean."""
    uniform: tuple[Duration, Duration] | None = None
    """From the first to the second, all equally likely."""
    pareto: ParetoTime | None = None
    """Mostly short, seldom very long."""

    @model_validator(mode="after")
    def _exactly_one(self) -> "Times":
        if len([name for name in Times.model_fields if getattr(self, name) is not None]) != 1:
            raise ValueError("expected exactly one of " + ", ".join(f"`{name}`" for name in Times.model_fields))
        if self.uniform is not None and self.uniform[0] > self.uniform[1]:
            raise ValueError("`uniform` needs two times, the shorter first")
        return self


def _fixed_time(value: object) -> object:
    return value if isinstance(value, dict | Times) else {"fixed": value}


HEADER_BYTES = 16
"""Length of the header of a request or a burst: its size and the size of the response
(crates/agent/src/transport/exchanges).
"""
SizesOrSize = Annotated[Sizes, BeforeValidator(_fixed_size, json_schema_input_type=Size | Sizes)]
TimesOrTime = Annotated[Times, BeforeValidator(_fixed_time, json_schema_input_type=Duration | Times)]


def _with_header(sizes: Sizes) -> Sizes:
    least = sizes.fixed if sizes.fixed is not None else sizes.uniform[0] if sizes.uniform is not None else HEADER_BYTES
    if least < HEADER_BYTES:
        raise ValueError(f"expected at least {HEADER_BYTES} B, which its header takes, got {format_size(least)}")
    return sizes


SizesWithHeader = Annotated[SizesOrSize, AfterValidator(_with_header)]


class _Closed(_Workload):
    """Fields of closed-loop workloads: the next step waits for the previous response."""

    tcp: CongestionControl | None = None
    """Congestion control instead of the hosts' own."""
    connect: Literal["at start", "before"] = "at start"
    """`at start`: a connection is opened when it is first used; `before`: those that stay stand before the epoch."""
    spread: Duration = 0
    """Each begins at `start` plus a random share of this, uniformly."""
    stop: Duration | None = None
    """Nothing new begins then; the lab's end without it."""


class Requests(_Closed):
    """Clients that ask servers, wait for the answers, think, and ask again."""

    clients: Hosts | None = None
    """Those who ask."""
    servers: Hosts | None = None
    """Those who answer; who is a client, too, does not ask itself."""
    pairs: Annotated[list[tuple[str, str]], Field(min_length=1)] | None = None
    """Instead of `clients` and `servers`: the pairs, client and server."""
    fanout: Annotated[int, Field(ge=1)] | Literal["all"] = 1
    """How many servers are asked at once, drawn anew each time, or `all` of them (partition/aggregate, an incast of
    their answers). The exchange is over when all have answered.
    """
    request: SizesWithHeader
    """Bytes that each server is asked with: a size, or a distribution. At least 16."""
    response: SizesOrSize
    """Bytes of each answer: a size, or a distribution."""
    think: TimesOrTime = Times.model_validate({"fixed": "0 us"})
    """Time from the last answer to the next question: a duration, or a distribution."""
    exchanges: int | None = Field(default=None, ge=1, le=LARGEST)
    """How many of each client; until the lab's end (or `stop`) without it."""
    connections: Literal["persistent", "new"] = "persistent"
    """`persistent`: to each server one that stays; `new`: one for each question, which the server closes."""
    outstanding: int = Field(default=1, ge=1, le=10_000)
    """Exchanges that each client (or pair) has under way at once, each on connections of its own."""

    @model_validator(mode="after")
    def _whole(self) -> "Requests":
        if (self.pairs is None) == (self.clients is None and self.servers is None):
            raise ValueError("expected `pairs`, or `clients` and `servers`")
        if self.pairs is None and (self.clients is None or self.servers is None):
            raise ValueError(f"`{'servers' if self.servers is None else 'clients'}` is missing")
        if self.connections == "new" and self.connect == "before":
            raise ValueError("`connect: before` is of connections that stay, but `connections` is `new`")
        if self.pairs is not None and self.fanout not in (1, "all"):
            raise ValueError(f"`fanout` is {self.fanout}, but a pair has one server; expected `clients` and `servers`")
        return self


class Bursts(Paired, _Closed):
    """Sources that send a burst, pause, and send the next one on the same connection."""

    size: SizesWithHeader | None = None
    """Bytes of each burst: a size, or a distribution. At least 16."""
    on: TimesOrTime | None = None
    """Instead of `size`: how long a source writes as fast as TCP takes it, a duration or a distribution."""
    off: TimesOrTime
    """The pause, from when the receiver has the whole burst: a duration, or a distribution."""
    bursts: int | None = Field(default=None, ge=1, le=LARGEST)
    """How many of each source; until the lab's end (or `stop`) without it."""
    count: int = Field(default=1, ge=1, le=100_000)
    """How many sources for each pair of hosts."""

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
    """Many senders, one receiver, at once."""
    arrivals: Arrivals | None = None
    """Flows that arrive at random (open loop)."""
    replay: Replay | None = None
    """Flows from a file."""
    requests: Requests | None = None
    """Clients that ask servers and wait for their answers (closed loop)."""
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
