# SPDX-License-Identifier: Apache-2.0
"""Rows of `probes`: one-way delays in both directions, losses, and delay variation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from qbed.base.files import open_regular
from qbed.base.json_files import Row
from qbed.telemetry import tables
from qbed.telemetry.probes import NEVER, read_probes
from qbed.telemetry.records import RecordError

NAMES = ("label", "src", "dst")


class Probes:
    """The probes of one cell. `flows`: the rows of `flows` with the transport `probe`, by number."""

    def __init__(self, flows: Mapping[int, Row]) -> None:
        self._numbers = np.array(sorted(flows), np.int64)
        rows = [flows[number] for number in sorted(flows)]
        self._names = {name: pa.array([row[name] for row in rows], pa.string()).dictionary_encode() for name in NAMES}
        self._workloads = np.array([row["workload"] for row in rows], np.int32)
        self._classes = pa.array([row.get("dscp") for row in rows], pa.uint8())
        # The last returned probe of each flow: its number and its forward delay.
        self._last = np.full(len(rows), -2, np.int64)
        self._last_forward = np.zeros(len(rows), np.int64)

    def batches(self, path: Path) -> Iterator[pa.Table]:
        """Generate Arrow tables of the rows."""
        if path.exists():
            with open_regular(path) as stream:
                yield from map(self._table, read_probes(stream))

    def _table(self, records: npt.NDArray[np.void]) -> pa.Table:
        place = np.searchsorted(self._numbers, records["flow"])
        known = self._numbers[np.minimum(place, len(self._numbers) - 1)] if len(self._numbers) else np.array([-1])
        if (unknown := records["flow"][known != records["flow"]]).size:
            raise RecordError(f"probes.bin: flow {unknown[0]} is no probe")
        missing = records["returned_ns"] == NEVER
        forward = records["received_ns"] - records["sent_ns"]
        variation, unknown_variation = self._variation(place, records["number"].astype(np.int64), forward, missing)
        # A missing probe is lost if a later one of its flow returned: probes of a flow are not reordered.
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
            "forward_ns": pa.array(forward, mask=missing),
            "reverse_ns": pa.array(records["returned_ns"] - records["replied_ns"], mask=missing),
            "ipdv_ns": pa.array(variation, mask=unknown_variation),
            "lost": pa.array(lost, mask=missing & ~lost),
        }
        schema = tables.CELL_SCHEMAS["probes"]
        return pa.Table.from_arrays([columns[item.name] for item in schema], schema=schema)

    def _variation(
        self,
        place: npt.NDArray[np.int64],
        number: npt.NDArray[np.int64],
        forward: npt.NDArray[np.int64],
        missing: npt.NDArray[np.bool_],
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """The variation of each probe's forward delay to the previous probe (IPDV), and a mask of unknown ones."""
        order = np.lexsort((number, place))
        order = order[~missing[order]]
        flow, sequence, took = place[order], number[order], forward[order]
        first = np.ones(len(order), bool)
        first[1:] = flow[1:] != flow[:-1]
        before, before_took = np.roll(sequence, 1), np.roll(took, 1)
        before[first], before_took[first] = self._last[flow[first]], self._last_forward[flow[first]]
        variation, unknown = np.zeros(len(place), np.int64), np.ones(len(place), bool)
        variation[order], unknown[order] = took - before_took, sequence != before + 1
        end = np.roll(first, -1) & (sequence > self._last[flow])
        self._last[flow[end]], self._last_forward[flow[end]] = sequence[end], took[end]
        return variation, unknown
