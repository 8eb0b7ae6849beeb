# SPDX-License-Identifier: Apache-2.0
"""Verdicts over seeds: what is decided, by how many seeds, and what changes the exit status."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from campaigns import write_merged_run

from qbed.campaign.claim import Claim
from qbed.campaign.file import Campaign
from qbed.claims.judge import judge_all
from qbed.claims.verdict import Verdict

Judge = Callable[..., Verdict]
RATIO = "avg(goodput_bps) FILTER (scheme = 'b') / avg(goodput_bps) FILTER (scheme = 'a')"


def write_run(folder: Path, schemes: dict[str, Sequence[float | None]]) -> Path:
    """A merged run folder: a cell for each scheme and seed, from 1 on, with its goodput; None: no such cell."""
    seeds = range(1, max(map(len, schemes.values())) + 1)
    cells = [(name, seed, value) for name, row in schemes.items() for seed, value in enumerate(row, 1)]
    rows = [
        {"cell": cell, "scheme": name, "seed": seed, "status": "complete", "goodput_bps": value}
        for cell, (name, seed, value) in enumerate(cells)
        if value is not None
    ]
    return write_merged_run(folder, {"scheme": [*schemes], "seed": seeds}, rows)


@pytest.fixture
def judge(tmp_path: Path) -> Judge:
    def judged(claim: dict[str, object], *, others: int = 0, **schemes: Sequence[float | None]) -> Verdict:
        claims = [Claim.model_validate({"name": f"other-{number}", **claim}) for number in range(others)]
        claims.append(Claim.model_validate({"name": "one", **claim}))
        run = write_run(tmp_path / "run", schemes)
        return judge_all(run, Campaign(question="?", claims=claims), None)[-1]

    return judged


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ([2.0, 2.1, 1.9, 2.05], "holds"),
        ([1.0, 1.1, 0.9, 1.05], "refuted"),
        ([1.0, 2.1, 1.9, 1.2], "undecided"),
        ([2.0], "undecided"),
        ([2.0, 2.0, 2.0, 2.0], "undecided"),
        ([2.0, 2.0, 2.0, 2.0, 2.0], "holds"),
    ],
)
def test_the_interval_over_seeds_decides(judge: Judge, values: list[float], verdict: str) -> None:
    found = judge({"measure": RATIO, "bound": "> 1.5"}, a=[1.0] * len(values), b=values)
    assert found.verdict == verdict
    (estimate,) = found.estimates
    assert estimate.values == {str(seed): value for seed, value in enumerate(values, 1)}
    assert found.measured == {"value": pytest.approx(np.mean(values))}
    assert found.seeds == len(values)
    assert (found.reason is None) == (verdict == "holds")


def test_a_claim_holds_if_it_does_for_each_combination(judge: Judge) -> None:
    claim = {"measure": "avg(goodput_bps)", "each": ["scheme"], "bound": "> 1.5"}
    assert judge(claim, a=[2.0, 2.1, 2.2], b=[3.0, 3.1, 3.3]).verdict == "holds"
    found = judge(claim, a=[2.0, 2.1, 2.2], b=[1.0, 1.1, 1.05])
    assert found.verdict == "refuted" and found.reason is not None
    assert found.reason.startswith("value (scheme b) is ") and found.reason.endswith(", expected > 1.5")
    assert [estimate.group for estimate in found.estimates] == [{"scheme": "a"}, {"scheme": "b"}]


def test_a_measure_without_a_bound_is_shown_and_decides_nothing(judge: Judge) -> None:
    claim = {"measure": {"ratio": RATIO, "least": "min(goodput_bps)"}, "bound": {"ratio": "> 1.5"}}
    found = judge(claim, a=[1.0, 1.0, 1.0], b=[2.0, 2.1, 2.2])
    assert found.verdict == "holds" and set(found.measured) == {"ratio", "least"}
    assert [estimate.outcome for estimate in found.estimates] == ["holds", None]


def test_a_seed_without_a_value_leaves_a_claim_undecided(judge: Judge) -> None:
    claim = {"measure": "1 / nullif(avg(goodput_bps), 5)", "bound": "> 0"}
    found = judge(claim, a=[5.0, 2.0, 2.1, 2.2])
    assert (found.verdict, found.reason) == ("undecided", "value has no value for seed 1")


def test_seeds_that_only_some_combinations_have_do_not_count(judge: Judge) -> None:
    found = judge({"measure": RATIO, "bound": "> 1.5"}, a=[1.0, 1.0, 1.0, 1.0], b=[2.0, 2.1, 2.2, None])
    assert (found.verdict, found.seeds) == ("holds", 3)


@pytest.mark.parametrize(
    ("expect", "values", "contradicted"),
    [
        ("holds", [1.0 + seed / 100 for seed in range(11)], True),
        ("holds", [1.0 + seed / 100 for seed in range(10)], False),
        ("holds", [2.0 + seed / 100 for seed in range(11)], False),
        ("holds", [1.2 + (seed % 2) / 2 for seed in range(11)], False),
        ("refuted", [2.0 + seed / 100 for seed in range(11)], True),
        ("refuted", [2.0 + seed / 100 for seed in range(3)], False),
        ("undecided", [2.0 + seed / 100 for seed in range(11)], False),
    ],
)
def test_eleven_seeds_at_least_change_the_exit_status(
    judge: Judge, expect: str, values: list[float], contradicted: bool
) -> None:
    claim = {"measure": "avg(goodput_bps)", "bound": "> 1.5", "expect": expect, "why": "so"}
    assert judge(claim, a=values).contradicted is contradicted


def test_more_claims_need_more_seeds(judge: Judge) -> None:
    claim = {"measure": "avg(goodput_bps)", "bound": "> 1.5"}
    values = [1.0 + seed / 100 for seed in range(16)]
    assert judge(claim, a=values[:11]).contradicted
    assert not judge(claim, a=values[:11], others=19).contradicted
    assert judge(claim, a=values, others=19).contradicted


def test_a_deterministic_claim_is_decided_by_one_seed_and_all_have_to_agree(judge: Judge) -> None:
    claim = {"measure": "avg(goodput_bps)", "bound": "> 1.5", "random": False}
    assert judge(claim, a=[2.0]).verdict == "holds"
    refuted = judge(claim, a=[1.0])
    assert refuted.verdict == "refuted" and refuted.contradicted
    differs = judge(claim, a=[2.0, 2.1])
    assert differs.contradicted and differs.verdict == "undecided"
    assert differs.reason == "`random: off`, but `value` is 2 for seed 1 and 2.1 for seed 2"


SQL = {"sql": "SELECT min(goodput_bps) > 1.5 AS holds, min(goodput_bps) AS least FROM cells"}


@pytest.mark.parametrize(
    ("good", "of", "verdict"), [(6, 6, "holds"), (5, 5, "undecided"), (0, 6, "refuted"), (8, 10, "undecided")]
)
def test_sql_is_asked_for_each_seed(judge: Judge, good: int, of: int, verdict: str) -> None:
    found = judge(SQL, a=[2.0] * good + [1.0] * (of - good))
    assert (found.verdict, found.seeds) == (verdict, of)
    assert found.sample_holds is (good == of)
    assert found.measured == {"least": 2.0 if good == of else 1.0}
    assert found.estimates[0].point_estimate == good / of


def test_sql_of_a_deterministic_claim_gives_the_same_row_for_each_seed(judge: Judge) -> None:
    assert judge(SQL | {"random": False}, a=[2.0]).verdict == "holds"
    assert judge(SQL | {"random": False}, a=[2.0, 2.0]).verdict == "holds"
    found = judge(SQL | {"random": False}, a=[2.0, 3.0])
    assert found.contradicted and found.reason is not None and "other values for seed 2" in found.reason


@pytest.mark.parametrize(
    "claim",
    [
        {"measure": "goodput_bps", "bound": "> 1"},
        {"measure": "avg(nothing)", "bound": "> 1"},
        {"measure": "avg(goodput_bps)", "from": "nowhere", "bound": "> 1"},
        {"measure": "max(scheme)", "bound": "> 1"},
        {"sql": "SELECT 1 AS one"},
        {"sql": "SELECT 3 AS holds"},
    ],
)
def test_a_claim_that_cannot_be_judged_fails_the_run(judge: Judge, claim: dict[str, object]) -> None:
    found = judge(claim, a=[2.0, 2.1], b=[3.0, 3.1])
    assert found.verdict == "undecided" and found.contradicted and found.reason
