# SPDX-License-Identifier: Apache-2.0
"""Values of one metric from ended cells, before the merge."""

from __future__ import annotations

from collections.abc import Iterable

import duckdb
import pyarrow as pa

from qbed.campaign.bands import METRICS
from qbed.cells.arrow import read_cell
from qbed.storage.checksums import read_cell_record
from qbed.storage.run_folder import RunFolder
from qbed.telemetry import tables


def values_of(run: RunFolder, cells: Iterable[int], metric: str) -> dict[int, float]:
    """The metric of each complete cell that has a value, by number."""
    found: dict[str, list[pa.Table]] = {name: [] for name in ("flows", "queues")}
    rows = []
    schema = tables.cells_schema({})
    for number in cells:
        folder = run.folder(number)
        if folder.exists():
            row = read_cell_record(folder, number)
            if row["status"] != "complete":
                continue
            rows.append({name: row.get(name) for name in schema.names})
            for name, parts in found.items():
                parts.extend(read_cell(folder / f"{name}.arrow", number))
    if not rows:
        return {}
    with duckdb.connect() as connection:
        connection.register("cells", pa.Table.from_pylist(rows, schema=schema))
        for name, parts in found.items():
            connection.register(name, pa.concat_tables([tables.SCHEMAS[name].empty_table(), *parts]))
        values = connection.execute(METRICS[metric]).fetchall()
    return {int(number): float(value) for number, value in values if value is not None}
