# SPDX-License-Identifier: Apache-2.0
"""Settings of links, switches and hosts: the models under `links`, `switches` and `hosts`."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, GetJsonSchemaHandler, StrictInt
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from qbed.base.errors import nearest
from qbed.config.strict import Strict
from qbed.config.units import (
    LARGEST,
    Amount,
    Duration,
    Packets,
    PositiveRate,
    Share,
    Size,
    between,
    format_duration,
    format_packets,
)
from qbed.lab.sysctls import once, sysctl_path, sysctl_value
from qbed.schemes.congestion import control_names


class _ControlNames:
    """The JSON Schema of a congestion control's name: those of the kernel and of `congestion/`, read when needed."""

    def __get_pydantic_json_schema__(self, _core: CoreSchema, _handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"enum": control_names()}


def _control(name: str) -> str:
    if name not in control_names():
        raise ValueError(f"no congestion control is called `{name}`{nearest(name, control_names())}")
    return name


IMAGE = "[A-Za-z0-9][A-Za-z0-9._:/@-]{0,254}"
"""The name of an image, with a tag or digest, as a regular expression."""

CongestionControl = Annotated[str, AfterValidator(_control), _ControlNames()]
"""The name of a congestion control: one of the lab's kernel, or of a folder in `congestion/`."""


def _switch(value: object) -> object:
    """`on`/`off` as YAML 1.1 readers (a campaign's axis, an editor) may have turned them into booleans."""
    return {True: "on", False: "off"}.get(value, value) if isinstance(value, bool) else value


def _one_or_list(value: object) -> object:
    return value if isinstance(value, list) else [value]


OnOff = Annotated[Literal["on", "off"], BeforeValidator(_switch)]
Rates = Annotated[
    list[PositiveRate],
    BeforeValidator(_one_or_list, json_schema_input_type=PositiveRate | list[PositiveRate]),
    Field(min_length=1),
]
Durations = Annotated[
    list[Duration], BeforeValidator(_one_or_list, json_schema_input_type=Duration | list[Duration]), Field(min_length=1)
]

Sysctls = Annotated[
    dict[Annotated[str, AfterValidator(sysctl_path)], Annotated[str | int, AfterValidator(sysctl_value)]],
    BeforeValidator(once),
]


Given = dict[str, Any]
"""Settings that a file gives, by their names."""


class LinkFields(Strict):
    """A link's fields, of one direction or of both."""

    rate: Rates | None = None
    """Bits per second on the wire. A list spreads over the links that this entry names, in their order, in equal
    blocks.
    """
    delay: Durations | None = None
    """Propagation delay of one direction. A list spreads as with `rate`."""
    overhead: Annotated[Size | None, Field(examples=["24 B"])] = None
    """Bytes that each frame costs on the wire beyond its Ethernet header and payload: 24 for preamble, FCS and gap."""
    loss: Share | None = None
    """Probability that a frame is lost on the link, below 1."""
    jitter: Annotated[Duration | None, Field(examples=["1 ms"])] = None
    """Maximum delay beyond `delay`, uniformly distributed for each frame. Frames are not reordered."""
    reordering: OnOff | None = None
    """With `on`, `jitter` reorders frames: a frame with a smaller delay overtakes earlier ones."""
    mtu: Annotated[Size | None, Field(examples=["1500 B"])] = None
    """Largest IP packet, the same at both ends of a link."""

    def given(self) -> Given:
        """The fields that the file gives, without the structural ones of subclasses."""
        return {name: getattr(self, name) for name in LinkFields.model_fields if getattr(self, name) is not None}


class LinkSettings(LinkFields):
    """Settings of both ends of links, and in `ends` those of single ends."""

    ends: dict[str, LinkFields] = Field(default_factory=dict)
    """Settings of single transmitters, by their node's name, instead of those of the link."""


class QueueSettings(Strict):
    """A queue's scheme and length; the scheme's parameters are given beside them (docs/lab-file.md lists them)."""

    model_config = ConfigDict(defer_build=True, extra="allow", frozen=True)

    scheme: str | None = None
    """The queueing scheme: a folder of `schemes/`."""
    preset: str | None = None
    """Name of a set of the scheme's parameters. Parameters in the file take precedence over it."""
    buffer: Amount | None = None
    """Limit of the queue, in bytes of frames with their 14-byte Ethernet header, or in packets."""
    qdisc: str | None = None
    """Instead of a scheme: a qdisc of the lab kernel in the syntax of `tc`, such as `fq_codel limit 100`."""

    def given(self) -> Given:
        """The fields that the file gives, parameters included."""
        values = {name: getattr(self, name) for name in type(self).model_fields}
        return {name: value for name, value in values.items() if value is not None} | (self.model_extra or {})


P4Engine = Literal["p4switch", "simple_switch_grpc"]


class RecirculationSettings(Strict):
    """A recirculation port: packets that a switch's P4 program sends there return to its ingress."""

    port: Annotated[int | None, Field(ge=0, le=510)] = None
    """Port number that no link has. The default is 510."""
    rate: PositiveRate | None = None
    """Rate of the port, where each packet has the 24 bytes that Ethernet adds, and at least 84 bytes in total. The
    default is unlimited, and for `abq` the rate of the switch's fastest link.
    """
    buffer: Amount | None = None
    """Limit of its queue. The default is 1000 packets, and for `abq` all packets that it may hold."""

    def given(self) -> Given:
        """The fields that the file gives."""
        return {name: value for name in type(self).model_fields if (value := getattr(self, name)) is not None}


Value = StrictInt | str
"""A value in P4: a number, `0x1f`, an address, or `>h1`, the port that leads to h1."""


class EntrySettings(Strict):
    """A table entry of a P4 program, or without `match` the table's default action."""

    match: dict[str, Value] | None = None
    """Values by the names of the key's fields: exact `7`, lpm `10.0.1.0/24`, ternary `0x10&&&0xf0`, range `5..9`.
    A field that is left out or `*` matches any value, unless it is of the kind exact.
    """
    action: str
    """Name of one of the table's actions."""
    params: dict[str, Value] = Field(default_factory=dict)
    """Parameters of the action, by name."""
    priority: Annotated[int | None, Field(ge=1, le=2**31 - 1)] = None
    """Priority if several entries match: the highest wins; by default the first entry wins."""


class CloneSettings(Strict):
    """Ports of a switch's clone session."""

    ports: Annotated[list[Value], Field(min_length=1)]
    """Port numbers, or `>h1`."""
    truncate: Size | None = None
    """Length in bytes to which clones are truncated."""


class SwitchSettings(QueueSettings):
    """Settings of a switch, or of one of its ports: the queue towards the port's peer."""

    kind: Literal["linux", "bmv2"] | None = None
    """Kind of switch: `linux`: the lab's kernel forwards, and the queues have the scheme; `bmv2`: a P4 program does
    both (docs/p4.md), that of the scheme or `program`. The default is `bmv2` if there is a `program`. Only for a whole
    switch.
    """
    program: str | None = None
    """P4 program of the switch: a scheme with a P4 program (`stamp`), or a path beside the lab file (`./mine.p4`, with
    p4c's output `mine.json` and `mine.p4info.txtpb` beside it). Only for a whole switch.
    """
    recirculation: RecirculationSettings | None = None
    """Recirculation port of a P4 switch. `qcn` and `abq` always have one. Only for a whole switch."""
    tables: dict[str, list[EntrySettings]] | None = None
    """Table entries of a user-supplied program, by the tables' names in P4Info."""
    initial: dict[str, dict[str, Value]] | None = None
    """Initial register values of a user-supplied program: `{name: {3: 20, 8..15: 0x1f}}`."""
    clones: dict[int, CloneSettings] | None = None
    """Clone sessions of a user-supplied program: `{1: {ports: [510], truncate: 64 B}}`."""
    groups: dict[int, list[Value]] | None = None
    """Multicast groups of a user-supplied program: `{1: [">h1", ">h2"]}`."""
    controller: Annotated[str, BeforeValidator(_switch), Field(examples=["./mine.py"])] | None = None
    """Script beside the lab file that controls a P4 switch by P4Runtime during the run (docs/p4.md); `off`:
    none.
    """
    engine: P4Engine | None = None
    """Engine in containers: `p4switch` (the default, qbed's, in the lab's kernel) or `simple_switch_grpc` (BMv2, beside
    the switch's container: docs/containers.md). In virtual time it is always `p4switch`. Only for a whole switch.
    """


def _queue(value: object) -> object:
    return {"buffer": value} if isinstance(value, str) else value


HostQueue = Annotated[QueueSettings, BeforeValidator(_queue, json_schema_input_type=Amount | QueueSettings)]


class ControllerSettings(Strict):
    """The rate controller of a host's flows of the transport `rate`. The controller's parameters are given beside these
    fields (docs/lab-file.md lists them).
    """

    model_config = ConfigDict(defer_build=True, extra="allow", frozen=True)

    name: str | None = None
    """The controller: a file of `schemes/SCHEME/host/`."""
    signal: Literal["rtt", "sum", "sum_squ", "max", "ind", "vector"] | None = None
    """Signal that its flows request from switches: the sum of the queues on the path, the root of the sum of their
    squares, the maximum, whether any of them exceeds its switch's threshold, or each one's length (`vector`); `rtt`
    (default): none.
    """
    unit: Literal["packets", "bytes", "time"] | None = None
    """Unit of occupancy; `packets` by default."""
    bits: Annotated[int | None, Field(ge=1, le=32)] = None
    """Number of bits of a switch's part of the signal; 32 by default."""
    forward: OnOff | None = None
    """Whether the signal excludes the queues of the return path. The default is `off`."""
    header: Literal["full", "compact"] | None = None
    """Header of its flows' packets: `full` (default), 88 bytes; `compact`, 20 bytes and the signal in as many bytes as
    `bits` need. A compact header carries `sum`, `max` or `ind`, as a share of the buffer, so all buffers have to be
    equal.
    """

    def given(self) -> Given:
        """The fields that the file gives, parameters included."""
        values = {name: getattr(self, name) for name in CONTROLLER_FIELDS}
        return {name: value for name, value in values.items() if value is not None} | (self.model_extra or {})


CONTROLLER_FIELDS = frozenset(ControllerSettings.model_fields)
"""No controller may have parameters of these names."""


def _controller(value: object) -> object:
    return {"name": value} if isinstance(value, str) else value


HostController = Annotated[
    ControllerSettings, BeforeValidator(_controller, json_schema_input_type=str | ControllerSettings)
]


class HostSettings(Strict):
    """Settings of a host: its TCP, its rate controller and the queue of its network card."""

    tcp: CongestionControl | None = None
    """Congestion control of its flows, unless their workload names another: one of Linux's, or of a folder in
    `congestion/`.
    """
    ecn: Annotated[Literal["on", "off", "default"], BeforeValidator(_switch)] | None = None
    """Whether TCP requests ECN. `default`: if the congestion control needs it, or if the peer requests it."""
    rto_min: Annotated[Duration, between(1_000, LARGEST, format_duration)] | None = None
    """Minimum retransmission timeout of TCP. Linux's default is 200 ms."""
    initial_window: Annotated[Packets, between(1, 65535, format_packets)] | None = None
    """Initial congestion window of TCP. Linux's default is 10 packets."""
    delayed_ack: OnOff | None = None
    """Whether TCP may delay acknowledgements; `off` acknowledges every segment at once."""
    offload: Annotated[Literal["tso", "off"], BeforeValidator(_switch)] | None = None
    """Offload of TCP's work to the network card. `tso`: TCP hands it bursts of up to 64 KB, as a pacing rate of 1 ms
    allows; each is one packet of the host's queue, and is sent as frames of the MTU, back to back. In virtual time
    only. `off` (default): each segment is a packet.
    """
    sysctls: Sysctls = Field(default_factory=dict)
    """Other sysctls of a network namespace (`orchestrator/qbed/lab/sysctls.py` lists them), by their path under
    /proc/sys: `net/ipv4/tcp_sack: 0`, or `net.ipv4.tcp_sack: 0`. They take precedence over the values that qbed sets.
    """
    controller: HostController | None = None
    """Rate controller of flows of the transport `rate`: a name, or a name with settings."""
    reflect: Annotated[Share | None, Field(examples=["2.5 %"])] = None
    """Probability with which a received data packet's QCN feedback is reflected to the sender, for the transport `rate`
    (P0 of QCN's reflection point); 0 by default.
    """
    queue: HostQueue | None = None
    """Queue of the host's network card: a length (droptail) or a scheme. The default is 1000 packets."""
    kernel: Literal["auto", "host", "qbed"] | None = None
    """Kernel in containers: the machine's (`host`), the lab's (`qbed`), or `auto`: the machine's if it has all that the
    lab needs and the lab runs undilated. In virtual time it is always the lab's.
    """
    image: Annotated[str, Field(pattern=f"^{IMAGE}$")] | None = None
    """Image that runs with its default command in containers, in the host's network namespace, beside qbed's programs.
    The host has the machine's kernel. The command is root on the machine, so the lab needs `--trust`. In virtual time
    it is not run.
    """

    def given(self) -> Given:
        """The fields that the file gives."""
        return {name: getattr(self, name) for name in type(self).model_fields if getattr(self, name) not in (None, {})}
