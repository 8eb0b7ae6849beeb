# SPDX-License-Identifier: Apache-2.0
"""Queueing schemes: the folders of `schemes/`, each declared by its scheme.yml, with the kernel's option layout.

`Scheme.options(values)` packs parameters into the TCA_OPTIONS payload of the qdisc, either netlink attributes or the
fields of a C structure; `Scheme.decode(xstats)` unpacks the statistics. Both are read off scheme.yml: a new scheme
needs no code here.

A scheme's host side is a `Controller`, declared in `schemes/SCHEME/host/NAME.yml`: how fast a sender sends.
`Controller.options(values)` packs its parameters into what stands within QRATE_A_PARAMETERS.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import Field as Given
from pydantic import ValidationError, model_validator

from qbed.base.errors import QbedError, nearest
from qbed.base.locations import schemes_folder, schemes_folders
from qbed.config.messages import explain
from qbed.config.source import read
from qbed.config.strict import Strict
from qbed.config.units import (
    Amount,
)
from qbed.schemes.encoding import (
    Number,
    Value,
    attributes,
    base_value,
    pack_attributes,
    pack_struct,
    unpack,
)
from qbed.schemes.occupancy import Occupancy
from qbed.schemes.parameter import Parameter, check_parameters, kernel_fields, magnitude


class Statistic(Number):
    """A counter or state that a kernel module reports, as C lays out a structure of them all."""

    type: Literal["u32", "u64"] = "u64"
    """Its size in bits."""
    name: str
    """Its name in the results."""
    unit: str
    """The counted objects, or the unit."""
    help: str
    """The meaning, in one sentence."""

    @property
    def field(self) -> str:
        """The name of its field in C."""
        return f"{self.name}_ns" if self.unit == "ns" and not self.name.endswith("_ns") else self.name


def layout(statistics: Sequence[Statistic]) -> Iterator[tuple[Statistic, int]]:
    """The statistics, each with its position in bytes: C aligns it to its size."""
    end = 0
    for statistic in statistics:
        start = -(-end // statistic.size) * statistic.size
        end = start + statistic.size
        yield statistic, start


class QueueStatistic(Statistic):
    """A statistic of a qdisc (TCA_STATS_APP)."""

    not_ecn_capable: bool = False
    """Whether it counts packets that were not marked because they are not ECN-capable."""
    holds: Literal["ipv4", "ipv6"] | None = None
    """If it counts packets of this family that the node has received and the scheme has not passed on to routing."""


class Child(Strict):
    """The child queue, of another scheme. Its parameters are given beside this scheme's."""

    parameter: str
    """Which parameter names its scheme."""
    given: dict[str, str]
    """By parameter of that scheme, the parameter of this one that gives it. Others of the same name are shared."""


class Qdisc(Strict):
    """How the kernel knows the scheme."""

    kind: str | dict[Literal["bytes", "packets"], str]
    """The qdisc's name, or one for each unit of `buffer`."""
    module: str | None = None
    """The kernel module that has it; none if the kernel itself has it."""
    layout: Literal["attributes", "struct"] = "attributes"
    """The form of its options."""
    tc: tuple[Parameter, ...] = ()
    """Parameters of `tc` beyond those of the scheme."""


class Declared(Strict):
    """Fields of every declaration."""

    name: str
    """Its name, the same as its folder's or its file's."""
    title: str
    """Its kind, in a few words."""
    help: str
    """The behaviour, in a few sentences."""


class Scheme(Declared):
    """A queueing scheme as its scheme.yml declares it."""

    default: bool = False
    """Whether a queue has this scheme if the lab names none."""
    without_ecn: Literal["dropped", "passed"] | None = None
    """For schemes that mark ECN CE: the fate of a packet that would be marked but is not ECN-capable."""
    provides: tuple[Literal["signal", "feedback"], ...] = ()
    """Inputs of rate controllers that the scheme sends to senders of the transport `rate`."""
    compact: tuple[str, ...] | None = None
    """For schemes that provide a signal: the parameters that compact headers need at their defaults. None: the scheme
    does not read compact headers.
    """
    qdisc: Qdisc
    """How the kernel knows it."""
    child: Child | None = None
    """The scheme of the queue inside, if it has one."""
    parameters: list[Parameter]
    """Parameters of the lab file."""
    occupancy: Occupancy | None = None
    """Parameters that are a length of the queue; all amounts without it."""
    presets: dict[str, dict[str, str | int | float | bool]] = Given(default_factory=dict)
    """Parameter values by the names of presets; values in the lab file take precedence."""
    statistics: tuple[QueueStatistic, ...] = ()
    """Statistics of the qdisc beyond packets, bytes and drops."""

    @model_validator(mode="after")
    def _complete(self) -> "Scheme":
        if not any(parameter.name == "buffer" and parameter.default is not None for parameter in self.parameters):
            raise ValueError("a scheme needs the parameter `buffer` and its default")
        check_parameters((*self.parameters, *self.qdisc.tc))
        self.lengths.check({parameter.name: parameter.type for parameter in self.parameters})
        if self.child is not None:
            for name in (self.child.parameter, *self.child.given.values()):
                if name not in self.by_name or self.by_name[name].default is None:
                    raise ValueError(f"`child` needs the parameter `{name}` and its default")
            if self.by_name[self.child.parameter].type != "scheme":
                raise ValueError(f"expected the type `scheme` of the parameter `{self.child.parameter}`")
        for name in self.presets:
            self.preset(name)
        for name in self.compact or ():
            if name not in self.by_name or self.by_name[name].default is None:
                raise ValueError(f"`compact` needs the parameter `{name}` and its default")
        return self

    @property
    def by_name(self) -> dict[str, Parameter]:
        """The parameters by their names."""
        return {parameter.name: parameter for parameter in self.parameters}

    @property
    def lengths(self) -> Occupancy:
        """The parameters that are a length of the queue."""
        amounts = tuple(parameter.name for parameter in self.parameters if parameter.type == "amount")
        return self.occupancy or Occupancy(thresholds=amounts)

    def defaults(self) -> dict[str, Value]:
        """The defaults in base units."""
        return {p.name: p.parse(p.default) for p in self.parameters if p.default is not None}

    def preset(self, name: str) -> dict[str, Value]:
        """A preset's parameters in base units; ValueError has the nearest name."""
        if name not in self.presets:
            raise ValueError(f"the scheme `{self.name}` has no preset `{name}`{nearest(name, self.presets)}")
        for parameter in self.presets[name]:
            if parameter not in self.by_name or (self.child is not None and parameter == self.child.parameter):
                text = f"the preset `{name}` names no parameter `{parameter}`{nearest(parameter, self.by_name)}"
                raise ValueError(text)
        return {key: self.by_name[key].parse(value) for key, value in self.presets[name].items()}

    def child_values(
        self, child: "Scheme", values: Mapping[str, Value], given: Mapping[str, Value]
    ) -> dict[str, Value]:
        """The parameters of the queue inside: this scheme's own that give them, or those given for the child alone."""
        meant = self.child.given if self.child is not None else {}
        found = child.defaults()
        for name in child.by_name:
            source = meant.get(name, name)
            if source in self.by_name:
                found[name] = values[source]
            elif name in given:
                found[name] = given[name]
        return found

    def reads(self, name: str, child: "Scheme | None" = None) -> bool:
        """Whether a setting of this name has an effect; `child`: the scheme of the queue inside."""
        if name in ("scheme", "preset", "buffer"):
            return True
        parameter = self.by_name.get(name)
        if self.child is None or child is None:
            return parameter is not None
        if parameter is None:
            return name in child.by_name and name not in self.child.given
        has_place = parameter.attribute is not None or parameter.bytes is not None or parameter.packets is not None
        wanted = any(self.child.given.get(inner, inner) == name for inner in child.by_name)
        return has_place or wanted or name == self.child.parameter

    def kind(self, values: Mapping[str, Value]) -> str:
        """The qdisc's name for these parameters."""
        if isinstance(self.qdisc.kind, str):
            return self.qdisc.kind
        buffer = values["buffer"]
        assert isinstance(buffer, Amount), "the declaration requires a buffer"
        return self.qdisc.kind[buffer.unit]

    def options(self, values: Mapping[str, Value]) -> bytes:
        """The TCA_OPTIONS payload for parameters in base units; those that are not given take their defaults."""
        fields = list(kernel_fields(self.by_name, self.defaults() | dict(values)))
        return pack_struct(fields) if self.qdisc.layout == "struct" else pack_attributes(fields)

    def has_kind(self, kind: str) -> bool:
        """Whether the kernel knows this scheme by that name."""
        return kind in (self.qdisc.kind.values() if isinstance(self.qdisc.kind, dict) else (self.qdisc.kind,))

    def describe(self, kind: str, options: bytes) -> dict[str, str]:
        """The parameters in a TCA_OPTIONS payload of the qdisc `kind`, as the lab file would say them."""
        numbers = {} if self.qdisc.layout == "struct" else dict(attributes(options))
        found = {}
        for parameter in self.parameters:
            for unit, field in (
                ("bytes", parameter.bytes),
                ("packets", parameter.packets),
                (None, parameter.attribute),
            ):
                if field is None or (field.number is not None and field.number not in numbers):
                    continue
                raw = unpack(field, numbers[field.number] if field.number is not None else options[field.offset or 0 :])
                if parameter.type == "amount":
                    kinds = self.qdisc.kind if isinstance(self.qdisc.kind, dict) else {}
                    unit = unit or next((u for u, name in kinds.items() if name == kind), "bytes")
                    found[parameter.name] = str(Amount(raw, "bytes" if unit == "bytes" else "packets"))
                else:
                    found[parameter.name] = parameter.show(base_value(raw, field))
        return found

    def decode(self, xstats: bytes) -> dict[str, int]:
        """The statistics of a TCA_STATS_APP payload; a shorter payload (older module) leaves its last fields out."""
        return {
            statistic.name: unpack(statistic, xstats[start:])
            for statistic, start in layout(self.statistics)
            if start + statistic.size <= len(xstats)
        }


class HostParameter(Parameter):
    """A parameter of a controller."""

    link: bool = False
    """Whether a rate's default is the rate of IP packets that fills the sender's link."""


class Controller(Declared):
    """How a sender finds its rate, as schemes/SCHEME/host/NAME.yml declares it."""

    inputs: tuple[Literal["rtt", "signal", "feedback"], ...] = ()
    """Inputs: round-trip times, the signal that switches accumulate, or QCN's feedback messages."""
    parameters: tuple[HostParameter, ...]
    """Parameters of the lab file."""
    occupancy: Occupancy | None = None
    """Parameters that are a length of a queue."""
    ordered: tuple[tuple[str, ...], ...] = ()
    """Parameters of which each is at most the next one."""
    scheme: str = ""
    """The folder that it is in: not declared."""

    @model_validator(mode="after")
    def _complete(self) -> "Controller":
        check_parameters(self.parameters)
        self.lengths.check({parameter.name: parameter.type for parameter in self.parameters})
        if self.occupancy is not None and None in (self.occupancy.rate, self.occupancy.packet):
            raise ValueError("expected `rate` and `packet` in `occupancy`: a controller has no port")
        for parameter in self.parameters:
            if (
                parameter.default is None
                or parameter.type == "amount"
                or parameter.attribute is None
                or parameter.fixed
            ):
                raise ValueError(
                    f"expected a default and an `attribute` of the parameter `{parameter.name}`, no amount"
                )
            if parameter.link and parameter.type != "rate":
                raise ValueError(f"expected the type `rate` of the parameter `{parameter.name}`, a link's")
        for name in (name for names in self.ordered for name in names):
            if name not in self.by_name:
                raise ValueError(f"`ordered` names no parameter `{name}`{nearest(name, self.by_name)}")
        self._check_order(self.defaults())
        return self

    @property
    def declaration(self) -> str:
        """Path of the declaration."""
        return f"schemes/{self.scheme}/host/{self.name}.yml"

    @property
    def by_name(self) -> dict[str, HostParameter]:
        """The parameters by their names."""
        return {parameter.name: parameter for parameter in self.parameters}

    @property
    def lengths(self) -> Occupancy:
        """The parameters that are a length of a queue."""
        return self.occupancy or Occupancy(thresholds=())

    def defaults(self, link_bps: int | None = None) -> dict[str, Value]:
        """The defaults in base units, of a sender with a link that carries IP packets at this rate."""
        return {p.name: link_bps if p.link and link_bps else p.parse(p.default) for p in self.parameters}

    def parse(self, name: str, value: object) -> Value:
        """A parameter's value in base units; ValueError says what was expected, and the nearest name."""
        if name not in self.by_name:
            raise ValueError(f"the controller `{self.name}` has no parameter `{name}`{nearest(name, self.by_name)}")
        return self.by_name[name].parse(value)

    def ordered_pairs(self) -> Iterator[tuple[str, str]]:
        """The names of every two parameters of which the first is at most the second."""
        for names in self.ordered:
            yield from pairwise(names)

    def options(self, values: Mapping[str, Value], link_bps: int | None = None) -> bytes:
        """Return the content of QRATE_A_PARAMETERS for parameters in base units; others have their defaults."""
        complete = self.defaults(link_bps) | dict(values)
        for low, high in reversed([*self.ordered_pairs()]):
            if low not in values and self.by_name[low].link:  # the link's rate gives way to what is given
                complete[low] = min(complete[low], complete[high], key=magnitude)
        self._check_order(complete)
        return pack_attributes(list(kernel_fields(self.by_name, complete)))

    def values(self, options: bytes) -> dict[str, Value]:
        """Return the parameters in QRATE_A_PARAMETERS, in base units."""
        numbers = dict(attributes(options))
        found: dict[str, Value] = {}
        for parameter in self.parameters:
            field = parameter.attribute
            if field is not None and field.number in numbers:
                found[parameter.name] = base_value(unpack(field, numbers[field.number]), field)
        return found

    def describe(self, options: bytes) -> dict[str, str]:
        """Return the parameters in QRATE_A_PARAMETERS, in the lab file's notation."""
        return {name: self.by_name[name].show(value) for name, value in self.values(options).items()}

    def _check_order(self, values: Mapping[str, Value]) -> None:
        for low, high in self.ordered_pairs():
            if magnitude(values[low]) > magnitude(values[high]):
                shown = (self.by_name[name].show(values[name]) for name in (low, high))
                raise ValueError("expected `{2}` to be at most `{3}`, which is {1}, got {0}".format(*shown, low, high))


_Declared = TypeVar("_Declared", bound=Declared)


def load_declared(path: Path, model: type[_Declared], name: str, kind: str) -> _Declared:
    """The declaration in a file; QbedError if it is incomplete, or if its name is not that of its folder or file."""
    source = read(path)
    try:
        declared = model.model_validate(source.values)
    except ValidationError as error:
        raise QbedError("\n".join(explain(error, source, model.model_json_schema()))) from None
    if declared.name != name:
        raise QbedError(source.message(("name",), f"expected the {kind}'s name `{name}`, got `{declared.name}`"))
    return declared


def load_scheme(folder: Path) -> Scheme:
    """One scheme's declaration; QbedError if it is incomplete."""
    return load_declared(folder / "scheme.yml", Scheme, folder.name, "folder")


def load_controller(path: Path) -> Controller:
    """One controller's declaration; QbedError if it is incomplete, or if there is no NAME.h beside it."""
    controller = load_declared(path, Controller, path.stem, "file")
    if not path.with_suffix(".h").exists():
        raise QbedError(f"{path}: expected the controller itself beside it: {path.stem}.h")
    return controller.model_copy(update={"scheme": path.parent.parent.name})


def declarations(folders: Sequence[Path], file: str, kind: str) -> list[Path]:
    """The declarations `*/FILE` in some folders. QbedError if two of them have one name."""
    found: dict[str, Path] = {}
    for path in (path for folder in folders for path in sorted(folder.glob(f"[!.]*/{file}"))):
        name = path.parent.name
        if name in found:
            raise QbedError(f"{path}: there is a {kind} `{name}` already: {found[name]}; expected another name")
        found[name] = path
    return list(found.values())


@cache
def _registry(folders: tuple[Path, ...]) -> dict[str, Scheme]:
    return {path.parent.name: load_scheme(path.parent) for path in declarations(folders, "scheme.yml", "scheme")}


def plain_schemes() -> list[str]:
    """The names of those that can be a queue inside another scheme: they have none inside themselves."""
    return [name for name, scheme in registry().items() if scheme.child is None]


def default_scheme() -> str:
    """The name of the scheme of a queue for which the lab names none."""
    names = [name for name, scheme in registry().items() if scheme.default]
    if len(names) != 1:
        raise QbedError(f"{schemes_folder()}: expected `default: true` in one scheme.yml, found {len(names)}")
    return names[0]


def registry(folder: Path | None = None) -> dict[str, Scheme]:
    """Every scheme by its name: the folders that have a scheme.yml."""
    return _registry((folder,) if folder else schemes_folders())


@cache
def _controllers(folders: tuple[Path, ...]) -> dict[str, Controller]:
    found: dict[str, Controller] = {}
    for path in (path for folder in folders for path in sorted(folder.glob("*/host/*.yml"))):
        controller = load_controller(path)
        if controller.name in found:
            raise QbedError(f"{path}: there is {found[controller.name].declaration}, too: one name, one controller")
        found[controller.name] = controller
    return dict(sorted(found.items()))


def controllers(folder: Path | None = None) -> dict[str, Controller]:
    """Every controller by its name: the files schemes/SCHEME/host/NAME.yml."""
    return _controllers((folder,) if folder else schemes_folders())


def controller_named(name: str) -> Controller:
    """The controller of this name; ValueError has the nearest one."""
    if name not in controllers():
        raise ValueError(f"no controller is called `{name}`{nearest(name, controllers())}")
    return controllers()[name]
