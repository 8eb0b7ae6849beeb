# SPDX-License-Identifier: Apache-2.0
"""As many seeds as a mean needs: how many follows from the results, and a claim with too few is undecided."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable
from pathlib import Path

import duckdb
import pytest
from campaigns import Bench, Screen, fake_toolchain, hashes, write_lab
from fake_nodes import FakeContainerlab, clab
from hypothesis import given
from hypothesis import strategies as st

from qbed.campaign.file import CampaignError, load_campaign
from qbed.campaign.matrix import build_matrix
from qbed.campaign.until import MIN_SEEDS, Until, half_width, parse_until
from qbed.runs.executor import OutcomeLog
from qbed.runs.experiment import RunOptions, prepare, run_campaign
from qbed.runs.worker import Task, Worker
from qbed.substrates import Limits

__all__ = ["clab"]
ONE = """\
question: How long do flows take?
seeds: UNTIL
claims: []
"""

CAMPAIGN = """\
question: How long do flows take?
axes:
  tcp:
    - {name: reno, set: {hosts.default.tcp: reno}}
    - {name: cubic, set: {hosts.default.tcp: cubic}}
seeds: UNTIL
profiles:
  one: {axes: {seed: [7]}}
claims:
  - {name: all, paper: There are flows., sql: SELECT count(*) > 0 AS holds FROM flows}
"""
UNTIL = "until 12 % of fct_mean_ns, at most 20"


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    bench = Bench(tmp_path)
    write_lab(bench.lab, CAMPAIGN.replace("UNTIL", UNTIL))
    return bench


def test_seeds_run_until_the_mean_is_known(bench: Bench) -> None:
    status, text = bench.campaign("a")
    assert status == 0, text
    counts = bench.query("a", "SELECT tcp, count(*), max(seed) FROM 'RUN/cells.parquet' GROUP BY 1 ORDER BY 1")
    for tcp, count, last in counts:
        rows = bench.query(
            "a",
            f"""SELECT avg(fct_ns) FROM 'RUN/flows.parquet' JOIN 'RUN/cells.parquet' USING (cell)
            WHERE tcp = '{tcp}' GROUP BY seed ORDER BY seed""",
        )
        values = [float(str(row[0])) for row in rows]
        assert isinstance(count, int) and MIN_SEEDS < count == last == len(values) < 20
        assert half_width(values) <= 0.12 < half_width(values[:MIN_SEEDS])
    ran = sum(int(str(row[1])) for row in counts)
    assert f"{ran} of {ran} cells complete" in text
    assert bench.run("verify", "a")[0] == 0
    assert f"{ran} cells: {ran} complete" in bench.run("cells", "a")[1]

    # Every executor runs these cells, also in parts.
    status, text = bench.campaign("a")
    assert (status, f"{ran} cells are finished already" in text) == (0, True), text
    for which in "12":
        assert bench.campaign(f"part-{which}", "--shard", f"{which}/2")[0] == 0
    assert bench.run("merge", "lab", "part-1", "part-2", "--out", "b", "--no-images")[0] == 0
    assert hashes(bench.folder / "a") == hashes(bench.folder / "b")


def test_a_claim_with_too_few_seeds_is_undecided(bench: Bench) -> None:
    write_lab(bench.lab, CAMPAIGN.replace("UNTIL", "until 0.5 % of fct_mean_ns, at most 6"))
    status, text = bench.campaign("a", "--junit", "out.xml", "--summary", "out.md")
    assert status == 0 and "12 of 12 cells complete" in text
    (verdict,) = json.loads((bench.folder / "a" / "claims.json").read_text())
    assert verdict["verdict"] == "undecided"
    assert "too few seeds: the mean of fct_mean_ns is known to" in verdict["reason"]
    assert "not to 0.5 %, after 6 seeds (tcp=" in verdict["reason"] and "1 more like it" in verdict["reason"]
    for file in ("a/report.html", "out.xml", "out.md"):
        assert "undecided" in (bench.folder / file).read_text()
    assert bench.campaign("a", "--fail-on", "verdicts")[0] == 1


def test_an_unknown_mean_is_reported(bench: Bench) -> None:
    bench.behave(all="panic")
    status, text = bench.campaign("a")
    assert status == 1 and "10 failed" in text and "internal error in qbed" not in text, text
    assert "Traceback" not in text


def test_a_cell_that_fails_ends_its_seeds(bench: Bench) -> None:
    bench.behave(seed_2="panic")
    status, text = bench.campaign("a")
    assert (status, "8 of 10 cells complete, 2 failed" in text) == (1, True), text


def test_a_list_of_seeds_is_a_list(bench: Bench) -> None:
    campaign, _ = load_campaign(bench.lab / "campaign.yml")
    assert len(build_matrix(campaign)) == 40 and build_matrix(campaign).until == parse_until(UNTIL)
    for matrix in (build_matrix(campaign, "one"), build_matrix(campaign, seeds=[7])):
        assert (len(matrix), matrix.until) == (2, None)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("5 %", "expected such as `until 5 % of goodput_bps, at most 50`, got `5 %`"),
        ("until 5 % of goodputs_bps", "no metric is called `goodputs_bps`; did you mean `goodput_bps`?"),
        ("until 0 % of goodput_bps", "expected more than 0 % and less than 100 %, and at most 5 to 10000 seeds"),
        ("until 5 % of goodput_bps, at most 4", "and at most 5 to 10000 seeds"),
        ("until 5 % of goodput_bps\naxes: {seed: [1]}", "the axis `seed` has a list: expected one of the two"),
    ],
)
def test_errors_name_the_field(tmp_path: Path, wrong: str, message: str) -> None:
    (tmp_path / "campaign.yml").write_text(f"question: What?\nseeds: {wrong}\n")
    with pytest.raises(CampaignError) as caught:
        load_campaign(tmp_path / "campaign.yml")
    assert message in str(caught.value) and "campaign.yml:2:" in str(caught.value)


@given(st.lists(st.floats(0, 1e12), max_size=60), st.floats(0.001, 0.9))
def test_how_many_more_is_bounded(values: list[float], share: float) -> None:
    until = Until(share, "goodput_bps", 50)
    wanted = until.seeds(values[:50])
    assert MIN_SEEDS <= wanted <= 50 and wanted <= max(2 * len(values), MIN_SEEDS)
    if len(values) >= MIN_SEEDS:
        assert wanted >= min(len(values), 50)
        assert (wanted == len(values[:50])) == (until.met(values[:50]) or len(values) >= 50)
    if len(values) > 1 and statistics.fmean(values) > 0:
        assert half_width(values) >= 0


class Here:
    """An executor in this process, where the nodes are threads."""

    cores: tuple[int, ...] = ()

    def run(self, task: Task, cells: Iterable[int], log: OutcomeLog) -> None:
        for cell in cells:
            outcome = Worker(task).run(cell)
            assert outcome.status == "complete", outcome.error
            log.add(outcome)


def test_cells_on_the_wall_clock_run_until_the_mean_is_known(
    clab: FakeContainerlab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are not repeatable and in no store: a cell that is finished is one observation, and more are made."""
    monkeypatch.setenv("QBED_TOOLCHAIN", str(fake_toolchain(tmp_path / "tools")))
    lab = write_lab(tmp_path / "lab", ONE.replace("UNTIL", "until 15 % of fct_mean_ns, at most 20"))
    wishes = RunOptions(out=tmp_path / "run", limits=Limits(60, 60), on="containerlab", dilation=3)
    done = run_campaign(prepare(lab, wishes), Here(), Screen(), images=False)
    values = [float(value) for (value,) in duckdb.sql(
        f"SELECT avg(fct_ns) FROM '{tmp_path}/run/flows.parquet' GROUP BY cell ORDER BY cell").fetchall()]  # fmt: skip
    assert MIN_SEEDS < done.totals.complete == len(values) < 20 and done.totals.stored == 0
    assert half_width(values) <= 0.15 < half_width(values[:MIN_SEEDS])
    again = run_campaign(prepare(lab, wishes), Here(), Screen(), images=False)
    assert (again.totals.skipped, again.totals.cells) == (len(values), len(values))
