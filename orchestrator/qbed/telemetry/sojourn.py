# SPDX-License-Identifier: Apache-2.0
"""How long the packets of a class waited in a queue, as its tap counts it (kernel/modules/qtap/qtap_sojourn.h)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

EXACT_NS, PER_OCTAVE, BINS, OTHERS = 128, 64, 2240, 256
"""Bins are 1 ns wide below the first, and above it there are so many to a power of two."""
ECN = ("not-ect", "ect1", "ect0", "ce")

Counts = npt.NDArray[np.uint64]


def bin_from_ns(bins: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The shortest wait of each of these bins."""
    shift = np.maximum(bins // PER_OCTAVE - 1, 0)
    edges: npt.NDArray[np.int64] = (bins - shift * PER_OCTAVE) << shift
    return edges


def class_columns(classes: npt.NDArray[np.uint32]) -> dict[str, list[Any]]:
    """The ECN and DSCP fields with which packets of these classes came; None: one of those that share the last one."""
    known = [int(number) if number < OTHERS else None for number in classes]
    return {
        "ecn": [None if number is None else ECN[number & 3] for number in known],
        "dscp": [None if number is None else number >> 2 for number in known],
    }


@dataclass(frozen=True)
class Sojourn:
    """All packets of a class that have left a queue: exact sums, and how many are in each bin from `first` on."""

    queue: int
    time_ns: int
    traffic: int
    """DSCP << 2 | ECN, as the packets came; or `OTHERS`."""
    packets: int
    sum_ns: int
    max_ns: int
    """Of one at a bound: since the bound before."""
    first: int
    counts: Counts
    at_bound: bool = False
    kind: Literal["sojourn"] = "sojourn"

    @property
    def bins(self) -> npt.NDArray[np.int64]:
        """The numbers of its bins."""
        return np.arange(self.first, self.first + len(self.counts), dtype=np.int64)

    def quantile_ns(self, share: float) -> int | None:
        """What that share of the packets waited at most: the most that the packet's bin holds."""
        seen = np.cumsum(self.counts.astype(np.int64))
        if not len(seen) or not seen[-1]:
            return None
        place = int(seen.searchsorted(max(int(np.ceil(round(share * int(seen[-1]), 6))), 1)))
        return min(int(bin_from_ns(self.bins[place] + 1)) - 1, self.max_ns)
