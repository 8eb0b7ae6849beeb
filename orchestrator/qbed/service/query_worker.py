# SPDX-License-Identifier: Apache-2.0
"""Runs a client's SQL over a run's tables in a separate process, with limits of time, memory and size, besides those
of `qbed.claims.sql`.

`python -m qbed.service.query_worker RUN FORMAT OUT BYTES`, the SELECT on standard input.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MEMORY_BYTES = 4 << 30
"""Limit of the address space: DuckDB's limit, and the mappings of Python and Arrow."""
ROWS = 4_096
REFUSED = 3
"""The exit status of a query with an error for the client on standard error."""


def main() -> None:
    """Write the result, or the query's error to standard error."""
    run, form, out, max_bytes = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), int(sys.argv[4])
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (max_bytes, max_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    import duckdb

    from qbed.base.errors import QbedError
    from qbed.claims.sql import as_duckdb_errors, checked, one_line
    from qbed.claims.views import connect

    try:
        sql = checked(sys.stdin.read())
        with as_duckdb_errors():
            reader = connect(run).execute(sql).fetch_record_batch(ROWS)
            _WRITERS[form](reader, out)
    except duckdb.Error as error:
        _refuse(one_line(error))
    except QbedError as error:
        _refuse(str(error))
    except MemoryError:
        _refuse("the query needs more memory than its limit")


def _refuse(text: str) -> None:
    sys.stderr.write(text[:4_000])
    sys.exit(REFUSED)


def _parquet(reader: Any, out: Path) -> None:
    import pyarrow.parquet as parquet

    with parquet.ParquetWriter(out, reader.schema) as file:
        for batch in reader:
            file.write_batch(batch)


def _csv(reader: Any, out: Path) -> None:
    import csv

    with out.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(reader.schema.names)
        for batch in reader:
            rows.writerows(zip(*(column.to_pylist() for column in batch.columns), strict=True))


def _json(reader: Any, out: Path) -> None:
    """Write `{"columns": [...], "rows": [[...], ...]}`, one row per line. Columns may have equal names."""
    with out.open("w") as file:
        file.write('{"columns": ' + json.dumps(reader.schema.names) + ', "rows": [')
        between = "\n"
        for row in _rows(reader):
            file.write(between + json.dumps([_plain(value) for value in row], allow_nan=False, default=str))
            between = ",\n"
        file.write("]}\n")


def _rows(reader: Any) -> Iterator[tuple[Any, ...]]:
    for batch in reader:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _plain(value: Any) -> Any:
    """Convert a value to JSON: NaN and infinities become null, other types text."""
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    return value


_WRITERS = {"parquet": _parquet, "csv": _csv, "json": _json}


if __name__ == "__main__":
    main()
