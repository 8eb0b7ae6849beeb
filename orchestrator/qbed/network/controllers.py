# SPDX-License-Identifier: Apache-2.0
"""Rate controllers of hosts with their parameters, for flows of the transport `rate`.

As with queues (`qbed.network.queues`) the more specific key takes precedence, field by field. A parameter that only
other controllers have has no effect: `qbed.network.load` refuses it, unless an override chose the controller.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from qbed.base.errors import nearest
from qbed.config.layers import Layer, text_of
from qbed.config.problems import Problems
from qbed.config.source import FieldPath
from qbed.lab.settings import CONTROLLER_FIELDS, ControllerSettings, Given
from qbed.network.frames import CONGESTION_BYTES, compact_bytes
from qbed.schemes.declaration import Controller, controllers
from qbed.schemes.encoding import Value


@dataclass(frozen=True)
class ControllerSpec:
    """A controller: its parameters in netlink's encoding, and the signal that its flows request from switches."""

    name: str
    options: bytes
    signal: str = "rtt"
    unit: str = "packets"
    bits: int = 32
    forward: bool = False
    compact: int | None = None
    """For compact headers: the buffer, in `unit`, whose shares the signal has; 0 if it has none."""

    @property
    def header_bytes(self) -> int:
        """The length of its congestion header."""
        return CONGESTION_BYTES if self.compact is None else compact_bytes(self.signal, self.bits)


def check_controller(settings: ControllerSettings, path: FieldPath, problems: Problems) -> None:
    """Check that the controller and all fields exist."""
    known = {name for controller in controllers().values() for name in controller.by_name}
    for name in settings.model_extra or {}:
        if name not in known:
            problems.error((*path, name), f"unknown field{nearest(name, known | CONTROLLER_FIELDS)}", at_key=True)
    if settings.name is not None and settings.name not in controllers():
        text = f"no controller is called `{settings.name}`{nearest(settings.name, controllers())}"
        problems.error((*path, "name"), text)


def _unread_fields(settings: Layer) -> Iterator[tuple[str, str]]:
    """Return the fields that the controller does not have or need, each with a suggestion."""
    controller = controllers().get(text_of(settings, "name")) if "name" in settings else None
    if controller is None:
        if "name" not in settings:
            yield from ((name, "there is no controller: not used; expected a `name` beside it") for name in settings)
        return
    signal = settings["signal"][0] if "signal" in settings else "rtt"
    for name in settings:
        if name == "name" or name in controller.by_name:
            continue
        if name not in CONTROLLER_FIELDS:
            others = [f"`{other.name}`" for other in controllers().values() if name in other.by_name]
            text = f"the controller `{controller.name}` has no parameter `{name}`: not used"
            yield name, f"{text}; expected a controller that has it ({', '.join(others)})"
        elif name not in ("signal", "header") and signal == "rtt":
            yield (
                name,
                "its flows request no signal from switches: not used; expected a `signal` beside it, such as `max`",
            )


class ControllerSpecs:
    """Creates hosts' controllers from their settings; equal settings at links of equal rates share one.

    `in_use`: whether the lab has flows of the transport `rate`.
    """

    def __init__(self, problems: Problems, in_use: bool) -> None:
        self.problems, self._in_use = problems, in_use
        self._made: dict[object, ControllerSpec | None] = {}

    def get(self, settings: Layer, link_bps: int | None) -> ControllerSpec | None:
        """Return the controller of a host with a link of this rate; None if there is none, or the settings
        are invalid.
        """
        key = (tuple(sorted((name, repr(value)) for name, (value, _) in settings.items())), link_bps)
        if key not in self._made:
            self._made[key] = self._make(settings, link_bps)
        if self._in_use:
            unread = dict(_unread_fields(settings))
            for name, (_, path) in settings.items():
                if name in unread:
                    self.problems.not_read(path, unread[name])
                else:
                    self.problems.read(path)
        return self._made[key]

    def _make(self, settings: Layer, link_bps: int | None) -> ControllerSpec | None:
        controller = controllers().get(text_of(settings, "name")) if "name" in settings else None
        if controller is None:
            return None
        values = self._parameters(controller, settings)
        if values is None:
            return None
        try:
            options = controller.options(values, link_bps)
        except ValueError as error:  # contradictory parameters: report the last one that is given
            given = [name for name in settings if name in values]
            self.problems.error(settings[given[-1] if given else "name"][1], str(error))
            return None
        request: Given = {name: settings[name][0] for name in ("signal", "unit", "bits") if name in settings}
        if request.get("signal", "rtt") != "rtt" and "signal" not in controller.inputs:
            self.problems.warn(settings["signal"][1], f"the controller `{controller.name}` goes by no signal: not used")
        forward = settings["forward"][0] == "on" if "forward" in settings else False
        compact = 0 if "header" in settings and settings["header"][0] == "compact" else None
        return ControllerSpec(controller.name, options, **request, forward=forward, compact=compact)

    def _parameters(self, controller: Controller, settings: Layer) -> dict[str, Value] | None:
        """Return the given parameters in base units; None if any is invalid."""
        values = {}
        complete = True
        for name, (value, path) in settings.items():
            declared = [other for other in controllers().values() if name in other.by_name]
            if name in CONTROLLER_FIELDS or not declared:
                continue
            has_parameter = name in controller.by_name
            try:
                parsed = (controller if has_parameter else declared[0]).parse(name, value)
            except ValueError as error:
                self.problems.error(path, str(error))
                complete = False
                continue
            if has_parameter:
                values[name] = parsed
        return values if complete else None
