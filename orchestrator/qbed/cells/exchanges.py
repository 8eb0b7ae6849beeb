# SPDX-License-Identifier: Apache-2.0
"""The table `exchanges`, from the records of the clients' agents. There may be millions, so it is built of arrays."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from qbed.cells.arrow import table_of
from qbed.plan.model import Plan
from qbed.telemetry.exchanges import NEVER, read_exchanges
from qbed.telemetry.records import RecordError
from qbed.telemetry.tables import CELL_SCHEMAS

_STATUS = ("complete", "running", "failed")
_TIMES = ("connected_ns", "first_byte_ns", "end_ns")


def exchanges(plan: Plan, path: Path) -> Iterator[pa.Table]:
    """Generate Arrow tables of one cell's exchanges, in the order in which they ended."""
    names, labels = [node.name for node in plan.nodes], [workload.label for workload in plan.workloads]
    for records in read_exchanges(path):
        for name, known in (("workload", labels), ("client", names), ("server", names)):
            if len(records) and int(records[name].max()) >= len(known):
                raise RecordError(f"{path.name}: the plan has no {name} {int(records[name].max())}")
        never = {name: records[name] == NEVER for name in _TIMES}
        failed = records["error"] != 0
        status = np.where(failed, 2, np.where(never["end_ns"], 1, 0))
        taken = np.where(never["end_ns"], 0, records["end_ns"]) - records["start_ns"]
        columns = {
            "label": _named(records["workload"], labels),
            "client": _named(records["client"], names),
            "server": _named(records["server"], names),
            "status": _named(status, list(_STATUS)),
            "error": pa.array([os.strerror(code) if code else None for code in records["error"].tolist()], pa.string()),
            "latency_ns": pa.array(taken, mask=never["end_ns"]),
            "query_ns": pa.array(taken, mask=never["end_ns"] | (records["last"] == 0)),
            **{name: pa.array(records[name], mask=never[name]) for name in _TIMES},
        }
        yield table_of(CELL_SCHEMAS["exchanges"], columns, records)


def _named(indices: npt.NDArray[np.integer], names: list[str]) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(indices.astype(np.int32)), pa.array(names))
