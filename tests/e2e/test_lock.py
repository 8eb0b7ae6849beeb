# SPDX-License-Identifier: Apache-2.0
"""campaign.lock has the trace hashes of cells; a change of behaviour is found and described."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qbed_testing.stored_runs import qbed

pytestmark = pytest.mark.e2e
LAB = """\
name: locked
topology: {dumbbell: {left: 2, right: 2}}
links: {default: {rate: 1 Gbit/s, delay: 5 us}}
switches: {default: {scheme: droptail, buffer: 64 KB}}
workload: [{flows: {pairs: [[h1, h3], [h2, h4]], size: 200 KB, spread: 50 us}}]
observe: {queues: every packet}
duration: 10 ms
"""
CAMPAIGN = """\
question: Are the results equal?
axes:
  buffer: {field: switches.default.buffer, values: [32 KB, 64 KB]}
  seed: [1]
profiles:
  quick: {}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "lab.yml").write_text(LAB)
    (tmp_path / "campaign.yml").write_text(CAMPAIGN)
    return tmp_path


def run(folder: Path, out: str, *arguments: str, status: int = 0) -> str:
    return qbed(folder, "run", ".", "--profile", "quick", "--no-images", "--out", out, *arguments, status=status)


def test_a_change_of_behaviour_is_found_and_described(folder: Path) -> None:
    assert "has no traces of the profile `quick`" in run(folder, "none", "--locked", status=1)
    run(folder, "before", "--lock")
    lock = json.loads((folder / "campaign.lock").read_text())
    (cells,) = lock["traces"]["quick"].values()
    assert list(cells) == ["buffer=32 KB, seed=1", "buffer=64 KB, seed=1"] and len(set(cells.values())) == 2
    run(folder, "same", "--locked", "--no-store")
    assert "2 cells in both, 0 with different traces" in qbed(folder, "diff", "before", "same")

    # Another propagation delay changes the times of all packets of both cells.
    (folder / "lab.yml").write_text(LAB.replace("delay: 5 us", "delay: 6 us"))
    output = run(folder, "after", "--locked", status=1)
    assert "cell (buffer=32 KB, seed=1) differs from campaign.lock" in " ".join(output.split())
    assert output.count("differs from campaign.lock") == 2
    found = qbed(folder, "diff", "before", "after", status=1)
    assert "cell buffer=32 KB, seed=1\n" in found and "2 cells in both, 2 with different traces" in found
    assert "queue_events at " in found and " / " in found and "> 10.0.0." in found and "protocol 6 seq" in found
    assert "kernel" not in output, "the lock has the current kernel"
    assert json.loads((folder / "campaign.lock").read_text()) == lock

    # A lock of an earlier kernel of the series: the message names both kernels.
    ((series, this),) = lock["kernels"]["quick"].items()
    (folder / "campaign.lock").write_text(json.dumps(lock | {"kernels": {"quick": {series: "6.12.1-1"}}}))
    output = " ".join(run(folder, "after", "--locked", status=1).split())
    assert output.count(f"; it is of kernel 6.12.1-1, and this is {this}") == 2
    run(folder, "after", "--lock")
    run(folder, "after", "--locked")
    assert json.loads((folder / "campaign.lock").read_text())["kernels"] == lock["kernels"]


def test_a_lock_covers_the_unchanged_campaign(folder: Path) -> None:
    for more in (["--set", "duration=9 ms"], ["--seeds", "1"], ["--lock"]):
        assert "a lock is of the campaign as it is" in run(folder, "refused", "--locked", *more, status=2)
    run(folder, "one", "--lock")
    (folder / "campaign.yml").write_text(CAMPAIGN.replace("32 KB", "16 KB"))
    output = " ".join(run(folder, "other", "--locked", status=1).split())
    assert "cell (buffer=16 KB, seed=1) is not in campaign.lock" in output
    assert "cell (buffer=32 KB, seed=1) of campaign.lock is not in the campaign any more" in output
    for invalid in (
        "",
        "{}",
        "[1]",
        '{"version": 1, "traces": {}, "kernels": {"quick": 1}}',
        '{"version": 1, "traces": {"quick": {"6.12": {"a": 1}}}}',
    ):
        (folder / "campaign.lock").write_text(invalid)
        assert "campaign.lock is no lock of version 1" in run(folder, "other", "--locked", status=1)


def test_a_difference_without_packet_records_is_found_in_series(folder: Path) -> None:
    """Without packet records, the first different record is one of a series or of a flow."""
    (folder / "lab.yml").write_text(LAB.replace("every packet", "100 us"))
    run(folder, "one")
    (folder / "lab.yml").write_text(LAB.replace("every packet", "100 us").replace("200 KB", "201 KB"))
    run(folder, "two")
    found = qbed(folder, "diff", "one", "two", status=1)
    assert "queue_series at " in found or "flows at " in found
    (folder / "campaign.yml").write_text(CAMPAIGN.replace("[32 KB, 64 KB]", "[16 KB]"))
    run(folder, "other")
    assert "have no cell in common" in qbed(folder, "diff", "one", "other", status=2)
