# SPDX-License-Identifier: Apache-2.0
"""The gap between two substrates: what is compared, what it is blamed on, and the gate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from campaigns import CAMPAIGN, write_lab, write_merged_run

from qbed.campaign.bands import METRICS, Band, parse_band
from qbed.campaign.file import CampaignError, load_campaign
from qbed.claims.gap import compare, write_gap

AXES: dict[str, list[Any]] = {"tcp": ["reno", "cubic"], "seed": [1, 2]}


def run(folder: Path, goodputs: list[float | None], wall: dict[str, Any] | None = None) -> Path:
    """A merged run of two settings with two seeds each; None: that cell is invalid."""
    substrate = {"name": "containerlab", "dilation": 20} if wall is not None else {"name": "virtual", "dilation": 1}
    rows = [
        {
            "cell": cell, "tcp": ("reno", "cubic")[cell // 2], "seed": 1 + cell % 2,
            "status": "invalid" if goodput is None else "complete",
            "contradictions": ["deadlines ran late"] if goodput is None else [],
            "goodput_bps": goodput, "dropped_packets": 5, "evidence": json.dumps({"wall": wall or {}}),
        }
        for cell, goodput in enumerate(goodputs)
    ]  # fmt: skip
    return write_merged_run(folder, AXES, rows, ("flows", "queues"), substrate=substrate)


def test_metrics_stand_side_by_side_as_means_over_seeds(tmp_path: Path) -> None:
    virtual = run(tmp_path / "v", [100.0, 104.0, 50.0, 50.0])
    other = run(tmp_path / "c", [99.0, 97.0, 80.0, 80.0], {"host_kernel": [], "late_share_of_rtt": 0.001})
    gap = compare(virtual, other, {"goodput_bps": Band(share=0.1)})
    rows = {(row.setting, row.metric): row for row in gap.rows}
    assert set(rows) == {
        (f"tcp={tcp}", name) for tcp in ("reno", "cubic") for name in ("goodput_bps", "dropped_packets")
    }
    reno, cubic = rows["tcp=reno", "goodput_bps"], rows["tcp=cubic", "goodput_bps"]
    assert (reno.virtual, reno.other, reno.difference, reno.within) == (102, 98, -4, True)
    assert reno.cause == "no more than seeds differ in virtual time"
    assert (cubic.relative, cubic.within) == (0.6, False)
    assert gap.broken == [cubic]
    assert rows["tcp=reno", "dropped_packets"].cause == ""
    text = write_gap(tmp_path, gap).read_text()
    assert "| tcp=cubic | goodput_bps | 50 | 80 | +30 (+60.0%) | **10 %: broken** |" in text
    stored = json.loads((tmp_path / "gap.json").read_text())
    assert (stored["broken"], stored["dilation"], stored["substrate"]) == (1, 20, "containerlab")


@pytest.mark.parametrize(
    "goodputs, wall, cause",
    [
        ([80.0, 80.0], {"host_kernel": ["h1", "h2"], "late_share_of_rtt": 0.05}, "2 hosts on the machine's kernel"),
        ([80.0, 80.0], {"late_share_of_rtt": 0.05}, "timers late by 5.0% of the shortest round trip"),
        ([80.0, 80.0], {"cpu_share": 0.95}, "the machine's cores were busy"),
        ([80.0, 80.0], {}, "the order of packets"),
        ([None, 100.0], {}, "invalid on the other substrate: deadlines ran late"),
    ],
)
def test_the_evidence_names_the_likely_cause(
    tmp_path: Path, goodputs: list[float | None], wall: dict[str, Any], cause: str
) -> None:
    virtual = run(tmp_path / "v", [100.0, 100.0, 1.0, 1.0])
    other = run(tmp_path / "c", [*goodputs, 1.0, 1.0], wall)
    row = compare(virtual, other, {}).rows[0]
    assert row.cause.startswith(cause) and row.within is None


def test_a_metric_without_a_value_breaks_its_band(tmp_path: Path) -> None:
    virtual = run(tmp_path / "v", [100.0] * 4)
    other = run(tmp_path / "c", [None] * 4, {})
    gap = compare(virtual, other, {"goodput_bps": Band(share=0.5)})
    assert [row.other for row in gap.broken] == [None, None]


def test_bands_are_shares_or_differences_or_the_wider_of_both() -> None:
    assert parse_band("10 %") == Band(share=0.1)
    assert parse_band(3) == parse_band("3") == Band(absolute=3)
    assert parse_band("2.5 % or 3") == Band(0.025, 3)
    assert str(parse_band("2.5 % or 3")) == "2.5 % or 3"
    band = parse_band("10 % or 3")
    assert band.holds(10, 13) and band.holds(100, 110) and not band.holds(10, 13.1)
    for wrong in ("", "or", "ten", -1, None, True, "10 percent"):
        with pytest.raises(ValueError, match="expected a tolerated difference"):
            parse_band(wrong)


def test_a_campaigns_bands_are_checked(tmp_path: Path) -> None:
    lab = write_lab(tmp_path / "lab", CAMPAIGN + "gap: {goodput_bps: 5 %, timeouts: 3}\n")
    campaign, _ = load_campaign(lab / "campaign.yml")
    assert campaign.gap == {"goodput_bps": Band(share=0.05), "timeouts": Band(absolute=3)}
    assert set(campaign.gap) <= set(METRICS)
    for wrong, message in (
        ("{goodput: 5 %}", "did you mean `goodput_bps`"),
        ("{timeouts: few}", "expected a tolerated"),
    ):
        write_lab(tmp_path / "lab", CAMPAIGN + f"gap: {wrong}\n")
        with pytest.raises(CampaignError, match=message):
            load_campaign(lab / "campaign.yml")
