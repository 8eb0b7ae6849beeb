# SPDX-License-Identifier: Apache-2.0
"""Histograms of sojourn times by traffic class, as a tap records them (kernel/modules/qtap/qtap_sojourn.h)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

EXACT_NS, PER_OCTAVE, BINS, OTHERS = 128, 64, 2240, 256
"""Bins are 1 ns wide below `EXACT_NS`. Above it, each power of two has `PER_OCTAVE` bins. `OTHERS` is the class that
all classes without a histogram share.
"""
ECN = ("not-ect", "ect1", "ect0", "ce")

Counts = npt.NDArray[np.uint64]


def bin_from_ns(bins: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The lower bound of each bin, in ns."""
    shift = np.maximum(bins // PER_OCTAVE - 1, 0)
    edges: npt.NDArray[np.int64] = (bins - shift * PER_OCTAVE) << shift
    return edges


def class_columns(classes: npt.NDArray[np.uint32]) -> dict[str, list[Any]]:
    """The ECN and DSCP fields of these classes on arrival; None for the class `OTHERS`."""
    known = [int(number) if number < OTHERS else None for number in classes]
    return {
        "ecn": [None if number is None else ECN[number & 3] for number in known],
        "dscp": [None if number is None else number >> 2 for number in known],
    }


@dataclass(frozen=True)
class Sojourn:
    """The packets of a class that have left a queue: exact sums, and the count in each bin from `first` on."""

    queue: int
    time_ns: int
    traffic: int
    """DSCP << 2 | ECN on arrival, or `OTHERS`."""
    packets: int
    sum_ns: int
    max_ns: int
    """If `at_bound`, the maximum since the previous bound."""
    first: int
    counts: Counts
    at_bound: bool = False
    kind: Literal["sojourn"] = "sojourn"

    @property
    def bins(self) -> npt.NDArray[np.int64]:
        """The bin numbers of `counts`."""
        return np.arange(self.first, self.first + len(self.counts), dtype=np.int64)

    def quantile_ns(self, share: float) -> int | None:
        """The quantile for this share of the packets, as the upper bound of its bin; None without packets."""
        cumulative = np.cumsum(self.counts.astype(np.int64))
        if not len(cumulative) or not cumulative[-1]:
            return None
        index = int(cumulative.searchsorted(max(int(np.ceil(round(share * int(cumulative[-1]), 6))), 1)))
        return min(int(bin_from_ns(self.bins[index] + 1)) - 1, self.max_ns)
