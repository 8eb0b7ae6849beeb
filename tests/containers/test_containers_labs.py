# SPDX-License-Identifier: Apache-2.0
"""Labs of the repository in containers: the gap to virtual time is within the bands of their campaigns."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pytest

from qbed.campaign.bounds import parse_bound

from qbed_testing.container_labs import leftovers, qbed

LABS = Path(__file__).parents[2] / "labs"


def failed_claims(run: Path) -> set[str]:
    """Claims of which some average over these seeds is outside its bound."""
    claims = json.loads((run / "claims.json").read_text())
    return {
        claim["name"]
        for claim in claims
        if claim["sample_holds"] is False
        or any(
            not parse_bound(estimate["bound"]).contains(estimate["point_estimate"])
            for estimate in claim["estimates"]
            if estimate["bound"]
        )
    }


@pytest.mark.parametrize(
    "campaign, dilation, settings, may_fail",
    [
        # Late packets wait at other ports. A retransmission timeout is random: one of 10 ms is a quarter of the lab.
        (
            "dumbbell",
            300,
            ["--seeds", "1", "--set", "duration=40 ms", "--set", "hosts.default.rto_min=2 ms"],
            {"one-bottleneck"},
        ),
        ("incast/containers.yml", 1000, [], set()),
        ("fairness/containers.yml", 10, [], set()),
    ],
)
def test_a_campaign_gives_equal_results_in_containers_and_virtual_time(
    campaign: str,
    dilation: int,
    settings: list[str],
    may_fail: set[str],
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    request.addfinalizer(lambda: qbed(tmp_path, "down", "--all"))
    name = campaign.partition("/")[0]
    before = leftovers(name, tmp_path)
    arguments = ["--on", "virtual,containerlab", "--dilate", str(dilation), "--out", "out", "--no-images", *settings]
    done = qbed(tmp_path, "run", str(LABS / campaign), "--profile", "quick", *arguments, timeout=600)
    refuted = {substrate: failed_claims(tmp_path / "out" / substrate) for substrate in ("virtual", "containerlab")}
    assert refuted["virtual"] == set() and refuted["containerlab"] <= may_fail, done.stderr
    assert done.returncode == 0, done.stderr
    found = duckdb.sql(
        f"SELECT substrate, count(*), bool_and(status = 'complete') FROM '{tmp_path}/out/*/cells.parquet' GROUP BY ALL"
    ).fetchall()
    assert {(substrate, complete) for substrate, _, complete in found} == {("virtual", True), ("containerlab", True)}
    assert len({cells for _, cells, _ in found}) == 1
    gap = json.loads((tmp_path / "out/gap.json").read_text())
    judged = [row for row in gap["rows"] if row["band"] is not None]
    assert judged and gap["broken"] == 0, (tmp_path / "out/gap.md").read_text()
    assert leftovers(name, tmp_path) == before
