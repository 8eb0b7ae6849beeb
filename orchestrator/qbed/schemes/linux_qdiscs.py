# SPDX-License-Identifier: Apache-2.0
"""Linux's queueing disciplines: which of them the lab kernel has, and the fields of their statistics."""

from __future__ import annotations

from dataclasses import dataclass

_RED = "I dropped_early, I overlimit, I dropped_other, I marked"


@dataclass(frozen=True)
class LinuxQdisc:
    """A queueing discipline of Linux."""

    in_lab_kernel: bool = True
    """Whether a lab file may name it. For a name that the kernel lacks, it would start `modprobe`."""
    statistics: str = ""
    """Type (as in `struct`) and name of each field of `struct tc_KIND_xstats`, in order; `-` is not reported."""


_PLAIN, _ABSENT = LinuxQdisc(), LinuxQdisc(in_lab_kernel=False)
LINUX_QDISCS = {
    "bfifo": _PLAIN,
    "bpf": _ABSENT,
    "cake": _PLAIN,  # its statistics are netlink attributes
    "cbs": _ABSENT,
    "choke": LinuxQdisc(statistics=f"{_RED}, I dropped_pairs"),
    "codel": LinuxQdisc(
        statistics="I largest_packet_bytes, I count, I last_count, I last_delay_us, i drop_next_us, I overlimit,"
        " I marked, I dropping, I marked_by_threshold"
    ),
    "drr": _PLAIN,
    "dualpi2": LinuxQdisc(
        in_lab_kernel=False,
        statistics="I probability, I delay_classic_us, I delay_l4s_us, I enqueued_classic, I enqueued_l4s,"
        " I largest_queue, I marked, I marked_by_step, i credit_bytes, I memory_bytes, I largest_memory_bytes,"
        " I memory_limit_bytes",
    ),
    "etf": _ABSENT,
    "ets": _PLAIN,
    "fq": _PLAIN,
    "fq_codel": LinuxQdisc(
        statistics="I -, I largest_packet_bytes, I overlimit, I marked, I new_flow_count, I new_flows, I old_flows,"
        " I marked_by_threshold, I memory_bytes, I dropped_for_memory"
    ),
    "fq_pie": LinuxQdisc(
        statistics="I enqueued, I dropped, I overlimit, I dropped_for_memory, I marked, I new_flow_count, I new_flows,"
        " I old_flows, I memory_bytes"
    ),
    "gred": _PLAIN,
    "hfsc": _ABSENT,
    "hhf": _PLAIN,
    "htb": _PLAIN,
    "ingress": _ABSENT,
    "mq": _ABSENT,
    "mqprio": _ABSENT,
    "multiq": _ABSENT,
    "netem": _PLAIN,
    "noqueue": _ABSENT,
    "pfifo": _PLAIN,
    "pfifo_fast": _PLAIN,
    "pie": LinuxQdisc(
        statistics="Q probability, I delay_us, I departure_rate, I -, I enqueued, I dropped, I overlimit,"
        " I largest_queue, I marked"
    ),
    "plug": _PLAIN,
    "prio": _PLAIN,
    "qfq": _ABSENT,
    "red": LinuxQdisc(statistics=_RED),
    "sfb": _PLAIN,
    "sfq": _PLAIN,
    "skbprio": _ABSENT,
    "taprio": _ABSENT,
    "tbf": _PLAIN,
    "teql": _ABSENT,
}
LAB_QDISCS = frozenset(name for name, qdisc in LINUX_QDISCS.items() if qdisc.in_lab_kernel)
"""The queueing disciplines that the lab kernel has besides the schemes'."""
