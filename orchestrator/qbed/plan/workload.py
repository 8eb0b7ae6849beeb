# SPDX-License-Identifier: Apache-2.0
"""Workloads of the plan: flows, arrivals, exchanges and launches; the programs and controllers of its nodes."""

from typing import Annotated, Literal

from pydantic import Field

from qbed.network.frames import CONGESTION_BYTES, compact_bytes
from qbed.plan.base import AbsolutePath, Hex, Part, Prefix

Family = Literal[4, 6]
Pair = tuple[int, int]
"""Source and destination, by the index of the node."""
Dscp = Annotated[int, Field(ge=0, le=63)]


class Program(Part):
    """A program that runs as long as the lab, such as a routing daemon.

    It starts in its node once the links are up. The lab ends if the program ends or is not ready in time. Its output
    is in `out/NODE-PROGRAM.log`.
    """

    argv: list[str]
    """Program and arguments. The program is found by the node's PATH."""
    ready: AbsolutePath | None
    """The node's next program starts when this file exists; null: at once."""
    optional: bool
    """Whether a node without this program skips it."""


class Expectation(Part):
    """Required content of a forwarding table 1 s before the epoch."""

    to: Prefix
    """The route to every host address in this prefix is checked."""
    hops: int
    """Number of next hops that are up."""
    via: list[str]
    """Interfaces that the next hops may have."""


class Controller(Part):
    """Rate controller of a host's flows of the transport `rate`."""

    name: str
    """Name of the controller in the kernel module `qrate`."""
    parameters: Hex
    """Content of QRATE_A_PARAMETERS, by the numbers in `schemes/SCHEME/host/NAME.yml`."""
    signal: Literal["rtt", "sum", "sum_squ", "max", "ind", "vector"]
    """Signal that flows request from switches; `rtt`: none."""
    unit: Literal["packets", "bytes", "time"]
    """Unit of the signal."""
    bits: int
    """Number of bits of a switch's contribution: 1 to 32."""
    forward: bool
    """Whether the signal covers the forward path only."""
    compact: Annotated[int, Field(ge=0, lt=1 << 32)] | None = None
    """For compact headers: the buffer, in `unit`, whose shares the signal has. Null: full headers."""

    @property
    def header_bytes(self) -> int:
        """The length of its congestion header."""
        return CONGESTION_BYTES if self.compact is None else compact_bytes(self.signal, self.bits)


class Fixed(Part):
    """A constant."""

    fixed: int
    """The value in bytes or ns."""


class Exponential(Part):
    """An exponential distribution."""

    exponential: float
    """Mean in ns."""


class Uniform(Part):
    """A uniform distribution."""

    uniform: tuple[int, int]
    """Smallest and largest value in bytes or ns."""


class ParetoBytes(Part):
    """Parameters of a Pareto distribution of sizes."""

    mean_bytes: int
    """Mean without truncation."""
    shape: float
    """Shape, above 1."""
    max_bytes: int | None = None
    """Largest size: the distribution is truncated there."""


class ParetoSize(Part):
    """A Pareto distribution of sizes."""

    pareto: ParetoBytes
    """Parameters."""


class ParetoNs(Part):
    """Parameters of a Pareto distribution of times."""

    mean_ns: float
    """Mean."""
    shape: float
    """Shape, above 1."""


class ParetoTime(Part):
    """A Pareto distribution of times."""

    pareto: ParetoNs
    """Parameters."""


class Cdf(Part):
    """A distribution of sizes by its distribution function."""

    cdf: list[tuple[int, float]]
    """Points (bytes, probability), with lines between them; the last probability is 1."""


Size = Fixed | Uniform | ParetoSize | Cdf
Time = Fixed | Exponential | Uniform | ParetoTime
Interarrival = Exponential | Fixed


class Flows(Part):
    """One flow for each pair of nodes."""

    id: int
    """Index of the workload."""
    kind: Literal["flows"]
    """Kind of the workload."""
    label: str
    """Name in the results."""
    transport: Literal["tcp", "udp", "rate", "probe"]
    """`udp`: constant bit rate. `rate`: reliable flows over UDP with a controller. `probe`: datagrams that the peer
    returns at once.
    """
    pairs: list[Pair]
    """Source and destination of each flow."""
    size_bytes: int | None
    """Bytes of a flow; null: until `stop_ns`. The largest size if `each` is set."""
    start_ns: int
    """Start, after the epoch."""
    spread_ns: int
    """A flow starts up to this time after `start_ns`, uniformly distributed."""
    stop_ns: int | None
    """End of flows without a size, after the epoch; null: the end of the lab."""
    connect: Literal["at start", "before"]
    """`at start`: the handshake is part of the flow. `before`: connections open before the epoch."""
    port: int
    """Port of the receivers. All flows of the transport `rate` have QSIGNAL_PORT."""
    family: Family
    """IP version."""
    congestion_control: str | None
    """Congestion control of TCP; null: that of the host."""
    rate_bps: int | None
    """Rate of the payload of UDP in bit/s."""
    packet_bytes: int | None
    """Payload of a datagram of UDP, or of a probe (at least 32)."""
    payload_bytes: int | None
    """Payload of a packet of the transport `rate`."""
    each: list[tuple[int, int]] = []
    """For flows from a file: each flow's start in ns after `start_ns`, and its size in bytes."""
    interval_ns: int | None = None
    """Interval of probes; the first is sent at the start."""
    dscp: Dscp | None = None
    """DSCP of the packets in both directions; not with the transport `rate`."""


class Arrivals(Part):
    """An open-loop arrival process."""

    id: int
    """Index of the workload."""
    kind: Literal["arrivals"]
    """Kind of the workload."""
    label: str
    """Name in the results."""
    transport: Literal["tcp", "rate"]
    """Transport, as in flows."""
    sources: list[int] | None
    """Nodes, of which one is drawn uniformly for each arrival; null if `pairs` is set."""
    destinations: list[int] | None
    """Nodes, of which one other than the source is drawn uniformly; null if `pairs` is set."""
    pairs: list[Pair] | None
    """Source and destination, of which one pair is drawn uniformly."""
    interarrival_ns: Interarrival
    """Time between arrivals."""
    size: Size
    """Size of a flow."""
    start_ns: int
    """Start, after the epoch."""
    stop_ns: int | None
    """End of the arrivals, after the epoch; flows that have arrived continue. Null: the end of the lab."""
    limit: int | None
    """Largest number of flows."""
    connect: Literal["at start", "before"]
    """As in flows."""
    port: int
    """Port of the receivers."""
    family: Family
    """IP version."""
    congestion_control: str | None
    """As in flows."""
    payload_bytes: int | None
    """As in flows."""
    together: bool = False
    """Whether every pair has a flow of its own size at each arrival."""
    dscp: Dscp | None = None
    """As in flows."""

    @property
    def flows_at_once(self) -> int:
        """The flows of each arrival."""
        if not self.together:
            return 1
        if self.pairs is not None:
            return len(self.pairs)
        sources, destinations = self.sources or [], self.destinations or []
        return len(sources) * len(destinations) - len(set(sources) & set(destinations))

    @property
    def mean_interarrival_ns(self) -> float:
        """Mean time between arrivals."""
        interarrival_ns = self.interarrival_ns
        return interarrival_ns.exponential if isinstance(interarrival_ns, Exponential) else interarrival_ns.fixed


class Exchanges(Part):
    """Clients that send requests, wait for all responses, think, and repeat (closed loop)."""

    id: int
    """Index of the workload."""
    kind: Literal["exchanges"]
    """Kind of the workload."""
    label: str
    """Name in the results."""
    transport: Literal["exchanges"]
    """Transport."""
    sources: list[int] | None
    """Nodes, each with `outstanding` clients; null if `pairs` is set."""
    destinations: list[int] | None
    """Nodes with a server; null if `pairs` is set."""
    pairs: list[Pair] | None
    """Client and server nodes, each pair with `outstanding` clients."""
    fanout: int | None
    """Number of other destinations, drawn for each exchange, to which a client sends; null: all."""
    request: Size | None
    """Size of a request; null if `on_ns` is set."""
    on_ns: Time | None
    """Time during which the client sends as fast as its socket allows, instead of a size."""
    response: Size | None
    """Size of a response; null: the server acknowledges the whole request with 8 bytes."""
    think_ns: Time
    """Time from the last response to the next request."""
    limit: int | None
    """Largest number of exchanges of a client."""
    persistent: bool
    """Whether a client keeps one connection to each server; otherwise each exchange opens one."""
    outstanding: int
    """Number of clients of each source or pair."""
    start_ns: int
    """Start, after the epoch."""
    spread_ns: int
    """A client starts up to this time after `start_ns`, uniformly distributed."""
    stop_ns: int | None
    """No exchange begins from this time on; null: the end of the lab."""
    connect: Literal["at start", "before"]
    """`at start`: connections open at their first use. `before`: persistent connections open before the epoch."""
    port: int
    """Port of the servers."""
    family: Family
    """IP version."""
    congestion_control: str | None
    """As in flows."""
    dscp: Dscp | None = None
    """As in flows."""


Workload = Annotated[Flows | Arrivals | Exchanges, Field(discriminator="kind")]


class Launch(Part):
    """A program that starts on a node at a given time."""

    program: int
    """Index of its entry in the lab file; the agent ignores it."""
    label: str
    """Name in the results."""
    node: int
    """Index of the node."""
    argv: list[str]
    """Program and arguments."""
    environment: dict[str, str]
    """Variables beside those of the node."""
    folder: AbsolutePath
    """Working folder, as programs of the node see it."""
    start_ns: int
    """Start, after the epoch; negative before it, at least -1 s."""
    stop_ns: int | None
    """When the program and its children get SIGTERM, and SIGKILL 1 s later; null: they run on."""
    any_status: bool
    """Whether another exit status than 0 is accepted; otherwise it ends the lab."""
    output: Literal["text", "json", "key=value"]
    """Format of the output, for the results; the agent ignores it."""
