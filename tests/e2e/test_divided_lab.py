# SPDX-License-Identifier: Apache-2.0
"""A campaign with the axis `parts`, and `qbed inspect --parts`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qbed_testing.stored_runs import qbed

pytestmark = pytest.mark.e2e
LAB = """\
name: divided
topology: {clos: {hosts: 2, racks: 4, spines: 2}}
links: {default: {rate: 10 Gbit/s, delay: 5 us}}
workload: [flows: {from: h1..h4, to: h5..h8, size: 500 KB, spread: 50 us}]
observe: {queues: 100 us}
duration: 10 ms
"""
CAMPAIGN = """\
question: Are the results equal?
axes:
  parts: {field: parts, values: [1, 2, 3]}
  seed: [1]
profiles:
  quick: {}
claims:
  - name: flows-complete
    measure: count(*) FILTER (status = 'complete') / count(*)
    from: flows
    bound: ">= 1"
    random: false
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "lab.yml").write_text(LAB)
    (tmp_path / "campaign.yml").write_text(CAMPAIGN)
    return tmp_path


def run(folder: Path, out: str, *arguments: str) -> str:
    return qbed(folder, "run", ".", "--profile", "quick", "--no-images", "--out", out, *arguments)


def test_parts_are_an_axis(folder: Path) -> None:
    assert "3 of 3 cells complete" in run(folder, "first", "--lock")
    provenance = json.loads((folder / "first" / "meta.json").read_text())["provenance"]
    words = provenance["parts"].split("; ")
    assert [text.split(" computed ")[0] for text in words] == ["part 0", "part 1", "part 2"]
    assert "part 2 computed" in (folder / "first" / "report.html").read_text()
    assert "3 of 3 cells complete (3 from the store)" in run(folder, "again", "--locked", "--jobs", "1")
    run(folder, "fresh", "--no-store", "--locked", "--jobs", "1")
    assert "3 cells in both, 0 with different traces" in qbed(folder, "diff", "first", "fresh")


def test_inspect_shows_the_parts(folder: Path) -> None:
    found = json.loads(qbed(folder, "inspect", ".", "--set", "parts=2", "--parts", "--json"))
    assert [part["hosts"] for part in found["parts"]] == [4, 4]
    assert {part["lookahead_ns"] for part in found["parts"]} == {5000}
    assert len(found["links"]) == found["parts"][0]["cut_links"] == 4
    assert "look-ahead" in qbed(folder, "inspect", ".", "--set", "parts=2", "--parts")
    refusal = qbed(folder, "inspect", ".", "--parts", status=2)
    assert "the lab divided is not divided; expected `parts: 2` or `--set parts=2`" in refusal


def test_a_lab_that_is_up_has_one_part(folder: Path) -> None:
    try:
        assert "the lab's parts are for runs" in qbed(folder, "up", ".", "--set", "parts=2")
        assert "1 received" in qbed(folder, "exec", "divided", "h1", "--", "ping", "-c", "1", "h8")
    finally:
        qbed(folder, "down", "divided")
