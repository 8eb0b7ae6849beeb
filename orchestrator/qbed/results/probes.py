# SPDX-License-Identifier: Apache-2.0
"""Probes as rows: what the way there and the way back took, what is lost, and how latencies vary."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from qbed.files import open_regular
from qbed.results import tables
from qbed.telemetry.probes import NEVER, read_probes
from qbed.telemetry.records import RecordError, Row

NAMES = ("label", "src", "dst")


class Probes:
    """The probes of one cell. `flows`: those that are probes, by their numbers, as rows of `flows` have them."""

    def __init__(self, flows: Mapping[int, Row]) -> None:
        self._numbers = np.array(sorted(flows), np.int64)
        rows = [flows[number] for number in sorted(flows)]
        self._names = {name: pa.array([row[name] for row in rows], pa.string()).dictionary_encode() for name in NAMES}
        self._workloads = np.array([row["workload"] for row in rows], np.int32)
        self._classes = pa.array([row.get("dscp") for row in rows], pa.uint8())
        # Of each flow, of its probes that are back: the last number so far, and how long that one's way there took.
        self._last = np.full(len(rows), -2, np.int64)
        self._last_there = np.zeros(len(rows), np.int64)

    def batches(self, path: Path) -> Iterator[Any]:
        """Tables of their rows."""
        if path.exists():
            with open_regular(path) as stream:
                yield from map(self._table, read_probes(stream))

    def _table(self, records: npt.NDArray[np.void]) -> Any:
        place = np.searchsorted(self._numbers, records["flow"])
        known = self._numbers[np.minimum(place, len(self._numbers) - 1)] if len(self._numbers) else np.array([-1])
        if (wrong := records["flow"][known != records["flow"]]).size:
            raise RecordError(f"probes.bin: flow {wrong[0]} is no probe")
        missing = records["returned_ns"] == NEVER
        there = records["received_ns"] - records["sent_ns"]
        variation, none = self._variation(place, records["number"].astype(np.int64), there, missing)
        # One that was sent before another that is back is lost: those of a flow wait in no queue beside each other.
        lost = missing & (records["number"] < self._last[place])
        at = pa.array(place)
        columns = {
            "flow": pa.array(records["flow"].astype(np.int32)),
            "workload": pa.array(self._workloads[place]),
            **{name: values.take(at).cast(tables.NAME) for name, values in self._names.items()},
            "dscp": self._classes.take(at),
            "probe": pa.array(records["number"].astype(np.int64)),
            "sent_ns": pa.array(records["sent_ns"]),
            "rtt_ns": pa.array(records["returned_ns"] - records["sent_ns"], mask=missing),
            "there_ns": pa.array(there, mask=missing),
            "back_ns": pa.array(records["returned_ns"] - records["replied_ns"], mask=missing),
            "ipdv_ns": pa.array(variation, mask=none),
            "lost": pa.array(lost, mask=missing & ~lost),
        }
        schema = tables.OF_CELL["probes"]
        return pa.Table.from_arrays([columns[item.name] for item in schema], schema=schema)

    def _variation(
        self,
        place: npt.NDArray[np.int64],
        number: npt.NDArray[np.int64],
        there: npt.NDArray[np.int64],
        missing: npt.NDArray[np.bool_],
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """How much longer each one's way there took than that of the one before it, and where that is not known."""
        order = np.lexsort((number, place))
        order = order[~missing[order]]
        flow, this, took = place[order], number[order], there[order]
        first = np.ones(len(order), bool)
        first[1:] = flow[1:] != flow[:-1]
        before, before_took = np.roll(this, 1), np.roll(took, 1)
        before[first], before_took[first] = self._last[flow[first]], self._last_there[flow[first]]
        variation, none = np.zeros(len(place), np.int64), np.ones(len(place), bool)
        variation[order], none[order] = took - before_took, this != before + 1
        end = np.roll(first, -1) & (this > self._last[flow])
        self._last[flow[end]], self._last_there[flow[end]] = this[end], took[end]
        return variation, none
