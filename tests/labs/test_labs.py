# SPDX-License-Identifier: Apache-2.0
"""Every lab, end to end: its quick campaigns run, their books balance, their claims are as expected."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import duckdb
import pytest

ROOT = Path(__file__).parents[2]
LABS = sorted(path.parent.name for path in ROOT.glob("labs/*/lab.yml"))
CAMPAIGNS = sorted(str(path.relative_to(ROOT / "labs")) for path in ROOT.glob("labs/*/*.yml") if path.name != "lab.yml")


def test_there_are_labs() -> None:
    assert {"dumbbell", "incast", "fairness"} <= set(LABS)
    assert all((ROOT / "labs" / lab / name).exists() for lab in LABS for name in ("campaign.yml", "README.md"))
    assert "incast/sizes.yml" in CAMPAIGNS


def qbed(*words: str) -> None:
    command = [str(Path(sys.executable).parent / "qbed"), *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr


def run(campaign: str, profile: str, out: Path) -> None:
    locked = profile == "quick" and (ROOT / "labs" / campaign).with_suffix(".lock").exists()
    # It does what it did when that was committed.
    qbed("run", f"labs/{campaign}", "--profile", profile, "--out", str(out), *(["--locked"] if locked else []))


def ask_what_the_readme_asks(campaign: str, out: Path) -> None:
    """Its questions to the run whose folder it names."""
    readme = (ROOT / "labs" / campaign).with_name("README.md").read_text()
    for folder, sql in re.findall(r'^    qbed sql (\S+) "(.+)"$', readme, re.MULTILINE):
        assert f"qbed run labs/{Path(campaign).parent} --profile quick --out {folder}\n" in readme
        if Path(campaign).name == "campaign.yml":
            qbed("sql", str(out), sql)


@pytest.mark.parametrize("campaign", CAMPAIGNS)
def test_the_quick_profile_of(campaign: str, tmp_path: Path) -> None:
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
    ask_what_the_readme_asks(campaign, out)


def test_a_profile_compares_the_kernels_switches_with_those_in_p4(tmp_path: Path) -> None:
    """One lab; `make p4-campaigns` runs the profile of all."""
    out = tmp_path / "run"
    run("dumbbell/campaign.yml", "switch", out)
    verdicts = json.loads((out / "claims.json").read_text())
    assert len(verdicts) == 4 and all(len(both) == 2 for one in verdicts for both in one["measured"].values())
    drawn = {path.stem for path in (out / "figures").glob("*.png")}
    assert {"queue-linux", "queue-bmv2", "marks-linux", "marks-bmv2"} <= drawn


def test_the_radio_links_trace_is_what_its_formula_gives() -> None:
    written = (ROOT / "labs/mobile/radio.trace").read_text()
    wanted = {name: getattr(module("labs/mobile/trace.py"), name) for name in ("text", "rate_kbps")}
    assert wanted["text"]() == written
    assert wanted["rate_kbps"](3000) * 40 < wanted["rate_kbps"](2980), "the handover"


def module(path: str) -> ModuleType:
    """A script of a lab."""
    found = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert found is not None and found.loader is not None
    loaded = importlib.util.module_from_spec(found)
    found.loader.exec_module(loaded)
    return loaded


TWINS = """question: Does a controller do the same at every run?
axes:
  twin: [{name: one, set: {}}, {name: two, set: {}}]
"""


def test_a_controller_does_the_same_at_every_run(tmp_path: Path) -> None:
    lab, out = tmp_path / "lab", tmp_path / "run"
    shutil.copytree(ROOT / "labs" / "controller", lab)
    (lab / "campaign.yml").write_text(TWINS)
    qbed = str(Path(sys.executable).parent / "qbed")
    done = subprocess.run([qbed, "run", str(lab), "--out", str(out)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    for table in ("flows", "queues", "queue_series", "switches"):
        one, two = (f"SELECT * EXCLUDE cell FROM '{out}/{table}.parquet' WHERE cell = {cell}" for cell in (0, 1))
        assert duckdb.sql(one).fetchall()
        assert duckdb.sql(f"({one} EXCEPT {two}) UNION ALL ({two} EXCEPT {one})").fetchall() == []
    ways = f"SELECT sent_bytes FROM '{out}/queues.parquet' WHERE port IN ('s1>s2', 's1>s3') AND sent_bytes < 10e6"
    assert len(duckdb.sql(ways).fetchall()) == 4, "without the controller three quarters of 16 MB go by one way"
