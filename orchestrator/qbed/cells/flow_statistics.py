# SPDX-License-Identifier: Apache-2.0
"""The table `flow_statistics`: what congestion controls report of their flows, by the names of congestion.yml."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from qbed.schemes.congestion import declaration_of
from qbed.schemes.declaration import Statistic, layout
from qbed.telemetry.flow_samples import STATISTICS, WORDS
from qbed.telemetry.records import RecordError
from qbed.telemetry.tables import CELL_SCHEMAS
from qbed.telemetry.taps import Records

_LARGEST = np.uint64(2**63 - 1)


class FlowStatistics:
    """Makes tables of records. `controls`: the plan's congestion controls with statistics."""

    def __init__(self, controls: Sequence[str]) -> None:
        self._controls = controls
        self.warnings: list[str] = []

    def table(self, records: Records) -> pa.Table:
        """The statistics in the records' order. RecordError for a congestion control that the plan does not have."""
        numbers = records["control"]
        if ((numbers < 0) | (numbers >= len(self._controls))).any():
            raise RecordError("flow_samples.bin: statistics of a congestion control that the plan does not have")
        parts = [part for number in np.unique(numbers) for part in self._columns(records, int(number))]
        names = sorted({name for _, name, _, _ in parts})
        rows = np.concatenate([rows for rows, *_ in parts]) if parts else np.zeros(0, np.int64)
        order = np.argsort(rows, kind="stable")
        rows = rows[order]

        def repeated(values: list[int]) -> npt.NDArray[np.int32]:
            sizes = [len(rows) for rows, *_ in parts]
            return np.repeat(np.array(values, np.int32), sizes)[order]

        columns = {
            "flow": records["id"][rows].astype(np.int32),
            "congestion_control": _names(repeated([number for *_, number, _ in parts]), [*self._controls]),
            "time_ns": records["time_ns"][rows],
            "statistic": _names(repeated([names.index(name) for _, name, _, _ in parts]), names),
            "value": np.concatenate([values for *_, values in parts])[order] if parts else np.zeros(0, np.int64),
        }
        schema = CELL_SCHEMAS[STATISTICS]
        return pa.Table.from_arrays([pa.array(columns[item.name], item.type) for item in schema], schema=schema)

    def _columns(
        self, records: Records, number: int
    ) -> list[tuple[npt.NDArray[np.int64], str, int, npt.NDArray[np.int64]]]:
        """For each statistic of a control: positions of its records, its name, the control's number, the values."""
        control = self._controls[number]
        declared = declaration_of(control)
        if declared is None:
            raise RecordError(f"no folder of congestion/ declares `{control}`, which the plan has")
        rows = np.flatnonzero(records["control"] == number)
        size, found = declared.statistics_bytes, int(records["bytes"][rows].min())
        if found != size:
            text = (
                f"`get_info` of {declared.module} returns {found} bytes of statistics, congestion.yml declares {size}"
            )
            if (warning := f"{text}: `flow_statistics` has none of `{control}`") not in self.warnings:
                self.warnings.append(warning)
            return []
        return [
            (rows, statistic.name, number, _values(records[rows], statistic, start))
            for statistic, start in layout(declared.statistics)
        ]


def _values(records: Records, statistic: Statistic, start: int) -> npt.NDArray[np.int64]:
    word = start // 4
    values = records[WORDS[word]].astype(np.uint64)
    if statistic.size == 8:
        values |= records[WORDS[word + 1]].astype(np.uint64) << np.uint64(32)
    return np.minimum(values, _LARGEST).astype(np.int64)


def _names(indices: npt.NDArray[np.int32], names: list[str]) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(indices), pa.array(names, pa.string()))
