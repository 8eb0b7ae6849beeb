# SPDX-License-Identifier: Apache-2.0
"""Two runs compared: where one of them cannot say what its cells did, and where probes or exchanges differ."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from campaigns import Bench

from qbed.claims.diff import Difference
from qbed.json_files import write_json
from qbed.results.checksums import vouch
from qbed.results.tables import SCHEMAS


def test_a_run_of_an_earlier_qbed_is_named(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    for out in "ab":
        assert bench.campaign(out, "--profile", "quick")[0] == 0
    assert bench.run("diff", "a", "b") == (0, "2 cells in both, 0 of them did something else\n")
    cells = tmp_path / "b" / "cells.parquet"
    pq.write_table(pq.read_table(cells).drop(["trace_sha256"]), cells)
    vouch(tmp_path / "b", ["cells.parquet"], more=True)
    for pair in (("a", "b"), ("b", "a")):
        status, text = bench.run("diff", *pair)
        assert status == 2 and text.count("\n") == 1
        assert "error: b/cells.parquet has no column `trace_sha256`: it is of an earlier qbed" in text


def test_a_link_where_a_file_is_written_leads_nowhere(tmp_path: Path) -> None:
    """As in a stranger's folder: `qbed run --lock` writes beside the campaign."""
    mine, folder = tmp_path / "mine", tmp_path / "theirs"
    mine.write_text("mine")
    folder.mkdir()
    (folder / ".campaign.lock.tmp").symlink_to(mine)
    (folder / "campaign.lock").symlink_to(mine)
    write_json(folder / "campaign.lock", {"version": 1})
    assert mine.read_text() == "mine" and not (folder / "campaign.lock").is_symlink()
    assert [path.name for path in folder.iterdir()] == ["campaign.lock"]
    (folder / ".campaign.lock.tmp").mkdir()
    with pytest.raises(OSError):
        write_json(folder / "campaign.lock", {"version": 2})


PROBE = {"cell": 0, "flow": 3, "label": "p", "src": "h1", "dst": "h3", "probe": 7, "sent_ns": 5_000_000}
ASKED = {"cell": 0, "workload": 1, "label": "q", "client": "h1", "server": "h3", "session": 2, "exchange": 4}
BEGUN, OVER = ASKED | {"start_ns": 1_000_000, "status": "running"}, {"end_ns": 4_000_000, "status": "complete"}


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two runs that are the same."""
    bench = Bench(tmp_path_factory.mktemp("bench"))
    assert bench.campaign("a", "--profile", "quick")[0] == 0
    shutil.copytree(bench.folder / "a", bench.folder / "b")
    return bench.folder / "a", bench.folder / "b"


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (
            {"probes": ([PROBE | {"rtt_ns": 100, "lost": False}], [PROBE | {"rtt_ns": 101, "lost": False}])},
            "probes at 5.000000 ms: flow 3 probe 7: rtt_ns 100 / flow 3 probe 7: rtt_ns 101",
        ),
        (
            {"exchanges": ([BEGUN | OVER], [BEGUN])},
            "exchanges at 1.000000 ms: workload 1 session 2 exchange 4: end_ns 4000000, status complete"
            " / workload 1 session 2 exchange 4: status running",
        ),
        ({"exchanges": ([BEGUN | OVER], [])}, "exchanges at 4.000000 ms: workload 1 session 2 exchange 4: "),
        (
            # One that is not over has no end; that is no reason to tell of it first.
            {
                "exchanges": ([BEGUN | {"start_ns": 6_000_000}], [BEGUN | {"start_ns": 7_000_000}]),
                "probes": ([PROBE], [PROBE | {"lost": True}]),
            },
            "probes at 5.000000 ms: ",
        ),
    ],
    ids=["probe", "exchange-over-in-one", "exchange-of-one", "the-first-of-both"],
)
def test_the_first_probe_or_exchange_that_differs_is_said(
    twins: tuple[Path, Path], rows: dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]]]], said: str
) -> None:
    for name in ("probes", "exchanges"):
        for run, mine in zip(twins, rows.get(name, ([], [])), strict=True):
            pq.write_table(pa.Table.from_pylist(mine, schema=SCHEMAS[name]), run / f"{name}.parquet")
            vouch(run, [f"{name}.parquet"], more=True)
    with Difference(*twins) as difference:
        assert str(difference.parting((0, 0))).startswith(said)
        assert difference.parting((1, 1)) is None
