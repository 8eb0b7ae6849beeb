# SPDX-License-Identifier: Apache-2.0
"""A scheme's parameters as its program in P4 takes them: entries of its tables, most of them by egress port
(docs/p4.md, schemes/NAME/p4/README.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from qbed.language.units import Amount

_NS_PER_SECOND = 1_000_000_000
_LARGEST_STAMP_BYTES = 1 << 31
_U32 = (1 << 32) - 1
_MOST_REGISTERS = 1 << 16
_MOST_BINS = 4096
_BITS_19 = (1 << 19) - 1  # v1model's queue lengths
_ONE = 10**9  # of which scheme.yml's fractions are parts
PARKING_PORT = 510
_FEEDBACK_SESSION = 1
_UNITS = ("packets", "bytes", "time")  # enum qsignal_unit


class SettingError(ValueError):
    """A parameter that the scheme's program cannot take."""

    def __init__(self, parameter: str, text: str) -> None:
        super().__init__(text)
        self.parameter = parameter


@dataclass(frozen=True)
class Entry:
    """What a table is told: with a key an entry, without one its default action."""

    table: str
    action: str
    arguments: Mapping[str, int | str]
    key: Mapping[str, int | str] | None = None
    """Numbers; or text, as the plan has it: `10.0.0.0/8`, `5..9`."""
    priority: int = 0
    """Of entries that may overlap: the highest wins."""


@dataclass(frozen=True)
class Port:
    """A port of a switch: its number, and the link's end behind its queue."""

    number: int
    rate_bps: int
    frame_bytes: int
    """Of the largest frame, with its Ethernet header."""


@dataclass(frozen=True)
class Parking:
    """A port without a link: what the program sends there comes again, by recirculation."""

    port: int
    rate_bps: int | None
    """None: at once."""
    buffer: Amount


Asked = Iterable[tuple[str, int]]
"""Units and numbers of bits in which packets ask for occupancy."""


def port_settings(scheme: str, port: Port, values: Mapping[str, Any], asked: Asked = ()) -> Iterator[Entry]:
    """What a scheme's program is told of a port with these parameters, in base units. SettingError."""
    if scheme in _OF_PORT:
        for table, action, arguments in _OF_PORT[scheme](port, values):
            yield Entry(table, action, arguments, {"port": port.number})
    if scheme == "stamp":
        yield from _bins(port, values, asked)


def switch_settings(scheme: str, ports: Iterable[Mapping[str, Any]], parking: Parking | None = None) -> Iterator[Entry]:
    """What a scheme's program is told of the switch as a whole, of the parameters of all its ports. SettingError."""
    if scheme not in _OF_SWITCH:
        return
    parameters, entry = _OF_SWITCH[scheme]
    first: Mapping[str, Any] | None = None
    for values in ports:
        other = [name for name in parameters if first is not None and values[name] != first[name]]
        if other:
            raise SettingError(other[0], f"in P4 a switch has the same {parameters[other[0]]} for all its ports")
        first = first or values
    if first is not None:
        yield entry(first, parking)


def default_parking(scheme: str, ports: Sequence[Mapping[str, Any]], fastest_bps: int) -> Parking | None:
    """The port without a link that a scheme's program needs."""
    if scheme == "qcn":
        return Parking(PARKING_PORT, None, Amount(1000, "packets"))
    if scheme == "abq":
        held = sum(values["hold_limit"] for values in ports)
        return Parking(PARKING_PORT, fastest_bps, Amount(held or 1, "packets"))
    return None


def clone_sessions(scheme: str, parking: Parking | None) -> dict[int, list[int]]:
    """The ports of each clone session of a scheme's program."""
    return {_FEEDBACK_SESSION: [parking.port]} if scheme == "qcn" and parking is not None else {}


Setting = tuple[str, str, dict[str, int | str]]
"""A table, an action and its arguments."""


def _packets(values: Mapping[str, Any], name: str, most: int) -> int:
    amount: Amount = values[name]
    if amount.unit != "packets":
        text = f"in P4 a queue's length is a number of packets: expected such as `20 packets`, got `{amount}`"
        raise SettingError(name, text)
    return min(amount.value, most)


def _us(values: Mapping[str, Any], name: str) -> int:
    return int(values[name]) // 1000


def _ecn(_: Port, values: Mapping[str, Any]) -> Iterator[Setting]:
    yield "marking", "mark_above", {"packets": _packets(values, "threshold", _BITS_19)}


def _codel(_: Port, values: Mapping[str, Any]) -> Iterator[Setting]:
    yield "codel", "law", {**_law(values), "ecn": int(values["ecn"])}


def _rpm(_: Port, values: Mapping[str, Any]) -> Iterator[Setting]:
    yield "codel", "law", _law(values)


def _law(values: Mapping[str, Any]) -> dict[str, int | str]:
    return {"target_us": _us(values, "target"), "interval_us": _us(values, "interval")}


def _registers(values: Mapping[str, Any], _: Parking | None) -> Entry:
    if values["registers"] > _MOST_REGISTERS:
        text = f"in P4 there are at most {_MOST_REGISTERS} (a flow's is found by CRC-16), got `{values['registers']}`"
        raise SettingError("registers", text)
    timeout = min(_us(values, "reverse_timeout"), (1 << 48) - 1)
    mask, per_port = values["registers"] - 1, int(values["per_port"])
    return Entry("rpm", "registers", {"mask": mask, "reverse_timeout_us": timeout, "per_port": per_port})


def _qcn(_: Port, values: Mapping[str, Any]) -> Iterator[Setting]:
    """As schemes/qcn/kernel/qcn_algorithm.h has them; probabilities are parts of 2^32."""
    least, most, reflect = (round(values[name] * _ONE) for name in ("sample_least", "sample_most", "reflect"))
    if least > most:
        raise SettingError("sample_least", "it is more than `sample_most`")
    full = values["full_scale"] or (1 + 2 * values["weight"]) * values["equilibrium"]
    levels = (1 << values["bits"]) - 1
    step = -(-(reflect << 32) // (_ONE * levels))
    buffer: Amount = values["buffer"]
    yield "qcn", "settings", {
        "buffer": min(buffer.value, _U32) if buffer.unit == "packets" else _U32,
        "equilibrium": values["equilibrium"],
        "weight": values["weight"],
        "full_scale": full,
        "inverse_scale": (1 << 48) // full,
        "bits": values["bits"],
        "sample_least": min((least << 32) // _ONE, _U32),
        "sample_step": ((most - least) << 48) // (_ONE * full),
        "reflect": 0 if values["biased"] else min((reflect << 32) // _ONE, _U32),
        "reflect_step": min(step, _U32) if values["biased"] else 0,
        "between_samples": int(values["between_samples"]),
        "capped": int(values["capped"]),
    }  # fmt: skip


def _abq(port: Port, values: Mapping[str, Any]) -> Iterator[Setting]:
    if values["above"] not in ("ecn", "droptail"):
        raise SettingError("above", f"in P4 it is `ecn` or `droptail`, got `{values['above']}`")
    for name, only in {"x": "buffer", "release": "all", "answer": "ece", "last": "short", "coalesce": False}.items():
        if values[name] != only:
            raise SettingError(name, f"in P4 it is as in the article, which is the default: got `{values[name]}`")
    longest = min(_buffer_packets(port, values), _BITS_19)
    yield "abq", "hold_above", {"packets": _packets(values, "threshold", _BITS_19), "buffer": longest}
    marks = values["above"] == "ecn"
    yield "marking", "mark_above", {"packets": _packets(values, "ecn_threshold", _BITS_19) if marks else _BITS_19}


def _parking(values: Mapping[str, Any], parking: Parking | None) -> Entry:
    assert parking is not None
    return Entry("abq_parking", "parking", {"port": parking.port, "limit": values["hold_limit"]})


def _buffer_packets(port: Port, values: Mapping[str, Any]) -> int:
    buffer: Amount = values["buffer"]
    return buffer.value if buffer.unit == "packets" else max(1, buffer.value // port.frame_bytes)


def _wire(port: Port, values: Mapping[str, Any]) -> int:
    """The link's rate as stamp knows it: its own parameter, or as the device says it."""
    rate: int = values["rate"] or port.rate_bps // 1_000_000 * 1_000_000
    return rate


def _full(port: Port, values: Mapping[str, Any]) -> dict[str, int]:
    """A full buffer in each unit, 0: not known (stamp_vars_set of schemes/stamp/kernel/stamp_algorithm.h)."""
    size, rate = values["buffer"].in_bytes(port.frame_bytes), _wire(port, values)
    time = 8 * min(size, _LARGEST_STAMP_BYTES) * _NS_PER_SECOND // rate if rate else 0
    packets = min(_buffer_packets(port, values), _U32)
    return {"packets": packets, "bytes": min(size, _U32), "ns": time if time <= _U32 else 0}


def _stamp(port: Port, values: Mapping[str, Any]) -> Iterator[Setting]:
    rate = _wire(port, values)
    flags = ("at_enqueue", "count_own", "middle", "reverse")
    yield "stamp", "settings", {
        "threshold": _packets(values, "threshold", _U32),
        "frame_bytes": port.frame_bytes,
        "wire_time": 65536 * 8 * _NS_PER_SECOND // rate if rate else 0,
        **{name: int(values[name]) for name in flags},
        **{name: value for unit, most in _full(port, values).items() for name, value in _scale(unit, most).items()},
    }  # fmt: skip


def _scale(unit: str, full: int) -> dict[str, int]:
    """A full buffer, and its inverse, by which the program multiplies instead of dividing."""
    return {f"full_{unit}": full, f"inverse_{unit}": min((1 << 64) // full, (1 << 64) - 1) if full else 0}


def _edge(values: Mapping[str, Any], full: int, bits: int, step: int) -> int:
    """The least length in a bin (stamp_edge of stamp_algorithm.h)."""
    exponent: int = values["exponent"]
    if values["fine_at_full"]:
        return full - int(full * ((1 << bits) - step) ** exponent >> bits * exponent)
    return -int(-full * step**exponent >> bits * exponent)


def _bins(port: Port, values: Mapping[str, Any], asked: Asked) -> Iterator[Entry]:
    """Bins that are not equal, for what is asked; the program knows the equal ones."""
    if values["exponent"] == 1:
        return
    full_of = _full(port, values)
    for unit, bits in sorted(asked):
        full = full_of["ns" if unit == "time" else unit]
        if not full:
            continue
        if min(1 << bits, full) > _MOST_BINS:
            text = f"in P4 there are at most {_MOST_BINS} unequal bins, but hosts ask for {bits} bits of {unit}"
            raise SettingError("exponent", text)
        edges = _edges(values, full, bits)
        for first, behind in zip(edges, [*edges[1:], full + 1], strict=True):
            shown = first + (behind - 1 - first) // 2 if values["middle"] else first
            last = (1 << 64) - 1 if behind > full else behind - 1
            key: dict[str, int | str] = {"port": port.number, "unit": _UNITS.index(unit), "bits": bits}
            yield Entry("bins", "stands_for", {"value": shown}, key | {"length": f"{first}..{last}"}, priority=1)


def _edges(values: Mapping[str, Any], full: int, bits: int) -> list[int]:
    """Where bins begin, that of length 0 first; of those that begin at one length, the last has it."""
    if 1 << bits <= _MOST_BINS:
        return sorted({_edge(values, full, bits, step) for step in range(1 << bits)})
    # more bins than lengths: most lengths have their own
    return [length for length in range(full + 1) if _begins(values, full, bits, length)]


def _begins(values: Mapping[str, Any], full: int, bits: int, length: int) -> bool:
    first, behind = 0, 1 << bits
    while behind - first > 1:
        middle = (first + behind) // 2
        first, behind = (middle, behind) if _edge(values, full, bits, middle) <= length else (first, middle)
    return _edge(values, full, bits, first) == length


_OF_PORT: dict[str, Callable[[Port, Mapping[str, Any]], Iterator[Setting]]] = {
    "ecn": _ecn,
    "codel": _codel,
    "rpm": _rpm,
    "stamp": _stamp,
    "qcn": _qcn,
    "abq": _abq,
}
_OF_SWITCH: dict[str, tuple[Mapping[str, str], Callable[[Mapping[str, Any], Parking | None], Entry]]] = {
    "rpm": (dict.fromkeys(("registers", "reverse_timeout", "per_port"), "registers"), _registers),
    "abq": ({"hold_limit": "limit of what is held"}, _parking),
}
"""Parameters that all ports of a switch have to share, with a word for each, and what is made of them."""
RUNNABLE = frozenset({"droptail", *_OF_PORT})
"""Whose programs a lab can run."""
