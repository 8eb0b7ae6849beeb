# SPDX-License-Identifier: Apache-2.0
"""`qbed cells`: the same rows from the merged table and cell by cell."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from qbed.base.errors import QbedError
from qbed.base.json_files import write_sealed
from qbed.storage.checksums import cell_record, record_checksums
from qbed.storage.identity import StoreError
from qbed.storage.listing import Listing, flows_text, lines
from qbed.telemetry import tables

AXES: list[dict[str, Any]] = [{"name": "scheme", "values": ["droptail", "ecn"]}, {"name": "delay", "values": ["5 us"]}]
AXES += [{"name": "seed", "values": [1, 2]}]
COMPLETE = {
    "status": "complete", "bottleneck": "s1>s2", "goodput_bps": 1.5e9, "flows": 2, "flows_complete": 2,
    "dropped_packets": 7, "marked_packets": 0, "retransmits": 3, "timeouts": 1, "contradictions": [], "warnings": [],
}  # fmt: skip
ROWS: list[dict[str, Any]] = [
    {"cell": 0, "scheme": "droptail", "seed": 1, **COMPLETE},
    {"cell": 1, "scheme": "droptail", "seed": 2, "status": "failed", "error": "it broke\n  | console"},
    {"cell": 2, "scheme": "ecn", "seed": 1, **COMPLETE, "status": "invalid", "contradictions": ["lost one", "and two"]},
]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    write_sealed(tmp_path / "campaign.json", {"matrix": {"axes": AXES}})
    for row in ROWS:
        folder = tmp_path / "cells" / f"{row['cell']:06d}{'.failed' if row['status'] == 'failed' else ''}"
        folder.mkdir(parents=True)
        (folder / "cell.json").write_bytes(cell_record(folder, row | {"delay": "5 us"}))
    (tmp_path / "cells" / "000003.tmp").mkdir()
    (tmp_path / "cells" / "wall.ndjson").touch()
    return tmp_path


def merge(run: Path) -> None:
    schema = tables.cells_schema({"scheme": "str", "delay": "str", "seed": "int"})
    tables.write_table(run / "cells.parquet", schema, [pa.Table.from_pylist(ROWS, schema=schema)])
    record_checksums(run, ["cells.parquet"])


def test_a_run_that_goes_on_is_listed_cell_by_cell(run: Path) -> None:
    listing = Listing(run)
    assert [" ".join(line.split()) for line in lines(listing)] == [
        "cell scheme seed status goodput (Mbit/s) flows drops marks retransmits timeouts bottleneck",
        "0 droptail 1 complete 1500.0 2 / 2 7 0 3 1 s1>s2",
        "1 droptail 2 failed - - - - - - it broke",
        "2 ecn 1 invalid 1500.0 2 / 2 7 0 3 1 lost one",
    ]
    assert listing.summary() == "4 cells: 1 complete, 1 failed, 1 invalid, 1 to come"


def test_the_merged_table_has_the_same_rows(run: Path) -> None:
    before = list(lines(Listing(run)))
    merge(run)
    for path in sorted((run / "cells").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    listing = Listing(run)
    assert list(lines(listing)) == before
    assert listing.summary() == "4 cells: 1 complete, 1 failed, 1 invalid, 1 to come"


@pytest.mark.parametrize("merged", [False, True])
def test_cells_before_an_offset_are_not_read(run: Path, merged: bool) -> None:
    if merged:
        merge(run)
    else:
        (run / "cells" / "000000" / "cell.json").write_text("damaged")
    listing = Listing(run)
    assert [row["cell"] for row in listing.rows(1)] == [1, 2]
    assert listing.counted["damaged"] == listing.counted["complete"] == 0 and listing.counted["failed"] == 1
    assert list(Listing(run).rows(3)) == []


def test_flows_without_a_size_are_not_counted_as_incomplete(run: Path) -> None:
    assert flows_text(2, 2, 0) == flows_text(2, 2, None) == "2 / 2"
    assert flows_text(0, 7, 7) == "7 to end"
    assert flows_text(3, 7, 2) == "3 / 5, 2 to end"
    cell = run / "cells" / "000000"
    (cell / "cell.json").unlink()
    endless = ROWS[0] | {"flows": 7, "flows_complete": 0, "flows_unlimited": 7}
    (cell / "cell.json").write_bytes(cell_record(cell, endless | {"delay": "5 us"}))
    assert " ".join([*lines(Listing(run))][1].split()) == "0 droptail 1 complete 1500.0 7 to end 7 0 3 1 s1>s2"


def test_a_table_of_an_earlier_qbed_is_listed(run: Path) -> None:
    schema = tables.cells_schema({"scheme": "str", "delay": "str", "seed": "int"})
    schema = schema.remove(schema.get_field_index("flows_unlimited"))
    tables.write_table(run / "cells.parquet", schema, [pa.Table.from_pylist(ROWS, schema=schema)])
    record_checksums(run, ["cells.parquet"])
    assert " ".join([*lines(Listing(run))][1].split()) == "0 droptail 1 complete 1500.0 2 / 2 7 0 3 1 s1>s2"


def test_while_a_run_has_the_lock_its_older_table_is_not_judged(run: Path) -> None:
    merge(run)
    (run / "cells" / "000001.failed").rename(run / "cells" / "000001")
    cell = run / "cells" / "000001"
    (cell / "cell.json").unlink()
    (cell / "cell.json").write_bytes(cell_record(cell, ROWS[1] | COMPLETE))
    descriptor = os.open(run, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        listing = Listing(run)
        assert [row["status"] for row in listing.rows()] == ["complete", "complete", "invalid"]
        assert listing.summary() == "4 cells: 2 complete, 1 invalid, 1 running"
    finally:
        os.close(descriptor)


def test_another_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(QbedError, match="is no run folder"):
        Listing(tmp_path)


def test_a_folder_that_may_not_be_read_is_refused_with_the_cause(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> bytes:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("qbed.storage.identity.read_bytes", refuse)
    with pytest.raises(StoreError, match=r"no readable campaign\.json \(Permission denied\)"):
        Listing(run)
