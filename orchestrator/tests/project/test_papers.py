# SPDX-License-Identifier: Apache-2.0
"""docs/papers: the lists are complete and name what exists, the records are current, and so are the pages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml

from qbed.campaign.file import Campaign, load_campaign
from qbed.claims.verdict import Estimate, Verdict

import papers
import record_runs
import write_pages
from papers import Item, Paper, Record, Reference

LISTS = papers.load_papers()
RUNS = [(name, key) for name, paper in LISTS.items() for key in paper.runs]


@cache
def campaign(path: Path) -> Campaign:
    return load_campaign(path)[0]


def references(paper: Paper) -> Iterator[Reference]:
    for item in paper.items:
        yield from item.claims
    for entry in paper.sensitivities:
        yield entry.claim


def test_the_pages_are_up_to_date() -> None:
    for name, text in write_pages.pages().items():
        assert (papers.FOLDER / name).read_text() == text, f"{name}: run make generate"


@pytest.mark.parametrize("name", LISTS)
def test_every_numbered_item_of_a_paper_is_listed(name: str) -> None:
    roman = {"I": 1, "II": 2, "III": 3}
    listed: dict[str, set[int]] = {}
    for item in LISTS[name].items:
        if found := re.fullmatch(r"(\S+) (\d+|I+)", item.item):
            listed.setdefault(found[1], set()).add(roman.get(found[2]) or int(found[2]))
    assert listed == {kind: set(range(1, count + 1)) for kind, count in LISTS[name].contains.items()}


@pytest.mark.parametrize("name", LISTS)
def test_every_item_has_claims_or_an_answer(name: str) -> None:
    for item in LISTS[name].items:
        assert item.claims or item.answer, item.item
        assert item.claims or item.state != "measured", item.item


@pytest.mark.parametrize(("name", "key"), RUNS)
def test_a_run_has_the_claims_and_figures_that_items_name(name: str, key: str) -> None:
    paper, run = LISTS[name], LISTS[name].runs[key]
    found = campaign(run.file)
    assert run.profile in found.profiles
    judged = {claim.name for claim in found.claims if found.judges(claim, run.profile)}
    named = {reference.name for reference in references(paper) if reference.run == key}
    assert named <= judged
    figures = {figure.name or figure.kind for figure in found.figures}
    shown = {figure.name for item in paper.items for figure in item.figures if figure.run == key}
    assert shown <= figures
    assert named | shown, "a run that nothing uses"


@pytest.mark.parametrize("name", LISTS)
def test_references_name_runs(name: str) -> None:
    paper = LISTS[name]
    figures = [figure for item in paper.items for figure in item.figures]
    assert {reference.run for reference in (*references(paper), *figures)} == set(paper.runs)


@pytest.mark.parametrize("name", LISTS)
def test_every_claim_that_cites_a_paper_is_on_its_page(name: str) -> None:
    paper = LISTS[name]
    listed = {reference.name for reference in references(paper)}
    for path in sorted((papers.ROOT / "labs").glob("*/*.yml")):
        content = yaml.safe_load(path.read_text())
        for claim in content.get("claims", ()):
            if claim.get("source", "").startswith(f"{paper.cited_as},"):
                assert claim["name"] in listed, f"{path}: {claim['name']} cites {paper.cited_as}"


def test_a_record_has_the_claims_of_its_campaign() -> None:
    for name, key in RUNS:
        if papers.record_path(name, key).exists():
            check_record(name, key)


def check_record(name: str, key: str) -> None:
    record, run = Record.model_validate_json(papers.record_path(name, key).read_text()), LISTS[name].runs[key]
    found = campaign(run.file)
    current = {
        claim.name: (claim.paper, claim.source, claim.expect)
        for claim in found.claims
        if found.judges(claim, run.profile)
    }
    recorded = {claim.name: (claim.paper, claim.source, claim.expect) for claim in record.claims}
    assert recorded == current, f"{name}.{key}: make papers"
    bounds = {claim.name: {measure: str(bound) for measure, bound in claim.bound.items()} for claim in found.claims}
    for claim in record.claims:
        for measure in claim.estimates:
            if measure.name in bounds[claim.name]:
                assert measure.bound == bounds[claim.name][measure.name], f"{name}.{key}: {claim.name}: make papers"
    assert record.command == run.command
    for figure in record.figures:
        assert (papers.FOLDER / "pictures" / f"{name}-{key}-{figure}.png").stat().st_size > 1000


def test_no_record_is_left_from_a_former_list() -> None:
    expected = {papers.record_path(name, key) for name, key in RUNS}
    assert set(papers.RESULTS.glob("*")) <= expected


def test_selected_runs() -> None:
    assert record_runs.selected(LISTS, []) == RUNS
    assert record_runs.selected(LISTS, ["rpm.fct"]) == [("rpm", "fct")]
    assert {paper for paper, _ in record_runs.selected(LISTS, ["qcn", "abq"])} == {"abq", "qcn"}
    with pytest.raises(ValueError, match=r"bqa: expected one of abq, occupancy, qcn, rpm, or PAPER\.RUN"):
        record_runs.selected(LISTS, ["bqa"])


def test_a_page_shows_intervals_verdicts_and_what_is_not_run() -> None:
    measures = [
        Estimate(
            name="gain",
            group={"tcp": "cubic"},
            bound="> 1.5",
            point_estimate=2.0,
            low=1.75,
            high=2.25,
            detectable=0.4,
            outcome="holds",
            seeds=5,
        ),
        Estimate(name="loss", point_estimate=0.5, seeds=1),
    ]
    claim = Verdict(
        name="faster", paper="It is faster.", source="X, Fig. 1", expect="refuted", why="A | cause.", verdict="holds",
        seeds=5, estimates=measures, sql="", caveats=["A mean includes idle time"],
    )  # fmt: skip
    record = Record(
        command="qbed run labs/x --profile paper", commit="0", kernel="6.12", cpu="a CPU", date="2026-01-01", cells=10,
        claims=[claim], figures={"fct": "Completion times"},
    )  # fmt: skip
    run = papers.Run(campaign="labs/x", profile="paper")
    items = [
        Item(
            item="Fig. 1",
            section="2",
            shows="A figure.",
            claims=[Reference("x", "faster")],
            figures=[Reference("x", "fct")],
        ),
        Item(item="Fig. 2", shows="Another.", claims=[Reference("y", "faster")]),
    ]
    paper = Paper(
        cited_as="X", title="A paper", authors="A. Author", published="2020", scheme="qcn", contains={"Fig.": 2},
        runs={"x": run, "y": run}, items=items,
    )  # fmt: skip
    text = write_pages.page("x", paper, {"x": record})
    assert "| [Fig. 1 (section 2)](#fig-1-section-2) | holds |" in text
    assert "| [Fig. 2](#fig-2) | not run |" in text
    assert "`faster`: **holds** (expected: refuted) by 5 seeds. The paper: It is faster." in text
    assert "| gain | tcp cubic | 2 (1.75 to 2.25) | > 1.5 | 0.4 | holds |" in text
    assert "| loss | - | 0.5 (too few seeds) | - | - | - |" in text
    assert "Caveat: A mean includes idle time." in text
    assert "![Completion times](pictures/x-x-fct.png)" in text
    assert "`faster`: the run behind it is not recorded yet." in text
    assert "| `qbed run labs/x --profile paper` | 10 | 2026-01-01 | `0` | 6.12 | a CPU |" in text
