# SPDX-License-Identifier: Apache-2.0
"""What a viewer gets of samples: `BINS` columns of the cell's duration for each queue and flow, so that it has a bound,
whatever the lab samples. A column that comes in two pieces is said twice: whoever reads it puts them together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

BINS = 500
MOST_FLOWS = 100
"""Of which a viewer gets the rates: the first that say one."""
_SUMS = ("dequeued", "dequeued_bytes", "dropped", "marked")
SAMPLED = ("time_ns", "interval_ns", "byte_ns", "min_bytes", "max_bytes", *_SUMS)
"""What `binned` wants to know beside the queue: numpy arrays."""

Columns = dict[str, list[Any]]


def width_of(duration_ns: int) -> int:
    """How long a column is."""
    return max(1, -(-duration_ns // BINS))


def binned(queue: Any, samples: Mapping[str, Any], width_ns: int) -> Columns:
    """Samples by queue and column: the least and the most bytes in the queue, their mean, packets that left it (and
    their bytes), were dropped and marked. Empty if there are none.
    """
    at = np.maximum(samples["time_ns"].astype(np.int64) - 1, 0) // width_ns  # a sample's time is its end
    keys = np.asarray(queue).astype(np.int64) << 32 | at
    order = np.argsort(keys, kind="stable")
    if not (samples["interval_ns"] > 0).all():
        order = order[samples["interval_ns"][order] > 0]
    if not len(order):
        return {}
    keys = keys[order]
    begins = np.flatnonzero(np.diff(keys, prepend=-1))
    keys = keys[begins]

    def over(how: np.ufunc, name: str) -> Any:
        return how.reduceat(samples[name][order].astype(np.int64, copy=False), begins)

    ns = over(np.add, "interval_ns")
    return {
        "queue": (keys >> 32).tolist(),
        "bin": (keys & 0xFFFFFFFF).tolist(),
        "ns": ns.tolist(),
        "min": over(np.minimum, "min_bytes").tolist(),
        "mean": (over(np.add, "byte_ns") / ns).round(1).tolist(),
        "max": over(np.maximum, "max_bytes").tolist(),
        **{name: over(np.add, name).tolist() for name in _SUMS},
    }


class Flows:
    """The rates of the first flows that say one."""

    def __init__(self, width_ns: int) -> None:
        self._width_ns = width_ns
        self._known: set[int] = set()

    def rates(self, flow: Any, time_ns: Any, bps: Any) -> Columns:
        """Each flow's last rate of each column; `bps` is NaN where none is said."""
        keys = flow << 32 | time_ns // self._width_ns
        order = np.argsort(keys, kind="stable")
        order = order[~np.isnan(bps[order])]
        keys = keys[order]
        last = np.flatnonzero(np.diff(keys, append=-1))
        rates = bps[order[last]].astype(np.int64).tolist()
        found: Columns = {"flow": [], "bin": [], "bps": []}
        for key, rate in zip(keys[last].tolist(), rates, strict=True):
            if self._takes(key >> 32):
                for name, value in (("flow", key >> 32), ("bin", key & 0xFFFFFFFF), ("bps", rate)):
                    found[name].append(value)
        return found if found["flow"] else {}

    def _takes(self, flow: int) -> bool:
        if flow not in self._known and len(self._known) < MOST_FLOWS:
            self._known.add(flow)
        return flow in self._known
