# SPDX-License-Identifier: Apache-2.0
"""Decodes the statistics of Linux's queueing disciplines: the payload of TCA_XSTATS, or else of TCA_STATS_APP.

The layout is `struct tc_KIND_xstats` of include/uapi/linux/pkt_sched.h; cake uses netlink attributes. An older kernel
omits the last fields, a newer one appends fields. Names end in a unit unless they count packets.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

from qbed.schemes.encoding import attributes
from qbed.schemes.linux_qdiscs import LINUX_QDISCS

Values = dict[str, int | float]

_FIELDS = {name: qdisc.statistics for name, qdisc in LINUX_QDISCS.items() if qdisc.statistics}
_SCALE = {("pie", "probability"): 2.0**-64, ("dualpi2", "probability"): 2.0**-32}
# TCA_CAKE_STATS_* and TCA_CAKE_TIN_STATS_*
_CAKE = {
    2: "capacity_bytes_per_s", 3: "memory_limit_bytes", 4: "memory_bytes", 5: "average_network_offset_bytes",
    6: "min_packet_bytes", 7: "max_packet_bytes", 8: "min_adjusted_bytes", 9: "max_adjusted_bytes",
}  # fmt: skip
_CAKE_TINS = 10
_CAKE_TIN = {
    2: "enqueued", 3: "enqueued_bytes", 4: "dropped", 5: "dropped_bytes", 6: "dropped_acks", 8: "marked",
    10: "backlog_packets", 11: "backlog_bytes", 12: "threshold_bytes_per_s", 13: "target_us", 14: "interval_us",
    15: "way_indirect_hits", 16: "way_misses", 17: "way_collisions", 18: "peak_delay_us", 19: "average_delay_us",
    20: "base_delay_us", 21: "sparse_flows", 22: "bulk_flows", 23: "unresponsive_flows", 24: "largest_packet_bytes",
    25: "quantum_bytes",
}  # fmt: skip
_SUMMED = ("enqueued", "dropped", "dropped_acks", "marked")


def decode(kind: str, xstats: bytes) -> Values:
    """The statistics by name; empty if the kind is not in `KINDS`."""
    if kind in _READERS:
        return _READERS[kind](xstats)
    return dict(_structure(kind, xstats)) if kind in _FIELDS else {}


def _structure(kind: str, data: bytes) -> Iterator[tuple[str, int | float]]:
    at = 0
    for field in _FIELDS[kind].split(","):
        code, name = field.split()
        size = struct.calcsize(code)
        if at + size > len(data):
            return
        (value,) = struct.unpack_from(f"<{code}", data, at)
        at += size
        if name != "-":
            yield name, value * _SCALE[kind, name] if (kind, name) in _SCALE else value


def _cake(data: bytes) -> Values:
    """The statistics of the qdisc and of each tin (`tin0_dropped`), and the tins' packet counts summed."""
    values: Values = {}
    for number, payload in attributes(data):
        if number in _CAKE:
            values[_CAKE[number]] = _number(payload)
        elif number == _CAKE_TINS:
            for tin, tin_data in attributes(payload):
                known = ((_CAKE_TIN[kind], value) for kind, value in attributes(tin_data) if kind in _CAKE_TIN)
                values |= {f"tin{tin - 1}_{name}": _number(value) for name, value in known}
    for name in _SUMMED:
        tins = [value for key, value in values.items() if key.startswith("tin") and key.partition("_")[2] == name]
        values |= {name: sum(tins)} if tins else {}
    return values


def _number(payload: bytes) -> int:
    return int.from_bytes(payload[:8], "little")


_READERS: dict[str, Callable[[bytes], Values]] = {"cake": _cake}
KINDS = frozenset(_FIELDS) | frozenset(_READERS)
"""The kinds with statistics that can be decoded."""


def names(kind: str) -> list[str]:
    """The names of a kind's statistics. A statistic of cake's tins is one name, `tinN_...`."""
    if kind == "cake":
        return [*_CAKE.values(), *_SUMMED, *(f"tinN_{name}" for name in _CAKE_TIN.values())]
    return [name for name in (field.split()[1] for field in _FIELDS[kind].split(",")) if name != "-"]


def markdown_rows() -> str:
    """The rows of the table in docs/measuring.md."""
    return "".join(f"| {kind} | {', '.join(f'`{name}`' for name in names(kind))} |\n" for kind in sorted(KINDS))
