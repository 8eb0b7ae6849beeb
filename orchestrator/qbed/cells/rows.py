# SPDX-License-Identifier: Apache-2.0
"""Tables from rows that come from a guest's records."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

import pyarrow as pa

from qbed.base.json_files import Row
from qbed.telemetry import tables
from qbed.telemetry.records import RecordError

BATCH_ROWS = 10_000
MALFORMED = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""Exceptions that a record with unexpected fields or values raises."""


def batches(name: str, rows: Iterator[Row], file: str) -> Iterator[pa.Table]:
    """Rows of the table `name` in batches. `file`: where they come from, for messages."""
    while True:
        table = table_of_rows(name, itertools.islice(rows, BATCH_ROWS), file)
        if not table.num_rows:
            return
        yield table


def table_of_rows(name: str, rows: Iterable[Row], file: str) -> pa.Table:
    """Rows of the table `name`; `RecordError` if they do not fit its schema."""
    try:
        return pa.Table.from_pylist(list(rows), schema=tables.CELL_SCHEMAS[name])
    except (pa.ArrowException, *MALFORMED) as error:
        raise RecordError(f"{file}: a field is missing or has the wrong type: {describe_error(error)}") from error


def describe_error(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
