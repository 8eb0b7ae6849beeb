# SPDX-License-Identifier: Apache-2.0
"""Table entries of the program stamp: the parameters of each port, and its unequal bins (kernel/stamp_algorithm.h)."""

from collections.abc import Iterator, Mapping

from qbed.p4.entry import (
    Entry,
    Match,
    Port,
    Range,
    SettingError,
    SignalFormats,
    Values,
    buffer_packets,
    packets,
)

NS_PER_SECOND = 1_000_000_000
BUFFER_BYTES_MAX = 1 << 31
U32_MAX, U64_MAX = (1 << 32) - 1, (1 << 64) - 1
BINS_MAX = 4096
UNITS = ("packets", "bytes", "time")
"""The values of enum qsignal_unit."""


def port_entries(port: Port, values: Values, formats: SignalFormats) -> Iterator[Entry]:
    """The port's settings, and one entry for each unequal bin that hosts request."""
    yield Entry("stamp", "settings", _settings(port, values), {"port": port.number})
    if values["exponent"] != 1:
        full = _full(port, values)
        for unit, bits in sorted(formats):
            yield from _bins(port, values, unit, bits, full["ns" if unit == "time" else unit])


def _settings(port: Port, values: Values) -> Mapping[str, int]:
    rate = _rate_bps(port, values)
    scales = {}
    for unit, full in _full(port, values).items():
        # The program multiplies by the inverse instead of dividing.
        scales[f"full_{unit}"] = full
        scales[f"inverse_{unit}"] = min((1 << 64) // full, U64_MAX) if full else 0
    return {
        "threshold": packets(values, "threshold", U32_MAX),
        "frame_bytes": port.frame_bytes,
        "wire_time": 65536 * 8 * NS_PER_SECOND // rate if rate else 0,
        **{name: int(values[name]) for name in ("at_enqueue", "count_itself", "middle", "reverse")},
        **scales,
    }


def _rate_bps(port: Port, values: Values) -> int:
    """The parameter `rate`, or the link's rate in whole Mbit/s, as the device reports it."""
    rate: int = values["rate"] or port.rate_bps // 1_000_000 * 1_000_000
    return rate


def _full(port: Port, values: Values) -> dict[str, int]:
    """A full buffer in each unit; 0 if unknown (stamp_vars_set of stamp_algorithm.h)."""
    size, rate = values["buffer"].in_bytes(port.frame_bytes), _rate_bps(port, values)
    time = 8 * min(size, BUFFER_BYTES_MAX) * NS_PER_SECOND // rate if rate else 0
    in_packets = min(buffer_packets(port, values), U32_MAX)
    return {"packets": in_packets, "bytes": min(size, U32_MAX), "ns": time if time <= U32_MAX else 0}


def _bins(port: Port, values: Values, unit: str, bits: int, full: int) -> Iterator[Entry]:
    """The entries of unequal bins for one unit and number of bits. The program computes equal bins itself."""
    if not full:
        return
    if min(1 << bits, full) > BINS_MAX:
        text = f"in P4 there are at most {BINS_MAX} unequal bins, but hosts request {bits} bits of {unit}"
        raise SettingError("exponent", text)
    edges = _edges(values, full, bits)
    for first, end in zip(edges, [*edges[1:], full + 1], strict=True):
        value = first + (end - 1 - first) // 2 if values["middle"] else first
        last = U64_MAX if end > full else end - 1
        lengths = Range(first, last)
        key: dict[str, Match] = {"port": port.number, "unit": UNITS.index(unit), "bits": bits, "length": lengths}
        yield Entry("bins", "stands_for", {"value": value}, key, priority=1)


def _edges(values: Values, full: int, bits: int) -> list[int]:
    """The first length of each bin, in ascending order; of several bins that start at one length, the last has it."""
    if 1 << bits <= BINS_MAX:
        return sorted({_edge(values, full, bits, step) for step in range(1 << bits)})
    # There are more bins than lengths: most lengths have a bin for themselves.
    return [length for length in range(full + 1) if _is_edge(values, full, bits, length)]


def _edge(values: Values, full: int, bits: int, step: int) -> int:
    """The smallest length in a bin (stamp_edge of stamp_algorithm.h)."""
    exponent: int = values["exponent"]
    if values["fine_at_full"]:
        return full - int(full * ((1 << bits) - step) ** exponent >> bits * exponent)
    return -int(-full * step**exponent >> bits * exponent)


def _is_edge(values: Values, full: int, bits: int, length: int) -> bool:
    """Whether a bin starts at this length, by bisection over the bins."""
    low, high = 0, 1 << bits
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _edge(values, full, bits, middle) <= length else (low, middle)
    return _edge(values, full, bits, low) == length
