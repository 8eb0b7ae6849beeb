# SPDX-License-Identifier: Apache-2.0
"""Claims: SQL over a run's tables says whether a sentence of a paper holds here.

The views `cells`, `flows`, `queues`, `queue_series`, `queue_events`, `tcp_info`, `rates`, `routes`, `statistics`,
`convergence` and those of windows hold complete cells only, each row with its cell's axes as columns. `all_cells` also
has those that failed or are invalid. A campaign's own views build on them, and `MACROS` are functions for all. What
this SQL may reach: `qbed.claims.sql`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from pydantic import BaseModel, ConfigDict, JsonValue

from qbed.base.errors import QbedError
from qbed.base.json_files import Json, Row, read_json
from qbed.campaign.axes import Value
from qbed.campaign.file import Campaign, Claim
from qbed.campaign.until import STUDENT_95
from qbed.claims.sql import Connection, checked, confined, first_rows, foreseen, one_line, quoted, text
from qbed.storage.axis_values import quantity_columns
from qbed.storage.checksums import check_merged
from qbed.storage.run_folder import CLAIMS, RunFolder
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


MAX_MEASURED = 10_000
"""Characters of JSON beside `holds`."""


class Verdict(BaseModel):
    """The outcome of a claim. `verdict`: `holds`, `refuted`, `undecided` (with a `reason`) or `not asked`."""

    model_config = ConfigDict(frozen=True)

    name: str
    paper: str
    source: str
    sql: str
    expect: str
    why: str | None
    verdict: str
    reason: str | None = None
    measured: dict[str, JsonValue] = {}

    @property
    def as_expected(self) -> bool:
        return self.verdict in (self.expect, "not asked")


def connect(run: Path, only: tuple[str, Value] | None = None) -> Connection:
    """DuckDB with the macros and views of a merged run folder; `QbedError` if a view of the campaign's own fails.

    `only`: an axis and one of its values: as if the run had no other cells.
    """
    store = RunFolder(run)
    files, identity = store.tables(), store.identity()
    where = "" if only is None else f" WHERE {quoted(only[0])} = {text(only[1])}"
    axes = {axis["name"]: axis["values"] for axis in identity["matrix"]["axes"]}
    numbers = [one.column for one in quantity_columns(axes.items())]
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
    """Macros and views of those cells; tables that have no file are empty. `numbers`: columns that older runs lack."""
    connection = confined(files.values(), spill)
    source = {name: f"read_parquet({text(file)})" for name, file in files.items()}
    for macro in MACROS:
        connection.execute(f"CREATE MACRO {macro}")
    for name, schema in {"cells": cells, **tables.SCHEMAS}.items():
        if name not in files:
            connection.register(f"empty_{name}", schema.empty_table())
    define(connection, "all_cells", f"SELECT * FROM {source.get('cells', 'empty_cells')}{where}")
    define(connection, "cells", "SELECT * FROM all_cells WHERE status = 'complete'")
    there = {name for name, *_ in connection.execute("DESCRIBE all_cells").fetchall()}
    axes = [*axes, *(name for name in numbers if name in there)]
    columns = ", ".join(f"c.{quoted(axis)}" for axis in axes)
    for name in tables.SCHEMAS:
        table = source.get(name, f"empty_{name}")
        define(connection, name, f"SELECT {columns}, t.* FROM {table} t JOIN cells c USING (cell)")
    axis_columns = "".join(f", e.{quoted(axis)}" for axis in axes)
    define(connection, "convergence", _CONVERGENCE.replace("{axes}", axis_columns))
    return connection


def define(connection: Connection, name: str, sql: str) -> None:
    """Make a view; `duckdb.Error` if its SQL is wrong."""
    with foreseen():
        connection.execute(f"CREATE VIEW {quoted(name)} AS {checked(sql)}")


def judge_all(
    connection: Connection, campaign: Campaign, profile: str | None, lacking: str | None = None
) -> list[Verdict]:
    """The verdict of each claim. With failed or invalid cells none is decided: a part proves nothing of the whole.

    `lacking`: why these cells are too few to decide anything.
    """
    rows = connection.execute(
        "SELECT status, count(*) FROM all_cells WHERE status <> 'complete' GROUP BY 1 ORDER BY 1"
    ).fetchall()
    gaps = " and ".join(f"{count} {status}" for status, count in rows)
    verdicts = []
    for claim in campaign.claims:
        if not campaign.asks(claim, profile):
            only = ", ".join(claim.profiles or ())
            outcome: Row = {"verdict": "not asked", "reason": f"only in {only}"}
        else:
            outcome = _ask(connection, claim)
            if gaps:
                outcome |= {"verdict": "undecided", "reason": f"cells are missing: {gaps}"}
            elif lacking is not None:
                outcome |= {"verdict": "undecided", "reason": lacking}
        verdicts.append(Verdict(**claim.model_dump(exclude={"profiles"}), **outcome))
    return verdicts


def _ask(connection: Connection, claim: Claim) -> Row:
    try:
        names, rows = first_rows(connection, claim.sql, 2)
    except duckdb.Error as error:
        return {"verdict": "undecided", "reason": f"the SQL fails: {one_line(error)}"}
    if len(rows) != 1 or "holds" not in names:
        return {"verdict": "undecided", "reason": "the SQL must give one row with a column `holds`"}
    values = dict(zip(names, rows[0], strict=True))
    holds = values.pop("holds")
    measured = {name: _plain(value) for name, value in values.items()}
    if not isinstance(holds, bool):
        return {"verdict": "undecided", "reason": f"`holds` is {holds}, not true or false", "measured": measured}
    if len(json.dumps(measured)) > MAX_MEASURED:
        return {"verdict": "undecided", "reason": f"what it measured is longer than {MAX_MEASURED} characters"}
    return {"verdict": "holds" if holds else "refuted", "measured": measured}


def _plain(value: Any) -> Json:
    """A value of DuckDB as JSON: decimals become numbers, whatever is unknown becomes text."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no such number
    if value is None or isinstance(value, bool | int | float | str):
        return value
    try:
        return _plain(float(value))
    except (TypeError, ValueError, OverflowError):
        return str(value)


def read_verdicts(run: Path) -> list[Verdict]:
    """The verdicts that a run's claims.json holds; none without that file."""
    check_merged(run, [CLAIMS])
    if not (run / CLAIMS).exists():
        return []
    try:
        return [Verdict.model_validate(item) for item in read_json(run / CLAIMS)]
    except (OSError, ValueError, TypeError) as error:
        text = " ".join(str(error).split())
        raise QbedError(f"{run / CLAIMS} cannot be read: {text}; `qbed run` writes it again") from None
