# SPDX-License-Identifier: Apache-2.0
"""Campaigns in CI: a part of the cells on each machine, merged, and the files for CI systems."""

from __future__ import annotations

import shutil
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path

import pytest
from campaigns import CAMPAIGN, Bench, hashes, sent, write_lab

from qbed.claims.verdict import Estimate, Verdict
from qbed.report.ci import Ended, describe_verdict, write_junit, write_summary


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def suites(file: Path) -> dict[str, ET.Element]:
    return {suite.get("name", ""): suite for suite in ET.parse(file).getroot()}


def test_shards_are_the_whole(bench: Bench) -> None:
    assert bench.campaign("whole", "--ndjson", "whole.ndjson")[0] == 0
    for which in (1, 2, 3):
        files = ("--junit", f"{which}.xml", "--ndjson", f"{which}.ndjson")
        status, text = bench.campaign(f"part-{which}", "--shard", f"{which}/3", *files)
        assert (status, "4 of 4 cells complete" in text) == (0, True), text
        assert not list((bench.folder / f"part-{which}").glob("*.parquet"))
        assert suites(bench.folder / f"{which}.xml")[f"tiny {which}/3.cells"].get("tests") == "4"
    parts = ["part-1", "part-2", "part-3"]
    status, text = bench.run("merge", "lab", *parts[:2], "--out", "merged", "--no-images")
    assert (status, "4 cells are in none of the shards (2, 5, 8, 11)" in text) == (1, True), text
    bench.behave(all="panic")  # nothing is run
    merge = ["merge", "lab", *parts, "--out", "merged", "--no-images"]
    status, text = bench.run(*merge, "--junit", "all.xml", "--summary", "all.md")
    assert (status, "12 of 12 cells complete" in text, "holds" in text) == (0, True, True), text
    assert hashes(bench.folder / "merged") == hashes(bench.folder / "whole")
    assert bench.run("verify", "merged")[0] == 0
    assert bench.run("samples", "merged", "--ndjson", "merged.ndjson")[0] == 0
    points = {name: sent(bench.folder / f"{name}.ndjson") for name in ("whole", "merged", "1", "2", "3")}
    assert points["merged"] == points["whole"] and {cell for _, cell in points["whole"]} >= {"0", "11"}
    of_run = Counter({key: count for key, count in points["whole"].items() if key[0] in ("run", "axis", "parameter")})
    shards = [points[name] - of_run for name in ("1", "2", "3")]
    of_claims = Counter({("claim", ""): 1, ("measure", ""): 1})
    assert sum(shards, of_run) == points["whole"] - of_claims, "a shard judges nothing"
    found = suites(bench.folder / "all.xml")
    assert found["tiny.cells"].get("tests") == "12" and found["tiny.claims"].get("failures") == "0"
    assert "| all-complete | holds | flows 24 | Every flow completes. |" in (bench.folder / "all.md").read_text()
    bench.behave()  # a part's folder goes on as the whole
    status, text = bench.campaign("part-1")
    assert (status, "4 cells are finished already" in text) == (0, True), text
    assert hashes(bench.folder / "part-1") == hashes(bench.folder / "whole")


def test_an_invalid_shard_is_reported(bench: Bench) -> None:
    for wrong, message in (("0/3", "expected a part"), ("4/3", "expected a part"), ("x", "expected a part")):
        status, text = bench.campaign("a", "--shard", wrong)
        assert (status, message in text) == (2, True), text
    status, text = bench.campaign("a", "--profile", "quick", "--shard", "5/9")
    assert (status, "--shard 5/9: there are only 2 parts" in text) == (2, True), text
    assert bench.campaign("part", "--profile", "quick", "--shard", "1/2")[0] == 0
    status, text = bench.run("merge", "lab", "part", "--out", "m", "--no-images")
    assert (status, "part is a shard of another campaign: the axes and their values" in text) == (2, True), text
    victim = next((bench.folder / "part").glob("cells/000000/flows.arrow"))
    victim.write_bytes(victim.read_bytes()[:-1])
    status, text = bench.run("merge", "lab", "part", "--profile", "quick", "--out", "m", "--no-images")
    assert (status, "flows.arrow is not what was written" in text) == (2, True), text
    shutil.rmtree(bench.folder / "part")
    status, text = bench.run("merge", "lab", "part", "--profile", "quick", "--out", "m", "--no-images")
    assert (status, "part is no run folder" in text) == (2, True), text


def test_what_fails_is_handed_out(bench: Bench) -> None:
    bench.behave(seed_2="panic", seed_3="contradict")
    hand_out = ["--set", "links.default.delay=5 us", "--junit", "out.xml", "--summary", "out.md", "--fail-on", "errors"]
    status, _ = bench.campaign("a", *hand_out)
    assert status == 1
    found = suites(bench.folder / "out.xml")
    cells = found["tiny.cells"]
    assert [cells.get(name) for name in ("tests", "failures", "errors")] == ["6", "2", "2"]
    (error,) = {error_element.get("message", "").partition(":")[0] for error_element in cells.iter("error")}
    assert error == "the guest's kernel panicked" and len(list(cells.iter("failure"))) == 2
    (claim,) = found["tiny.claims"].iter("skipped")
    assert "cells are missing" in claim.get("message", "") and not list(found["tiny.claims"].iter("failure"))
    page = (bench.folder / "out.md").read_text()
    assert (
        "6 cells (2 complete, 2 failed, 2 invalid)" in page
        and "| undecided, expected: holds |" in page
        and "### Cells" in page
    )


def test_claims_may_be_left_to_others(bench: Bench) -> None:
    write_lab(bench.lab, CAMPAIGN.replace("= count(*) AS holds", "< count(*) AS holds"))
    assert bench.campaign("a", "--profile", "quick", "--fail-on", "errors")[0] == 0
    assert bench.campaign("a", "--profile", "quick", "--fail-on", "claims")[0] == 1
    assert bench.campaign("a", "--profile", "quick", "--fail-on", "clams")[0] == 2


def test_strange_texts_stay_texts(bench: Bench) -> None:
    assert bench.campaign("a", "--profile", "quick")[0] == 0
    strange = "a | b <script>\x00\x1b[31m & `c` *d* ]]>\n\u202enext [x](http://y)"
    verdict = Verdict(
        name="it",
        paper=strange,
        source="",
        sql="",
        expect="holds",
        why=None,
        verdict="refuted",
        reason=strange,
        contradicted=True,
    )
    run = Ended(strange, bench.folder / "a", {"complete": 2}, 1.0, [verdict], [strange], [strange])
    write_junit(bench.folder / "out.xml", [run])
    assert len(list(ET.parse(bench.folder / "out.xml").getroot().iter("failure"))) == 2
    write_summary(bench.folder / "out.md", [run])
    page = (bench.folder / "out.md").read_text()
    assert "<script>" not in page and "[x](" not in page and "\x1b" not in page
    (row,) = [line for line in page.splitlines() if line.startswith("| it ")]
    assert row.replace("\\|", "").count("|") == 5


def test_the_summary_has_caveats(bench: Bench) -> None:
    assert bench.campaign("a", "--profile", "quick")[0] == 0
    fields = {"paper": "", "source": "", "sql": "", "expect": "holds", "why": None, "verdict": "holds"}
    verdicts = [Verdict.model_validate(fields | {"name": name, "caveats": ["a *mean*"]}) for name in ("one", "two")]
    write_summary(bench.folder / "out.md", [Ended("it", bench.folder / "a", {"complete": 2}, 1.0, verdicts)])
    assert "- Caution: a \\*mean\\*: one, two\n" in (bench.folder / "out.md").read_text()


def test_a_verdict_is_described_by_the_interval_of_each_group() -> None:
    estimates = [
        Estimate(name="gain", group={"tcp": tcp}, seeds=5, point_estimate=middle, low=middle - 1, high=middle + 1)
        for tcp, middle in (("cubic", 4), ("dctcp", 8))
    ]
    verdict = Verdict(
        name="a", paper="", source="", sql="", expect="holds", why=None, verdict="holds", estimates=estimates,
        measured={"gain (tcp cubic)": 4.0, "gain (tcp dctcp)": 8.0},
    )  # fmt: skip
    assert describe_verdict(verdict) == "gain (tcp cubic) 4 (3 to 5), gain (tcp dctcp) 8 (7 to 9)"
