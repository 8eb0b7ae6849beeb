# SPDX-License-Identifier: Apache-2.0
"""The store: a finished cell is not run again in any campaign, and the results are equal files."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from e2e.kill_campaign import LAB
from qbed_testing.stored_runs import qbed

pytestmark = pytest.mark.e2e
CAMPAIGN = """\
question: Are the results equal?
axes:
  buffer: {field: switches.default.buffer, values: [32 KB, 64 KB]}
  seed: SEEDS
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "lab.yml").write_text(LAB)
    return tmp_path


def run(folder: Path, out: str, *arguments: str, seeds: str = "[1]") -> str:
    """Run the campaign, and return the output of `qbed run`."""
    (folder / "campaign.yml").write_text(CAMPAIGN.replace("SEEDS", seeds))
    return qbed(folder, "run", ".", "--out", out, "--no-images", *arguments)


def results(folder: Path, run: str) -> dict[str, str]:
    files = [*(folder / run).glob("*.parquet"), *(folder / run).glob("cells/*/*.pcap")]
    assert len(files) > 5
    return {str(path.relative_to(folder / run)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_a_cell_is_run_once(folder: Path) -> None:
    assert "2 of 2 cells complete, in" in run(folder, "one")
    assert "2 of 2 cells complete (2 from the store), in" in run(folder, "two")
    assert "2 of 2 cells complete, in" in run(folder, "three", "--no-store")
    assert results(folder, "one") == results(folder, "two") == results(folder, "three")
    assert "all files are undamaged" in qbed(folder, "verify", "two")

    # In another campaign the cells have other numbers.
    assert "4 of 4 cells complete (2 from the store), in" in run(folder, "more", seeds="[2, 1]")
    assert "4 of 4 cells complete, in" in run(folder, "anew", "--no-store", seeds="[2, 1]")
    assert results(folder, "more") == results(folder, "anew")


def test_a_changed_cell_is_run(folder: Path) -> None:
    run(folder, "one")
    assert "from the store" not in run(folder, "lab", "--set", "duration=11 ms")
    assert "2 of 2 cells complete, in" in run(folder, "kept", "--keep")  # the guest's output is not in the store
    assert (folder / "kept" / "cells" / "000000" / "work" / "out" / "taps.bin").exists()


def test_a_damaged_cell_of_the_store_is_run(folder: Path) -> None:
    run(folder, "one")
    victim = next(folder.glob("cache/cells/??/*/flows.arrow"))
    content = victim.read_bytes()
    victim.unlink()
    victim.write_bytes(content + b"!")
    assert "damaged files: 1" in qbed(folder, "store", "verify", status=1)
    assert "2 of 2 cells complete (1 from the store), in" in run(folder, "two")
    assert results(folder, "one") == results(folder, "two")


def test_the_store_has_a_size_limit(folder: Path) -> None:
    run(folder, "one")
    listed = qbed(folder, "store", "ls")
    assert "2 cells," in listed and listed.count("kB") >= 2
    assert "thrown away: 2 cells" in qbed(folder, "store", "gc", "--size", "1 KB")
    assert "2 of 2 cells complete, in" in run(folder, "two")
    for command in (["store", "ls"], ["run", "."]):
        assert "QBED_STORE: expected `off` or a size" in qbed(folder, *command, size="much", status=2)
    assert "there is no store" in qbed(folder, "store", "ls", size="off", status=1)
