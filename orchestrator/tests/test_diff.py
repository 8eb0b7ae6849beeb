# SPDX-License-Identifier: Apache-2.0
"""Two runs compared, where one of them cannot say what its cells did."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from campaigns import Bench

from qbed.json_files import write_json
from qbed.results.checksums import vouch


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
