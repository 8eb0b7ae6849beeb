# SPDX-License-Identifier: Apache-2.0
"""Profiles that compare: each claim for each value of an axis, and how far its numbers may be apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from campaigns import CAMPAIGN, write_lab, write_merged_run

from qbed.base.errors import LabError
from qbed.campaign.file import Campaign, CampaignError, load_campaign
from qbed.campaign.matrix import build_matrix
from qbed.claims.compare import judge_run
from qbed.claims.verdict import Verdict
from qbed.runs.experiment import RunOptions, prepare

TEXT = (
    CAMPAIGN.partition("views:")[0]
    + """\
  switch:
    like: quick
    compare: {switch: {field: switches.default.kind, values: [linux, bmv2]}}
    within: {"*": 1 %, "*.drops": 20 % or 2}
    differs: {wide: TCP is chaotic.}
claims:
  - name: full
    paper: It is full.
    sql: SELECT avg(goodput_bps) > 90 AS holds, avg(goodput_bps) AS goodput FROM cells
    profiles: [quick]
  - {name: few, paper: Few drops., sql: "SELECT true AS holds, max(dropped_packets) AS drops FROM cells"}
  - {name: wide, paper: x, sql: "SELECT true AS holds, min(goodput_bps) AS least FROM cells"}
  - {name: other, paper: x, sql: "SELECT true AS holds", profiles: []}
"""
)


def campaign(tmp_path: Path, text: str = TEXT) -> Campaign:
    return load_campaign(write_lab(tmp_path, text) / "campaign.yml")[0]


def judged(tmp_path: Path, linux: tuple[float, int], bmv2: tuple[float, int], text: str = TEXT) -> dict[str, Verdict]:
    """The verdicts over a run of one cell a kind, by its goodput and drops."""
    rows = [
        {"cell": cell, "switch": kind, "seed": 1, "status": "complete", "goodput_bps": bps, "dropped_packets": drops}
        for cell, (kind, (bps, drops)) in enumerate({"linux": linux, "bmv2": bmv2}.items())
    ]
    axes: dict[str, list[Any]] = {"switch": ["linux", "bmv2"], "seed": [1]}
    folder = write_merged_run(tmp_path / "run", axes, rows, compare="switch")
    return {verdict.name: verdict for verdict in judge_run(folder, campaign(tmp_path, text), "switch")}


def test_a_profile_has_the_cells_of_the_one_that_it_is_like_times_what_it_compares(tmp_path: Path) -> None:
    found = campaign(tmp_path)
    matrix = build_matrix(found, "switch")
    assert len(matrix) == 2 * len(build_matrix(found, "quick"))
    assert list(matrix.columns)[-3:] == ["switch", "seed", "delay_ns"]  # a number column of `delay` comes last
    assert [cell.settings["switches.default.kind"] for cell in matrix][:2] == ["linux", "bmv2"]
    assert "switch" not in build_matrix(found, "quick").columns


def test_numbers_stand_side_by_side_and_bands_decide(tmp_path: Path) -> None:
    found = judged(tmp_path, (100.0, 10), (100.9, 12))
    assert {name: outcome.verdict for name, outcome in found.items()} == {
        "full": "holds", "few": "holds", "wide": "holds", "other": "not judged",
    }  # fmt: skip
    assert found["full"].measured == {
        "claim": ["undecided"] * 2, "goodput": [100.0, 100.9],
    }  # fmt: skip
    assert found["wide"].expect == "refuted" and found["wide"].contradicted, "what should differ, does not"


def test_values_with_too_large_a_difference_are_named(tmp_path: Path) -> None:
    found = judged(tmp_path, (100.0, 10), (80.0, 13))
    assert [found[name].verdict for name in ("full", "few", "wide")] == ["refuted"] * 3
    assert found["full"].reason == "sample_holds True and False; goodput 100 and 80 (within 1 %)"
    assert found["few"].reason == "drops 10 and 13 (within 20 % or 2)"
    assert found["wide"].as_expected and found["wide"].why == "TCP is chaotic."


@pytest.mark.parametrize(("factor", "verdict"), [(1 + 2**-50, "holds"), (1 + 1e-9, "refuted")])
def test_equal_is_equal_but_for_the_order_of_a_sum(tmp_path: Path, factor: float, verdict: str) -> None:
    text = TEXT.replace('"*": 1 %', '"*": 0')
    assert judged(tmp_path, (100.0, 10), (100.0 * factor, 10), text)["full"].verdict == verdict


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("like: quick", "like: quik"), "profiles.switch.like: expected a profile by itself; did you mean `quick`?"),
        (("like: quick", "like: switch"), "profiles.switch.like: expected a profile by itself"),
        (("differs: {wide", "differs: {wid"), "no claim is called `wid`; did you mean `wide`?"),
        (
            ("values: [linux, bmv2]", "values: [linux]"),
            "expected an axis that the campaign does not have, with two values",
        ),
        (("{switch: {field", "{tcp: {field"), "expected an axis that the campaign does not have, with two values"),
        (("{switch: {field", "{status: {field"), "the results have a column `status`"),
        (("field: switches.default.kind", "field: links.default.delay"), "one would undo the other"),
        (('"*": 1 %', '"*": much'), "expected a tolerated difference such as `10 %`"),
        (
            ("    compare: {switch: {field: switches.default.kind, values: [linux, bmv2]}}\n", ""),
            "is of a profile with `compare`",
        ),
    ],
)
def test_mistakes_are_named_with_their_place(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    assert change[0] in TEXT
    with pytest.raises(CampaignError) as caught:
        campaign(tmp_path, TEXT.replace(*change))
    assert message in str(caught.value)
    assert "campaign.yml:" in str(caught.value)


def test_a_band_for_what_no_claim_measures_is_refused_before_the_first_cell(tmp_path: Path) -> None:
    folder = write_lab(tmp_path, TEXT.replace('"*.drops"', '"*.drop"'))
    with pytest.raises(LabError, match=r"within.*fits no number of a claim of this profile"):
        prepare(folder, RunOptions(profile="switch"))
