# SPDX-License-Identifier: Apache-2.0
"""Parquet files: the bytes depend on the rows, not on their batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from qbed.telemetry import tables


def rows(first: int, last: int, port: str) -> Any:
    count = last - first
    columns = {name: list(range(first, last)) for name in ("cell", "queue", "time_ns")}
    return pa.Table.from_pylist(
        [{name: values[i] for name, values in columns.items()} | {"port": port} for i in range(count)],
        schema=tables.QUEUE_SERIES,
    )


@pytest.mark.parametrize("step", [1, 7, 700, 1000])
def test_batches_do_not_change_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    monkeypatch.setattr(tables, "ROW_GROUP_ROWS", 300)
    complete, parts = tmp_path / "whole.parquet", tmp_path / "parts.parquet"
    tables.write_table(complete, tables.QUEUE_SERIES, [rows(0, 1000, "s1>h1")])
    batches = [rows(at, min(at + step, 1000), "s1>h1") for at in range(0, 1000, step)]
    tables.write_table(parts, tables.QUEUE_SERIES, batches)
    assert complete.read_bytes() == parts.read_bytes()
    assert [pq.ParquetFile(complete).metadata.row_group(i).num_rows for i in range(4)] == [300, 300, 300, 100]


def test_an_optional_table_without_rows_makes_no_file(tmp_path: Path) -> None:
    with tables.TableFile(tmp_path / "a.parquet", tables.FLOWS, wanted=False):
        pass
    with tables.TableFile(tmp_path / "b.parquet", tables.FLOWS):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["b.parquet"]
    assert pq.read_table(tmp_path / "b.parquet").num_rows == 0


def test_the_run_folders_page_names_every_table() -> None:
    page = (Path(__file__).parents[3] / "docs" / "run-folder.md").read_text()
    assert [name for name in tables.SCHEMAS if f"`{name}.parquet`" not in page] == []
