# SPDX-License-Identifier: Apache-2.0
"""Schemes and parameters of queues.

The more specific kind of key takes precedence, field by field: default < glob or range of switches < switch < glob or
range of ports < port; within a kind, the later entry. A parameter that only other schemes have has no effect:
`qbed.network.load` refuses it, unless an override chose the scheme. All settings beside a `qdisc` have no effect and
are always refused.
"""

import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from qbed.base.errors import nearest
from qbed.config.layers import Layer, text_of
from qbed.config.messages import field_hint
from qbed.config.problems import Problems
from qbed.config.source import FieldPath
from qbed.config.units import Amount
from qbed.lab.settings import QueueSettings
from qbed.schemes.declaration import Scheme, default_scheme, plain_schemes, registry
from qbed.schemes.encoding import Value
from qbed.schemes.linux_qdiscs import LAB_QDISCS

CUSTOM = "custom"
_WORD = re.compile(r"[A-Za-z0-9_.:,%+-]{1,64}")


@dataclass(frozen=True)
class QueueSpec:
    """A queue: a scheme with its parameters in base units, or a qdisc with tc's arguments."""

    scheme: str
    values: dict[str, Value]
    tc: tuple[str, ...] | None = None
    child: "QueueSpec | None" = None
    """The child queue, if the scheme has one."""

    def buffer_bytes(self, frame_bytes: int) -> int:
        """Return the buffer in bytes; for a qdisc with tc's arguments an assumption (1000 frames)."""
        buffer = self.values.get("buffer", Amount(1000, "packets"))
        assert isinstance(buffer, Amount)
        return buffer.in_bytes(frame_bytes)


def buffer_length(spec: QueueSpec, unit: str, frame_bytes: int) -> int:
    """Return the buffer in packets of the largest size, or in bytes."""
    size = spec.buffer_bytes(frame_bytes)
    return max(1, size // frame_bytes) if unit == "packets" else size


def default_queue(spec: QueueSpec) -> QueueSpec:
    """Return a queue of the default scheme with the same buffer, for switches with a P4 program that marks."""
    return QueueSpec(default_scheme(), {"buffer": spec.values["buffer"]})


def merge(general: Layer, specific: Layer) -> Layer:
    """Merge a more specific entry over a more general one; `scheme` and `qdisc` replace each other and the other's
    preset.
    """
    merged = dict(general)
    same = "scheme" in specific and "scheme" in general and specific["scheme"][0] == general["scheme"][0]
    for name, other in (("scheme", "qdisc"), ("qdisc", "scheme"), ("scheme", "preset"), ("qdisc", "preset")):
        if name in specific and not (same and other == "preset"):
            merged.pop(other, None)
    return merged | specific


def check_names(settings: QueueSettings, path: FieldPath, problems: Problems) -> None:
    """Check that the scheme and all fields exist."""
    known = {parameter.name for scheme in registry().values() for parameter in scheme.parameters}
    for name in settings.model_extra or {}:
        if name not in known:
            fields = known | set(type(settings).model_fields)
            problems.error((*path, name), f"unknown field{field_hint(name, fields)}", at_key=True)
    if settings.scheme is not None and settings.scheme not in registry():
        text = f"no scheme is called `{settings.scheme}`{_scheme_hint(settings.scheme)}"
        problems.error((*path, "scheme"), text)
    if settings.scheme is not None and settings.qdisc is not None:
        problems.error((*path, "qdisc"), "expected `scheme` or `qdisc`, not both")


def _scheme_hint(name: str) -> str:
    """Return how to write a qdisc of Linux, or else the nearest scheme."""
    words = name.split()
    if words and words[0] in LAB_QDISCS:
        options = " ".join(words[1:]) or "..."
        return f'; `{words[0]}` is a qdisc of Linux: write `qdisc: "{words[0]} {options}"`'
    return nearest(name, registry())


def _unread_parameters(settings: Layer) -> Iterator[tuple[str, str]]:
    """The parameters that the queue's scheme does not have, and what to write instead."""
    scheme = registry().get(text_of(settings, "scheme", default_scheme()))
    if scheme is None:
        return
    chosen = scheme.child.parameter if scheme.child is not None else ""
    inner = settings[chosen][0] if chosen in settings else scheme.by_name[chosen].default if chosen else None
    inside = registry().get(str(inner))
    for name in settings:
        if scheme.reads(name, inside):
            continue
        others = [f"`{other.name}`" for other in registry().values() if name in other.by_name and other is not scheme]
        if name in scheme.by_name:
            text = f"is for the queue inside, whose scheme `{inner}` has no such parameter: not used"
            yield name, f"{text}; expected another scheme inside"
        elif others:
            text = f"the scheme `{scheme.name}` has no parameter `{name}`: not used"
            yield name, f"{text}; expected a scheme that has it ({', '.join(others)})"


class Specs:
    """Creates queue specifications from their settings; equal settings share one.

    `order` returns the position of a field's entry in the order in which entries are merged.
    """

    def __init__(self, problems: Problems, order: Callable[[FieldPath], int]) -> None:
        self.problems, self._order = problems, order
        self._made: dict[object, QueueSpec | None] = {}
        self._unread: dict[object, dict[str, str]] = {}

    def get(self, settings: Layer, frame_bytes: int) -> QueueSpec | None:
        """Return the specification of a queue for frames of at most `frame_bytes`; None if the settings are invalid."""
        key = (tuple(sorted((name, repr(value)) for name, (value, _) in settings.items())), frame_bytes)
        if key not in self._made:
            self._made[key] = self._make(settings, frame_bytes)
            self._unread[key] = dict(_unread_parameters(settings))
        if "qdisc" in settings:
            self._check_beside_qdisc(settings)
            return self._made[key]
        for name, (_, path) in settings.items():
            if name in self._unread[key]:
                self.problems.not_read(path, self._unread[key][name])
            else:
                self.problems.read(path)
        return self._made[key]

    def _check_beside_qdisc(self, settings: Layer) -> None:
        """Refuse settings beside a `qdisc`; it replaces those of more general entries."""
        text, at = str(settings["qdisc"][0]), settings["qdisc"][1]
        self.problems.read(at)
        kind = next(iter(text.split()), "pfifo")
        for name, (_, path) in settings.items():
            if name in ("qdisc", "preset") or self._order(path) < self._order(at):
                continue
            expected = f"`{kind} limit ...`" if name == "buffer" else f"what `tc` calls it, behind `{kind}`"
            place = self.problems.source.place(at)
            self.problems.error(
                path,
                f"has no effect beside `qdisc: {text}` ({place}), whose words are all that the queue has; expected"
                f" {expected} in these words, or a `scheme` instead of `qdisc`",
            )

    def _make(self, settings: Layer, frame_bytes: int) -> QueueSpec | None:
        if "qdisc" in settings:
            if "preset" in settings:
                name, path = settings["preset"]
                self.problems.error(path, f"`{name}` beside a `qdisc`: presets are a scheme's")
            return self._custom(text_of(settings, "qdisc"), settings["qdisc"][1])
        name = text_of(settings, "scheme", default_scheme())
        scheme = registry().get(name)
        if scheme is None:
            return None
        inside = self._inside(scheme, settings)
        values = self._parameters(scheme, settings, inside)
        if values is None or (inside is None) != (scheme.child is None):
            return None
        self._check_buffer(values, settings, frame_bytes)
        if inside is None:
            return QueueSpec(name, values)
        given = {key: inside.by_name[key].parse(settings[key][0]) for key in inside.by_name if key in settings}
        return QueueSpec(name, values, child=QueueSpec(inside.name, scheme.child_values(inside, values, given)))

    def _inside(self, scheme: Scheme, settings: Layer) -> Scheme | None:
        """Return the scheme of the child queue; None if there is none, or no such scheme."""
        if scheme.child is None:
            return None
        parameter = scheme.by_name[scheme.child.parameter]
        name, path = settings.get(parameter.name, (parameter.default, ()))
        if name not in plain_schemes():
            text = f"no scheme that can be inside another is called `{name}`{nearest(str(name), plain_schemes())}"
            self.problems.error(path, text)
            return None
        return registry()[name]

    def _custom(self, text: str, path: FieldPath) -> QueueSpec | None:
        try:
            words = tuple(shlex.split(text))
        except ValueError:
            words = ()
        if not words:
            self.problems.error(path, f"expected tc's words such as `fq_codel limit 100`, got `{text}`")
            return None
        if words[0] not in LAB_QDISCS:
            hint = f"; expected `scheme: {words[0]}`" if words[0] in registry() else nearest(words[0], LAB_QDISCS)
            self.problems.error(path, f"the lab kernel has no queueing discipline `{words[0]}`{hint}")
            return None
        strange = next((word for word in words if not _WORD.fullmatch(word)), None)
        if strange is not None:  # tc would open a file, load a library or configure another device
            self.problems.error(path, f"expected words and numbers such as `fq_codel limit 100`, got `{strange}`")
            return None
        return QueueSpec(CUSTOM, {}, words)

    def _parameters(self, scheme: Scheme, settings: Layer, inside: Scheme | None) -> dict[str, Value] | None:
        """Return the parameters in base units with defaults, including the child queue's; None if any is invalid."""
        values = scheme.defaults()
        complete = True
        if "preset" in settings:
            name, path = text_of(settings, "preset"), settings["preset"][1]
            try:
                values |= scheme.preset(name)
            except ValueError as error:
                owners = ", ".join(f"`{scheme.name}`" for scheme in registry().values() if name in scheme.presets)
                hint = f": it is of {owners}; where schemes are an axis, its alternatives set scheme and preset"
                self.problems.error(path, f"{error}{hint if owners else ''}")
                complete = False
        for name, (value, path) in settings.items():
            direct = scheme.by_name.get(name)
            inner = inside.by_name.get(name) if inside is not None else None
            others = [other.by_name[name] for other in registry().values() if name in other.by_name]
            if name in ("scheme", "preset", "qdisc") or not (direct or others):
                continue
            try:
                parsed = (direct or inner or others[0]).parse(value)
            except ValueError as error:
                self.problems.error(path, str(error))
                complete = False
                continue
            if direct is not None:
                values[name] = parsed
        return values if complete else None

    def _check_buffer(self, values: dict[str, Value], settings: Layer, frame_bytes: int) -> None:
        buffer = values["buffer"]
        assert isinstance(buffer, Amount)
        if buffer.unit == "bytes" and buffer.value < frame_bytes and "buffer" in settings:
            text = f"expected room for one frame of {frame_bytes} bytes at least, got `{buffer}`"
            self.problems.error(settings["buffer"][1], text)
        for name, value in values.items():
            if name == "buffer" or name not in settings or not isinstance(value, Amount):
                continue
            if value.in_bytes(frame_bytes) > buffer.in_bytes(frame_bytes):
                text = f"`{value}` is more than the buffer of `{buffer}`: never reached"
                self.problems.warn(settings[name][1], text)
