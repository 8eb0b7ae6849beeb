# SPDX-License-Identifier: Apache-2.0
"""A cell's files: a tap's samples are filed as it wrote them, and read as the rows that they stand for."""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbed.base.errors import QbedError
from qbed.cells.arrow import CellFile, count_samples, read_cell, series_of, stored_samples
from qbed.storage import run_folder as folder_module
from qbed.storage.checksums import DamagedError
from qbed.storage.run_folder import RunFolder
from qbed.telemetry import tables
from qbed.telemetry.taps import SAMPLE, SAMPLE_DTYPE, Records

PORTS = ["h1>s1", "s1>h1", "s1>h2"]
COUNTS = [name for name in SAMPLE_DTYPE.names or () if name not in ("type", "length", "id", "steady", "zero")]


@st.composite
def samples(draw: st.DrawFn) -> Records:
    """Samples with steady intervals behind some of them."""
    records = np.zeros(draw(st.integers(0, 20)), SAMPLE_DTYPE)
    records["type"], records["length"] = SAMPLE, SAMPLE_DTYPE.itemsize
    for row in records:
        row["id"], row["steady"] = draw(st.integers(0, len(PORTS) - 1)), draw(st.sampled_from([0, 0, 1, 300]))
        for name in COUNTS:
            row[name] = draw(st.integers(0, 2**31))
    return records


@given(st.lists(samples(), max_size=4), st.integers(0, 9))
def test_what_is_filed_is_read_as_the_rows_that_it_stands_for(parts: list[Records], number: int) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "queue_series.arrow"
        with CellFile(path) as file:
            for records in parts:
                file.add(stored_samples(records, PORTS))
        empty = tables.QUEUE_SERIES.empty_table()
        found = pa.concat_tables([empty, *read_cell(path, number)])
        held = pa.ipc.open_stream(path.read_bytes()).read_all()
    rows = [row for records in parts for table in series_of(records, PORTS) for row in table.to_pylist()]
    assert found.to_pylist() == [{"cell": number, **row} for row in rows]
    assert found.schema == tables.QUEUE_SERIES
    assert held.num_rows == sum(map(len, parts)), "one for all the intervals behind it"


def test_a_file_of_another_qbed_is_named(tmp_path: Path) -> None:
    path = tmp_path / "queue_series.arrow"
    rows = pa.Table.from_pylist([], schema=tables.CELL_SCHEMAS["queue_series"])
    with pa.ipc.new_stream(str(path), rows.schema) as stream:
        stream.write_table(pa.Table.from_pylist([{"queue": 1}], schema=rows.schema))
    with pytest.raises(QbedError, match=r"queue_series\.arrow: the columns differ from those of this version of qbed"):
        list(read_cell(path, 0))
    assert list(read_cell(tmp_path / "flows.arrow", 0)) == []


def test_samples_beyond_the_plan_are_refused_before_they_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = np.zeros(2, SAMPLE_DTYPE)
    records["type"], records["length"], records["interval_ns"] = SAMPLE, SAMPLE_DTYPE.itemsize, 1
    records["steady"] = [4_000_000_000, 5]
    run = RunFolder(tmp_path)
    folder = run.begin(0)
    with CellFile(folder / "queue_series.arrow") as file:
        file.add(stored_samples(records, PORTS))
    assert count_samples(folder / "queue_series.arrow") == 4_000_000_007
    run.commit(0, {"cell": 0, "status": "complete"}, keep=False)
    monkeypatch.setattr(folder_module, "read_cell", lambda *_: pytest.fail("read"))
    with pytest.raises(DamagedError, match="claims 4000000007 samples; the plan of cell 0 allows at most 5000"):
        run.merge([0], {"seed": "int"}, max_samples=lambda number: 5000)
