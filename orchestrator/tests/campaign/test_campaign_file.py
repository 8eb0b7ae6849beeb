# SPDX-License-Identifier: Apache-2.0
"""The campaign file: its errors name place and remedy; the matrix has every combination once."""

from __future__ import annotations

from pathlib import Path

import pytest
from campaigns import CAMPAIGN, write_lab

from qbed.campaign.axes import column_name
from qbed.campaign.file import Campaign, CampaignError, load_campaign
from qbed.campaign.matrix import MatrixError, build_matrix
from qbed.cli.run import parse_seeds


def load(tmp_path: Path, text: str) -> Campaign:
    return load_campaign(write_lab(tmp_path, text) / "campaign.yml")[0]


def test_every_combination_is_one_cell(tmp_path: Path) -> None:
    matrix = build_matrix(load(tmp_path, CAMPAIGN))
    cells = list(matrix)
    assert len(matrix) == len(cells) == 12
    assert len({tuple(cell.values.items()) for cell in cells}) == 12
    assert [cell.number for cell in cells] == list(range(12))
    assert cells[0].values == {"tcp": "reno", "delay": "5 us", "seed": 1}
    assert cells[-1].settings == {"hosts.default.tcp": "cubic", "links.default.delay": "10 us"}
    assert [cell.seed for cell in cells[:3]] == [1, 2, 3]


def test_a_profile_takes_a_part_and_set_wins(tmp_path: Path) -> None:
    campaign = load(tmp_path, CAMPAIGN)
    assert len(build_matrix(campaign, "quick")) == 2
    fixed = build_matrix(campaign, "quick", seeds=[7, 8], settings={"links.default.delay": "1 ms"})
    assert [(cell.seed, cell.settings["links.default.delay"]) for cell in fixed][:2] == [(7, "1 ms"), (8, "1 ms")]
    assert fixed.cell(0).values["delay"] == "1 ms", "the results must say what was run"


def test_ten_thousand_cells_are_not_held(tmp_path: Path) -> None:
    campaign = load(tmp_path, f"question: Many?\naxes: {{seed: {list(range(10_000))}}}\n")
    matrix = build_matrix(campaign)
    assert len(matrix) == 10_000 and matrix.cell(9_999).seed == 9_999


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("seed: [1, 2, 3]", "seed: []"), "campaign.yml:7:9: axes.seed: an axis needs at least one value"),
        (("question:", "qestion:"), "unknown field; did you mean `question`?"),
        (("delay: [5 us]}", "dely: [5 us]}"), "no axis `dely`; did you mean `delay`?"),
        (
            ("field: links.default.delay, values", "feld: x, values"),
            "expected a list of values, a list of `{name: ..., set",
        ),
        (("kind: queue", "kind: queues"), "figures[0].kind: expected `queue`"),
        (("    sql: SELECT", "    expect: refuted\n    sql: SELECT"), "a claim with `expect: refuted` needs `why`"),
        (("  tcp:\n", "  status:\n"), "the results have a column `status`; call the axis otherwise"),
        (("  tcp:\n", '  "workload[0].flows.dscp":\n'), "the results have a column `dscp`"),
        (("  tcp:\n", "  lost:\n"), "the results have a column `lost`"),
        (("  tcp:\n", "  session:\n"), "the results have a column `session`"),
        (("  tcp:\n", "  2nd:\n"), "`2nd` is no name for a column"),
        (("kind: queue", "x_label: Time, kind: queue"), "figures[0].x_label: unknown field; did you mean `x_title`?"),
        (("kind: bar", "kind: fct"), "`sql` belongs to the kinds"),
    ],
)
def test_mistakes_are_named_with_their_place(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    with pytest.raises(CampaignError) as caught:
        load(tmp_path, CAMPAIGN.replace(*change))
    assert message in str(caught.value)
    assert "campaign.yml:" in str(caught.value)


def test_unknown_profiles_and_bad_seeds_are_refused(tmp_path: Path) -> None:
    campaign = load(tmp_path, CAMPAIGN)
    with pytest.raises(MatrixError, match="did you mean `quick`"):
        build_matrix(campaign, "quik")
    with pytest.raises(MatrixError, match="whole numbers"):
        build_matrix(campaign, seeds=[-1])


def test_names_of_columns_and_seeds() -> None:
    assert column_name("workload[0].incast.senders") == "senders"
    assert column_name("switches.default.ecn_threshold") == "ecn_threshold"
    assert parse_seeds("1,4..6") == [1, 4, 5, 6]


CLAIM = "claims:\n  - {name: fast, measure: avg(goodput_bps), bound: '> 1e9'}\n"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("bound: '> 1e9'", "bound: fast"), "claims[0].bound: expected a bound such as"),
        ((", bound: '> 1e9'", ""), "claims[0]: a claim with `measure` needs `bound`, such as `> 1.5`"),
        (
            ("measure: avg(goodput_bps), bound: '> 1e9'", "bound: '> 1'"),
            "a claim needs either `measure` and `bound`, or `sql`",
        ),
        (("bound: '> 1e9'", "bound: '> 1e9', sql: SELECT true AS holds"), "a claim needs either `measure` and `bound`"),
        (("measure: avg(goodput_bps)", "each: [seed], sql: SELECT true AS holds"), "belongs to a claim with `measure`"),
        (
            ("measure: avg(goodput_bps), bound: '> 1e9'", "measure: {rate: avg(goodput_bps)}, bound: {rte: '> 1'}"),
            "`bound` names no measure: `rte`; did you mean `rate`?",
        ),
        (("bound: '> 1e9'", "bound: '> 1e9', expect: undecided"), "a claim with `expect: undecided` needs `why`"),
        (("bound: '> 1e9'", "bound: '> 1e9', average: mode"), "average: expected `mean`, `geometric` or `median`, got"),
    ],
)
def test_incomplete_claims_are_reported(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    text = f"question: Fast?\n{CLAIM}"
    assert Campaign.model_validate(load(tmp_path, text).model_dump(by_alias=True)) == load(tmp_path, text)
    with pytest.raises(CampaignError) as refused:
        load(tmp_path, text.replace(*change))
    assert message in str(refused.value)
