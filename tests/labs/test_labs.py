# SPDX-License-Identifier: Apache-2.0
"""The quick campaigns of all labs: complete cells, consistent packet accounting, and expected verdicts."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import duckdb
import pytest

from qbed.live.exporter import deliver

sys.path.insert(0, str(Path(__file__).parents[2] / "orchestrator" / "tests"))
from influx import Server, served

from dashboards import dashboards, panels_without_rows, select

ROOT = Path(__file__).parents[2]
LABS = sorted(path.parent.name for path in ROOT.glob("labs/*/lab.yml"))
CAMPAIGNS = sorted(str(path.relative_to(ROOT / "labs")) for path in ROOT.glob("labs/*/*.yml") if path.name != "lab.yml")


def test_each_lab_has_a_campaign_and_a_readme() -> None:
    assert {"dumbbell", "incast", "fairness"} <= set(LABS)
    assert all((ROOT / "labs" / lab / name).exists() for lab in LABS for name in ("campaign.yml", "README.md"))
    assert "incast/sizes.yml" in CAMPAIGNS


def qbed(*arguments: str) -> None:
    command = [str(Path(sys.executable).parent / "qbed"), *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr


def run(campaign: str, profile: str, out: Path) -> None:
    locked = profile == "quick" and (ROOT / "labs" / campaign).with_suffix(".lock").exists()
    # With a lock, the cells must have the committed trace hashes.
    qbed("run", f"labs/{campaign}", "--profile", profile, "--out", str(out), *(["--locked"] if locked else []))


def run_queries_of_readme(campaign: str, out: Path) -> None:
    """Run the `qbed sql` commands of a lab's README on the run folder `out`."""
    readme = (ROOT / "labs" / campaign).with_name("README.md").read_text()
    for folder, sql in re.findall(r'^    qbed sql (\S+) "(.+)"$', readme, re.MULTILINE):
        assert f"qbed run labs/{Path(campaign).parent} --profile quick --out {folder}\n" in readme
        if Path(campaign).name == "campaign.yml":
            qbed("sql", str(out), sql)


@pytest.fixture(scope="module")
def influx(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with served(tmp_path_factory.mktemp("influx")) as server:
        yield server


def check_dashboards(influx: Server, campaign: str, out: Path) -> None:
    """Every panel has rows of what the lab has, and the newest cell has samples."""
    database = re.sub(r"\W", "_", campaign)
    delivery = deliver(out, influx.sink(database), 60)
    assert (delivery.left, delivery.why) == (0, None)
    assert panels_without_rows(influx, database, out) == []
    chosen = select(influx, database, dashboards()["now"])
    newest = f"\"cell\" = '{chosen['cell']}'"
    assert influx.query(f'SELECT count("t_us") FROM /^(queue|flow)$/ WHERE {newest}', database)
    assert int(chosen["begin"]) < int(chosen["end"]) and int(chosen["bin"]) >= 1


@pytest.mark.parametrize("campaign", CAMPAIGNS)
def test_the_quick_profile_is_complete_and_consistent(campaign: str, influx: Server, tmp_path: Path) -> None:
    out = tmp_path / "run"
    run(campaign, "quick", out)
    cells = duckdb.sql(f"SELECT status, contradictions FROM '{out}/cells.parquet'").fetchall()
    assert cells
    assert all(status == "complete" and contradictions == [] for status, contradictions in cells), cells
    offered, accounted = duckdb.sql(
        f"SELECT sum(offered_packets), sum(sent_packets + dropped_packets + queue_packets) FROM '{out}/queues.parquet'"
    ).fetchall()[0]
    assert offered == accounted > 0
    assert (out / "report.html").stat().st_size > 10_000
    assert list((out / "figures").glob("*.png"))
    run_queries_of_readme(campaign, out)
    if Path(campaign).name == "campaign.yml":
        check_dashboards(influx, campaign, out)


@pytest.mark.parametrize("campaign", CAMPAIGNS)
def test_any_seeds_end_with_status_0(campaign: str, tmp_path: Path) -> None:
    """A seed that follows from the commit, so that each commit tries another, beside the first: every claim has a
    value, and nothing random decides the exit status. The store has the first seed's cells of the test above.
    """
    out = tmp_path / "run"
    qbed(
        "run",
        f"labs/{campaign}",
        "--profile",
        "quick",
        "--seeds",
        f"1,{seed_of_commit()}",
        "--out",
        str(out),
        "--no-images",
    )
    judged = [claim for claim in json.loads((out / "claims.json").read_text()) if claim["verdict"] != "not judged"]
    assert not [claim["name"] for claim in judged if claim["contradicted"]]
    assert not [(claim["name"], claim["reason"]) for claim in judged if claim["seeds"] < 2], "a claim without a value"


def seed_of_commit() -> int:
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return 1000 + int(commit[:8], 16) % 1_000_000


def test_a_profile_compares_linux_and_p4_switches(tmp_path: Path) -> None:
    """Run the profile `switch` of one lab; `make p4-campaigns` runs those of all labs."""
    out = tmp_path / "run"
    run("dumbbell/campaign.yml", "switch", out)
    verdicts = json.loads((out / "claims.json").read_text())
    assert len(verdicts) == 4 and all(len(both) == 2 for verdict in verdicts for both in verdict["measured"].values())
    drawn = {path.stem for path in (out / "figures").glob("*.png")}
    assert {"queue-linux", "queue-bmv2", "marks-linux", "marks-bmv2"} <= drawn


def test_the_radio_links_trace_equals_its_formula() -> None:
    written = (ROOT / "labs/mobile/radio.trace").read_text()
    functions = {name: getattr(module("labs/mobile/trace.py"), name) for name in ("text", "rate_kbps")}
    assert functions["text"]() == written
    assert functions["rate_kbps"](3000) * 40 < functions["rate_kbps"](2980), "the handover"


def module(path: str) -> ModuleType:
    """Load a script of a lab as a module."""
    found = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert found is not None and found.loader is not None
    loaded = importlib.util.module_from_spec(found)
    found.loader.exec_module(loaded)
    return loaded


TWINS = """question: Does a controller give equal results in each run?
axes:
  twin: [{name: one, set: {}}, {name: two, set: {}}]
"""


def test_runs_with_a_controller_are_equal(tmp_path: Path) -> None:
    lab, out = tmp_path / "lab", tmp_path / "run"
    shutil.copytree(ROOT / "labs" / "controller", lab)
    (lab / "campaign.yml").write_text(TWINS)
    qbed = str(Path(sys.executable).parent / "qbed")
    done = subprocess.run([qbed, "run", str(lab), "--out", str(out)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    for table in ("flows", "queues", "queue_series", "switches"):
        first, two = (f"SELECT * EXCLUDE cell FROM '{out}/{table}.parquet' WHERE cell = {cell}" for cell in (0, 1))
        assert duckdb.sql(first).fetchall()
        assert duckdb.sql(f"({first} EXCEPT {two}) UNION ALL ({two} EXCEPT {first})").fetchall() == []
    paths = f"SELECT sent_bytes FROM '{out}/queues.parquet' WHERE port IN ('s1>s2', 's1>s3') AND sent_bytes < 10e6"
    assert len(duckdb.sql(paths).fetchall()) == 4, "without the controller one path carries three quarters of 16 MB"
