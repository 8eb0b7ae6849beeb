# SPDX-License-Identifier: Apache-2.0
"""The claims of the labs that come with qbed: their SQL, in the profiles that no test runs, too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from qbed.campaign.file import load_campaign
from qbed.campaign.matrix import build_matrix
from qbed.claims.intervals import CONFIDENCE
from qbed.claims.judge import _combined, _estimate, _Sample
from qbed.claims.samples import measures
from qbed.claims.sql import define
from qbed.claims.views import MACROS, connect_empty

LABS = Path(__file__).parents[3] / "labs"
CAMPAIGNS = sorted(str(path.relative_to(LABS)) for path in LABS.glob("*/*.yml") if path.name != "lab.yml")


@pytest.mark.parametrize("name", CAMPAIGNS)
def test_every_profile_of_a_lab_can_judge_its_claims(name: str) -> None:
    campaign, _ = load_campaign(LABS / name)
    count = 0
    for profile in campaign.profiles:
        with connect_empty(build_matrix(campaign, profile).columns) as connection:
            for view, sql in campaign.views.items():
                define(connection, view, sql)
            for claim in campaign.claims:
                if campaign.judges(claim, profile):
                    columns = dict(row[:2] for row in connection.execute(f"DESCRIBE {claim.query}").fetchall())
                    if claim.sql is None:
                        assert {"seed", *claim.each, *claim.measure} == set(columns), (profile, claim.name)
                    else:
                        assert columns.get("holds") == "BOOLEAN", (profile, claim.name)
                    count += 1
    assert count
    assert not [
        claim.name
        for claim in campaign.claims
        if not any(campaign.judges(claim, profile) for profile in campaign.profiles)
    ]


@pytest.fixture
def tables() -> Iterator[duckdb.DuckDBPyConnection]:
    """The value of an expression with the functions of claims."""
    with duckdb.connect() as connection:
        for macro in MACROS:
            connection.execute(f"CREATE MACRO {macro}")
        yield connection


def verdict(connection: duckdb.DuckDBPyConnection, campaign: str, name: str, *views: str) -> bool | None:
    loaded, _ = load_campaign(LABS / campaign)
    for view in views:
        connection.execute(f"CREATE VIEW {view} AS {loaded.views[view]}")
    (claim,) = (candidate for candidate in loaded.claims if candidate.name == name)
    if claim.sql is None:
        seeds = [seed for (seed,) in connection.execute(f"SELECT DISTINCT seed FROM ({claim.query})").fetchall()]
        sample = _Sample(claim, measures(connection, claim, seeds))
        outcomes = (
            estimate.outcome for estimate in _estimate(sample, seeds, CONFIDENCE)[0] if estimate.outcome is not None
        )
        return {"holds": True, "refuted": False, "undecided": None}[_combined(outcomes)]
    ((holds,),) = connection.execute(f"SELECT holds FROM ({claim.sql})").fetchall()
    assert holds is None or isinstance(holds, bool)
    return holds


@pytest.mark.parametrize(
    ("longer", "holds"),
    [([1.4, 1.41, 1.39], True), ([1.1, 1.11, 1.09], False), ([1.1, 1.6, 1.2], None)],
    ids=["longer", "not-longer", "undecided"],
)
def test_fig_5b_is_undecided_while_its_interval_holds_both_outcomes(
    tables: duckdb.DuckDBPyConnection, longer: list[float], holds: bool | None
) -> None:
    """Drop-tail's last flow takes so much longer than the others', seed by seed; its first one is always sooner."""
    tables.execute("CREATE TABLE flows (scheme TEXT, size TEXT, seed INT, fct_ns DOUBLE)")
    for seed, factor in enumerate(longer):
        for scheme, first, last in (("droptail", 1, 100 * factor), ("ecn", 50, 100), ("abq", 60, 100)):
            rows = [(scheme, size, seed, duration * 1e6) for size in ("16 KB", "512 KB") for duration in (first, last)]
            tables.executemany("INSERT INTO flows VALUES (?, ?, ?, ?)", rows)
    assert verdict(tables, "incast/sizes.yml", "droptail-tail-largest", "sweeps") is holds


@pytest.mark.parametrize(
    ("gains", "holds"),
    [
        ({"none": [0.05, 0.06, 0.055], "fq": [0.07, 0.08, 0.09]}, True),
        ({"none": [0.0, 0.01, -0.01], "fq": [0.07, 0.08, 0.09]}, False),
        ({"none": [0.0, 0.001, 0.002], "fq": [-0.1, -0.11, -0.12]}, False),
        ({"none": [0.05, 0.06, 0.055], "fq": [-0.1, 0.1, 0.2]}, None),
    ],
    ids=["each-cause", "one-cause", "no-cause", "undecided"],
)
def test_a_cause_of_unfairness_is_undecided_while_its_interval_holds_both_outcomes(
    tables: duckdb.DuckDBPyConnection, gains: dict[str, list[float]], holds: bool | None
) -> None:
    tables.execute("CREATE TABLE gains (cause TEXT, experiment INT, seed INT, steady_gain DOUBLE, gain DOUBLE)")
    for cause, values in gains.items():
        rows = [(cause, 2, seed, gain, gain) for seed, gain in enumerate(values)]
        tables.executemany("INSERT INTO gains VALUES (?, ?, ?, ?, ?)", rows)
    assert verdict(tables, "fairness/campaign.yml", "rpm-moderate-spread-by-cause") is holds
