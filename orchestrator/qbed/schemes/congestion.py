# SPDX-License-Identifier: Apache-2.0
"""Congestion controls of TCP: those of the lab's kernel, and the folders of `congestion/`, each declared by its
congestion.yml.

A folder is one kernel module, `tcp_NAME`. It registers the congestion control NAME, and further ones if the declaration
lists `variants`. Its parameters are module parameters: all hosts of a lab share them.
"""

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from pydantic import Field as Given
from pydantic import model_validator

from qbed.base.errors import QbedError, nearest
from qbed.base.locations import congestion_folders
from qbed.schemes.declaration import Declared, Statistic, declarations, layout, load_declared
from qbed.schemes.encoding import Field, Value, kernel_value
from qbed.schemes.parameter import Parameter, check_parameters

LINUX_CONTROLS = ("cubic", "reno", "dctcp", "bbr", "vegas", "westwood", "htcp", "bic", "cdg", "nv", "illinois")
"""The congestion controls that the lab's kernel has (kernel/config.fragment)."""
CONTROL_NAME = re.compile(r"[a-z][a-z0-9_]{0,14}")
"""The kernel's limit is 15 characters (TCP_CA_NAME_MAX)."""

_STATISTIC_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
STATISTICS_BYTES = 20
"""Size of the kernel's `union tcp_cc_info`, which `get_info` fills."""


class ModuleParameter(Parameter):
    """A parameter of the module: an unsigned number of 32 bits."""

    attribute: Field | None = Field()
    """The kernel's unit of a duration, scale of a fraction or names of choices."""


class CongestionControl(Declared):
    """A congestion control, as congestion/NAME/congestion.yml declares it."""

    variants: dict[str, str] = Given(default_factory=dict)
    """Further congestion controls that the module registers: a sentence for each."""
    parameters: tuple[ModuleParameter, ...] = ()
    """Parameters of the module."""
    statistics: tuple[Statistic, ...] = ()
    """Statistics of a flow that the module's `get_info` returns, at most 20 bytes."""

    @model_validator(mode="after")
    def _complete(self) -> "CongestionControl":
        for name in self.controls:
            if not CONTROL_NAME.fullmatch(name):
                raise ValueError(f"expected up to 15 of a-z, 0-9 and `_`, a letter first, got `{name}`")
        for parameter in self.parameters:
            if parameter.default is None or parameter.attribute is None or parameter.attribute.type != "u32":
                raise ValueError(
                    f"expected a default of the parameter `{parameter.name}`, and an attribute of type u32"
                )
            if parameter.type in ("amount", "scheme"):
                raise ValueError(f"expected another type of the parameter `{parameter.name}` than `{parameter.type}`")
        check_parameters(self.parameters)
        names = [statistic.name for statistic in self.statistics]
        for name in names:
            if not _STATISTIC_NAME.fullmatch(name) or names.count(name) > 1:
                raise ValueError(f"statistics: expected names of a-z, 0-9 and `_`, each once, got `{name}`")
        if self.statistics_bytes > STATISTICS_BYTES:
            text = f"expected at most {STATISTICS_BYTES} bytes: the kernel has room for 5 of type u32, or 2 of type u64"
            raise ValueError(f"statistics: {text}, got {self.statistics_bytes}")
        return self

    @property
    def statistics_bytes(self) -> int:
        """The size of the structure of statistics in C."""
        end = max((start + statistic.size for statistic, start in layout(self.statistics)), default=0)
        largest = max((statistic.size for statistic in self.statistics), default=1)
        return -(-end // largest) * largest

    @property
    def module(self) -> str:
        """The kernel module."""
        return f"tcp_{self.name}"

    @property
    def controls(self) -> dict[str, str]:
        """The congestion controls that the module registers, with a sentence for each."""
        return {self.name: self.help, **self.variants}

    @property
    def by_name(self) -> dict[str, ModuleParameter]:
        """The parameters by their names."""
        return {parameter.name: parameter for parameter in self.parameters}

    def parse(self, name: str, value: object) -> Value:
        """A parameter's value in base units; ValueError says what was expected, and the nearest name."""
        if name not in self.by_name:
            text = f"the congestion control `{self.name}` has no parameter `{name}`"
            raise ValueError(f"{text}{nearest(name, self.by_name)}")
        return self.by_name[name].parse(value)

    def module_parameters(self, values: Mapping[str, object]) -> dict[str, str]:
        """The module parameters by MODULE/PARAMETER that differ from the defaults."""
        found = {}
        for name, value in values.items():
            parameter = self.by_name[name]
            assert parameter.attribute is not None and parameter.default is not None, "the declaration requires both"
            given, usual = (kernel_value(parameter.parse(v), parameter.attribute) for v in (value, parameter.default))
            if given != usual:
                found[f"{self.module}/{parameter.kernel_name(parameter.kernel_unit)}"] = str(given)
        return found


@cache
def _congestion_controls(folders: tuple[Path, ...]) -> dict[str, CongestionControl]:
    found: dict[str, CongestionControl] = {}
    owners = dict.fromkeys(LINUX_CONTROLS, "Linux")
    for path in declarations(folders, "congestion.yml", "congestion control"):
        control = load_declared(path, CongestionControl, path.parent.name, "folder")
        for name in control.controls:
            if name in owners:
                raise QbedError(f"{path}: `{name}` is a congestion control of {owners[name]}; expected another name")
            owners[name] = str(path.parent)
        found[control.name] = control
    return found


def congestion_controls(folder: Path | None = None) -> dict[str, CongestionControl]:
    """The declarations by the folders' names."""
    return _congestion_controls((folder,) if folder else congestion_folders())


def control_names() -> list[str]:
    """Every congestion control that a lab can use."""
    return [*LINUX_CONTROLS, *(name for declared in congestion_controls().values() for name in declared.controls)]


def declaration_of(control: str | None) -> CongestionControl | None:
    """The declaration of a congestion control by the folder with its module; None if the kernel has it."""
    return next((declared for declared in congestion_controls().values() if control in declared.controls), None)
