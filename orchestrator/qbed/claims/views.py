# SPDX-License-Identifier: Apache-2.0
"""The views of a run's tables, for the SQL of claims, figures and users.

The views `cells`, `flows`, `queues`, `queue_series`, `queue_events`, `tcp_info`, `rates`, `routes`, `statistics`,
`convergence` and those of windows hold complete cells only, each row with its cell's axes as columns. `all_cells` also
has those that failed or are invalid. A campaign's own views build on them, and `MACROS` are functions for all. What
this SQL may reach: `qbed.claims.sql`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import duckdb
import pyarrow as pa

from qbed.base.errors import QbedError
from qbed.campaign.axes import Value
from qbed.campaign.until import STUDENT_95
from qbed.claims.sql import Connection, confined, create_view, define, one_line, quoted, text
from qbed.storage.axis_values import quantity_columns
from qbed.storage.run_folder import RunFolder
from qbed.telemetry import tables

MACROS = (
    # Jain, Chiu, Hawe 1984: 1 if all are equal, 1/n if one has everything
    "jain_index(x) AS pow(sum(x), 2) / (count(x) * sum(pow(x, 2)))",
    # half the width of the mean's 95 % confidence interval; NULL for a single value, beyond 31 values a little too wide
    f"interval_95(x) AS {list(STUDENT_95)}[least(count(x) - 1, {len(STUDENT_95)})] * stddev(x) / sqrt(count(x))",
)
"""Aggregates for claims, figures and views."""
# Convergence time: from each instant at which links change state to the last route change before the next one.
_CONVERGENCE = """
WITH events AS (
    SELECT cell{axes}, time_ns AS at_ns, list_sort(list(DISTINCT link)) AS links, change AS state
    FROM routes e WHERE link IS NOT NULL AND change IN ('down', 'up') GROUP BY ALL),
  spans AS (
    SELECT *, lead(at_ns) OVER (PARTITION BY cell ORDER BY at_ns) AS until_ns FROM events)
SELECT e.cell{axes}, e.at_ns, e.links, e.state, count(r.time_ns) AS changes,
  coalesce(max(r.time_ns - e.at_ns), 0) AS convergence_ns
FROM spans e LEFT JOIN routes r ON r.cell = e.cell AND r.change IN ('set', 'removed') AND r.protocol <> 'kernel'
  AND r.time_ns >= e.at_ns AND r.time_ns < coalesce(e.until_ns, 9223372036854775807)
GROUP BY ALL
"""


def connect(run: Path, only: Mapping[str, Value] | None = None) -> Connection:
    """DuckDB with the macros and views of a merged run folder; `QbedError` if a view of the campaign fails.

    `only`: values of axes, as if the run had no other cells.
    """
    store = RunFolder(run)
    files, identity = store.tables(), store.identity()
    conditions = [f"{quoted(axis)} = {text(value)}" for axis, value in (only or {}).items()]
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    axes = {axis["name"]: axis["values"] for axis in identity["matrix"]["axes"]}
    numbers = [quantity.column for quantity in quantity_columns(axes.items())]
    connection = _connect([*axes], files, spill=run, where=where, numbers=numbers)
    for view in identity.get("views", ()):
        try:
            define(connection, view["name"], view["sql"])
        except duckdb.Error as error:
            raise QbedError(f"the campaign's view `{view['name']}` is wrong: {one_line(error)}") from error
    return connection


def connect_empty(columns: dict[str, str]) -> Connection:
    """DuckDB with macros and empty tables, without a campaign's views. `columns`: those of the axes."""
    return _connect(list(columns), {}, tables.cells_schema(columns))


def _connect(
    axes: list[str],
    files: dict[str, Path],
    cells: pa.Schema | None = None,
    spill: Path | None = None,
    where: str = "",
    numbers: Iterable[str] = (),
) -> Connection:
    """Macros and views of those cells; tables that have no file are empty. `numbers`: columns of quantities."""
    connection = confined(files.values(), spill)
    source = {name: f"read_parquet({text(file)})" for name, file in files.items()}
    for macro in MACROS:
        connection.execute(f"CREATE MACRO {macro}")
    for name, schema in {"cells": cells, **tables.SCHEMAS}.items():
        if name not in files:
            connection.register(f"empty_{name}", schema.empty_table())
    create_view(connection, "all_cells", f"SELECT * FROM {source.get('cells', 'empty_cells')}{where}")
    create_view(connection, "cells", "SELECT * FROM all_cells WHERE status = 'complete'")
    columns = ", ".join(f"c.{quoted(name)}" for name in (*axes, *numbers))
    for name in tables.SCHEMAS:
        table = source.get(name, f"empty_{name}")
        create_view(connection, name, f"SELECT {columns}, t.* FROM {table} t JOIN cells c USING (cell)")
    axis_columns = "".join(f", e.{quoted(axis)}" for axis in axes)
    create_view(connection, "convergence", _CONVERGENCE.replace("{axes}", axis_columns))
    return connection
