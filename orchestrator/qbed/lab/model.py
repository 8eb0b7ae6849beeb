# SPDX-License-Identifier: Apache-2.0
"""The lab file's typed model; `qbed.network.load` reads one."""

import re
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    StrictBool,
    StrictInt,
    WithJsonSchema,
    create_model,
    model_validator,
)

from qbed.config.strict import Strict
from qbed.config.units import (
    DURATIONS,
    Duration,
    PositiveDuration,
    Size,
    between,
    format_size,
    parse_duration,
    pattern,
)
from qbed.lab.events import Event
from qbed.lab.frr import FrrSettings
from qbed.lab.parameters import in_bounds, parameter
from qbed.lab.programs import Program
from qbed.lab.settings import HostSettings, LinkSettings, SwitchSettings
from qbed.lab.topology import Network, check_size, generators
from qbed.lab.workloads import Workload


class _OneTopology(Strict):
    """The lab's nodes and links: exactly one generator with its settings."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1, "maxProperties": 1})

    @model_validator(mode="after")
    def _exactly_one(self) -> "_OneTopology":
        if len(self._given()) != 1:
            raise ValueError("expected exactly one of " + ", ".join(f"`{name}`" for name in generators()))
        return self

    def _given(self) -> list[str]:
        return [name for name in generators() if getattr(self, name.replace("-", "_")) is not None]

    @property
    def generator(self) -> str:
        """The name of the generator."""
        return self._given()[0]

    def build(self) -> Network:
        """The network. TopologyError if the settings do not fit together."""
        settings = getattr(self, self.generator.replace("-", "_"))
        generator = generators()[self.generator]
        check_size(*generator.size(settings))
        network: Network = generator.build(settings)
        return network


Topology: type[_OneTopology] = create_model(
    "Topology",
    __base__=_OneTopology,
    __doc__=_OneTopology.__doc__,
    **{  # type: ignore[call-overload]
        name.replace("-", "_"): (
            module.Settings | None,
            Field(default=None, alias=name, description=module.Settings.__doc__),
        )
        for name, module in generators().items()
    },
)

EVERY_PACKET = "every packet"


def _word_or_duration(*words: str) -> object:
    """A field's type: one of the words, or an interval in ns."""
    expected = " or ".join(f"`{word}`" for word in words)

    def parse(value: object) -> object:
        value = "off" if value is False else value
        if value in words:
            return value
        try:
            interval = parse_duration(value)
        except ValueError:
            interval = 0
        if interval == 0:
            raise ValueError(f"expected {expected} or an interval such as `100 us`, got `{value}`")
        return interval

    return Annotated[
        object,
        PlainValidator(parse),
        WithJsonSchema({"anyOf": [{"enum": list(words)}, {"type": "string", "pattern": pattern(DURATIONS)}]}),
    ]


if TYPE_CHECKING:
    QueueMode = str | int
    FlowMode = str | int
else:
    QueueMode = _word_or_duration("summary", EVERY_PACKET)
    FlowMode = _word_or_duration("off")


MAX_WINDOWS = 32
MAIN_WINDOW = "main"


class Window(Strict):
    """A time span of the run with separate sums, for example without the warm-up."""

    start: Duration = Field(default=0, alias="from", examples=["20 ms"])
    """Begin of the window, as time after the lab's epoch."""
    until: Annotated[Duration | None, Field(examples=["80 ms"])] = None
    """End of the window. The default is the lab's end."""


def _window_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}", name):
        raise ValueError(f"expected a name of letters, digits, `-` and `_`, got `{name}`")
    return name


WindowName = Annotated[str, AfterValidator(_window_name)]


class Observe(Strict):
    """Recorded data. Totals, time-weighted means, maxima and histograms of every queue are always recorded."""

    queues: QueueMode = "summary"
    """Recording of the switches' queues: `summary`, the interval of a time series (`100 us`), or `every packet`."""
    host_queues: QueueMode = "summary"
    """Recording of the queues of hosts' NICs, with the values of `queues`."""
    ports: dict[str, QueueMode] = Field(default_factory=dict)
    """Recording of single queues, by the end of a link, such as `s1>h1` or `s1>*`."""
    flows: FlowMode = "off"
    """Interval of the time series of each TCP flow's TCP_INFO and of its congestion control's statistics, or `off`. The
    statistics at a flow's end are always recorded.
    """
    statistics: FlowMode = "off"
    """Interval of the time series of qdiscs' statistics (of schemes and of Linux), or `off`. The statistics at the
    lab's end are always recorded.
    """
    sojourn: StrictBool = False
    """Whether to record distributions of packets' sojourn times in each queue, by the ECN and DSCP fields on arrival
    (docs/measuring.md). If a queue has a time series, each interval also has a distribution.
    """
    start: Annotated[Duration | None, Field(alias="from", examples=["20 ms"])] = None
    """Begin of the window `main`. `from` and `until` are short for `windows: {main: {from: ..., until: ...}}`."""
    until: Annotated[Duration | None, Field(examples=["80 ms"])] = None
    """End of the window `main`. The default is the lab's end."""
    windows: dict[WindowName, Window] = Field(default_factory=dict, max_length=MAX_WINDOWS - 1)
    """Time spans of the run with separate sums of queues and flows (docs/measuring.md), by their names."""

    @property
    def all_windows(self) -> dict[str, Window]:
        """The windows by their names, `main` first."""
        if self.start is None and self.until is None:
            return self.windows
        main = Window().model_copy(update={"start": self.start or 0, "until": self.until})
        return {MAIN_WINDOW: main} | self.windows


def _capture(value: object) -> object:
    return {"end": value} if isinstance(value, str) else value


class Capture(Strict):
    """A pcap file of the packets that a link's end sends and receives."""

    end: str
    """The end of a link: `h1>s1` is the interface of h1 to s1."""
    snaplen: Annotated[Size, between(1, 65535, format_size)] = 128
    """Maximum number of captured bytes of each packet."""


KernelParameters = Annotated[
    dict[Annotated[str, AfterValidator(parameter)], StrictInt],
    AfterValidator(in_bounds),
]


_SERIES = re.compile(r"[1-9][0-9]*\.[0-9]+")


def _kernel(value: object) -> object:
    """A series, which YAML reads as a number, or a path."""
    text = str(value) if isinstance(value, (str, float)) else ""
    if not _SERIES.fullmatch(text) and not text.startswith(("./", "../", "/")):
        raise ValueError(f"expected a kernel series such as `6.12` or a folder such as `./my-patches`, got `{value}`")
    return text


KernelChoice = Annotated[str, BeforeValidator(_kernel, json_schema_input_type=str | float)]


class Lab(Strict):
    """A lab: network, hosts, switches, workload and events."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")
    """The lab's name: letters a-z, digits and `-`."""
    topology: Topology  # type: ignore[valid-type]
    """The network: exactly one generator, by its name, with its settings."""
    links: dict[str, LinkSettings]
    """By `default`, a layer of the topology, a link's name or glob (`h1-s1`, `h*-s1`), or one direction (`h1>s1`);
    later kinds take precedence.
    """
    switches: dict[str, SwitchSettings] = Field(default_factory=dict)
    """By `default`, a switch's name, glob or range, or one port (`s1>h1`: its queue towards h1). Later kinds
    take precedence.
    """
    hosts: dict[str, HostSettings] = Field(default_factory=dict)
    """By `default`, or a host's name, glob or range. Names take precedence over globs."""
    addressing: Literal["ipv4", "ipv6", "both"] = "ipv4"
    """Address families of the nodes."""
    routing: Literal["static", "frr"] = "static"
    """Computation of the switches' routes: once by the compiler (`static`), or by FRR's daemons
    during the run (`frr`).
    """
    frr: FrrSettings = Field(default_factory=FrrSettings)
    """Settings of FRR for `routing: frr`."""
    workload: list[Workload] = Field(default_factory=list, max_length=10_000)
    """The traffic of the hosts."""
    programs: list[Program] = Field(default_factory=list, max_length=1_000)
    """Programs that run on nodes during the lab, in addition to `workload`."""
    events: list[Event] = Field(default_factory=list, max_length=10_000)
    """Changes during the run: links that fail, recover or change their rate, queue parameters, hosts' congestion
    control (docs/workloads.md).
    """
    observe: Observe = Field(default_factory=Observe)
    """Recording of queues and flows."""
    capture: list[Annotated[Capture, BeforeValidator(_capture, json_schema_input_type=str | Capture)]] = Field(
        default_factory=list
    )
    """Ends of links at which packets are captured."""
    duration: PositiveDuration = Field(examples=["100 ms"])
    """Duration of the lab after its epoch. Set-up precedes the epoch."""
    seed: int = Field(default=1, ge=0, lt=2**32)
    """Seed of all random choices: equal seeds give equal runs."""
    kernel_parameters: KernelParameters = Field(default_factory=dict)
    """Parameters of kernel modules, equal for all hosts: `{tcp_cubic/hystart: 0}`
    (`orchestrator/qbed/lab/parameters.py` lists them). The defaults are Linux's. In containers, no host of such a lab
    runs on the machine's kernel.
    """
    congestion: dict[str, dict[str, object]] = Field(default_factory=dict)
    """Parameters of the congestion controls in `congestion/`, equal for all hosts: `{dctcp1: {gain_shift: 5}}`
    ([Congestion controls](#congestion-controls) lists them). The name is that of the folder.
    """
    parts: int = Field(default=1, ge=1, le=64)
    """Number of parts that the lab is divided into, each a kernel on a core of its own. Results depend on it, but not
    on the number of cores ([running.md](running.md#large-labs)). In containers it has no effect.
    """
    kernel: KernelChoice | None = None
    """Kernel of the lab in virtual time: a series (`6.12`, `7.2`), a folder of patches on top of qbed's
    (`./my-patches`), or a source tree of Linux (`./my-tree`); [running.md](running.md#kernels) describes them. The
    default is the kernel of the set-up.
    """
    memory: Annotated[Size | None, Field(examples=["2 GB"])] = None
    """Memory of the lab's kernel, or of that of each part. The default is an estimate."""
