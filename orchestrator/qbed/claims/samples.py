# SPDX-License-Identifier: Apache-2.0
"""Values of a claim for each seed of a run, by its SQL."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import duckdb

from qbed.base.errors import QbedError
from qbed.base.json_files import Json
from qbed.campaign.claim import Claim
from qbed.claims.sql import Connection, all_rows, first_rows, one_line

MAX_MEASURED = 10_000
"""Characters of JSON beside `holds`."""
MAX_GROUPS = 200
"""Combinations of a claim's columns `each`."""


class SampleError(QbedError):
    """A claim's SQL fails, or does not give what a claim needs."""


@dataclass
class Group:
    """The values of a claim's measures for one combination of its columns, by measure and seed."""

    columns: dict[str, Json]
    values: dict[str, dict[int, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """One row of a claim's own SQL. `holds`: None if it is neither true nor false."""

    holds: bool | None
    measured: dict[str, Json]


def whole_seeds(connection: Connection) -> list[int]:
    """The seeds that have a cell for every combination of the other axes: `seeds: until` gives some of them more."""
    rows = connection.execute(
        "SELECT seed FROM cells GROUP BY seed QUALIFY count(*) = max(count(*)) OVER () ORDER BY seed"
    ).fetchall()
    return [int(seed) for (seed,) in rows]


def measures(connection: Connection, claim: Claim, seeds: Iterable[int]) -> list[Group]:
    """The measures of a claim for each combination of its columns and each of the seeds; `SampleError` if one fails.

    A value that is not a finite number is left out.
    """
    try:
        _, rows = all_rows(connection, claim.query)
    except duckdb.Error as error:
        raise SampleError(f"the SQL fails: {one_line(error)}") from None
    counted, groups = set(seeds), dict[tuple[Json, ...], Group]()
    found = set[tuple[int, tuple[Json, ...]]]()
    for seed, *rest in rows:
        if seed not in counted:
            continue
        key = tuple(plain(value) for value in rest[: len(claim.each)])
        if (seed, key) in found:
            raise SampleError(f"several values for seed {seed}: expected an aggregate, such as `avg(...)`")
        found.add((seed, key))
        if key not in groups:
            groups[key] = Group(dict(zip(claim.each, key, strict=True)), {name: {} for name in claim.measure})
        for name, value in zip(claim.measure, rest[len(claim.each) :], strict=True):
            if value is not None and math.isfinite(value):
                groups[key].values[name][int(seed)] = float(value)
        if len(groups) > MAX_GROUPS:
            raise SampleError(f"`each` gives more than {MAX_GROUPS} combinations")
    return list(groups.values())


def answer(connection: Connection, claim: Claim) -> Answer:
    """The row of a claim's SQL for the cells of a connection; `SampleError` if it fails."""
    try:
        names, rows = first_rows(connection, claim.query, 2)
    except duckdb.Error as error:
        raise SampleError(f"the SQL fails: {one_line(error)}") from None
    if len(rows) != 1 or "holds" not in names:
        raise SampleError("the SQL must give one row with a column `holds`")
    values = dict(zip(names, rows[0], strict=True))
    holds = values.pop("holds")
    measured = {name: plain(value) for name, value in values.items()}
    if holds is not None and not isinstance(holds, bool):
        raise SampleError(f"`holds` is {holds}, not true or false")
    if len(json.dumps(measured)) > MAX_MEASURED:
        raise SampleError(f"what it measured is longer than {MAX_MEASURED} characters")
    return Answer(holds, measured)


def plain(value: Any) -> Json:
    """A value of DuckDB as JSON: decimals become numbers, whatever is unknown becomes text."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no such number
    if value is None or isinstance(value, bool | int | float | str):
        return value
    try:
        return plain(float(value))
    except (TypeError, ValueError, OverflowError):
        return str(value)
