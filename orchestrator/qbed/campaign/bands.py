# SPDX-License-Identifier: Apache-2.0
"""The metrics that two substrates are compared by, and how far apart a campaign lets them be."""

from __future__ import annotations

import re
from dataclasses import dataclass

METRICS = {
    "goodput_bps": "SELECT cell, goodput_bps FROM cells",
    "fct_mean_ns": "SELECT cell, avg(fct_ns) FROM flows GROUP BY cell",
    "fct_p99_ns": "SELECT cell, quantile_cont(fct_ns, 0.99) FROM flows GROUP BY cell",
    "flows_complete": "SELECT cell, flows_complete FROM cells",
    "queue_mean_packets": "SELECT cell, max(mean_packets) FROM queues WHERE role = 'switch' GROUP BY cell",
    "queue_max_packets": "SELECT cell, max(max_packets) FROM queues WHERE role = 'switch' GROUP BY cell",
    "dropped_packets": "SELECT cell, dropped_packets FROM cells",
    "marked_packets": "SELECT cell, marked_packets FROM cells",
    "retransmits": "SELECT cell, retransmits FROM cells",
    "timeouts": "SELECT cell, timeouts FROM cells",
}
"""By name: a number for each cell. Of queues: that of the switch port where it is largest."""
_BAND = re.compile(r"(?:(?P<share>\d+(?:\.\d+)?)\s*%)?(?:\s*or\s*)?(?P<absolute>\d+(?:\.\d+)?)?")


@dataclass(frozen=True)
class Band:
    """A tolerance: a share of the virtual value, or a difference in the metric's unit, whichever is wider."""

    share: float = 0.0
    absolute: float = 0.0

    def holds(self, virtual: float, other: float) -> bool:
        return abs(other - virtual) <= max(self.share * abs(virtual), self.absolute)

    def __str__(self) -> str:
        parts = [f"{100 * self.share:.4g} %"] if self.share else []
        return " or ".join([*parts, *([f"{self.absolute:.6g}"] if self.absolute or not parts else [])])


def parse_band(value: object) -> Band:
    """`10 %`, `3`, or `10 % or 3`. ValueError for anything else."""
    if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
        return Band(absolute=float(value))
    found = _BAND.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None or not (found["share"] or found["absolute"]):
        raise ValueError(f"expected a tolerated difference such as `10 %`, `3` or `10 % or 3`, got `{value}`")
    return Band(float(found["share"] or 0) / 100, float(found["absolute"] or 0))
