# SPDX-License-Identifier: Apache-2.0
"""A third-party substrate (substrates/replay): the command line, campaigns, samples and results use it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

pytestmark = pytest.mark.e2e
FOLDER = Path(__file__).parent
LAB = """\
name: recorded
topology: {star: {hosts: 2}}
links: {default: {rate: 1 Gbit/s, delay: 5 us}}
switches: {default: {scheme: ecn, buffer: 64 KB, threshold: 5 packets}}
workload:
  - flow: {from: h1, to: h2, size: 200 KB}
observe: {queues: 100 us}
duration: 10 ms
"""
CAMPAIGN = """\
question: Does a recording give the results of the original?
axes: {threshold: {field: switches.default.threshold, values: [5 packets, 10 packets]}, seed: [1, 2]}
claims:
  - name: complete
    paper: Flows complete.
    random: no
    measure: "avg((status = 'complete')::INT)"
    from: flows
    bound: "= 1"
gap: {goodput_bps: 0, queue_mean_packets: 0}
"""


def qbed(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {
        "QBED_SUBSTRATES": str(FOLDER / "substrates"),
        "QBED_RECORDED": str(folder / "first"),
        "XDG_RUNTIME_DIR": str(folder / "state"),
    }
    command = [sys.executable, "-m", "qbed", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a lab and a run of it with `--keep`."""
    folder = tmp_path_factory.mktemp("third")
    (folder / "lab").mkdir()
    (folder / "lab" / "lab.yml").write_text(LAB)
    (folder / "lab" / "campaign.yml").write_text(CAMPAIGN)
    done = qbed(folder, "run", "lab", "--keep", "--no-images", "--out", "first")
    assert done.returncode == 0, done.stderr
    return folder


def test_a_campaign_on_the_substrate_is_equal_and_names_it(folder: Path) -> None:
    done = qbed(folder, "run", "lab", "--on", "replay", "--keep", "--no-images", "--out", "second")
    assert done.returncode == 0, done.stderr
    assert "4 of 4 cells complete" in done.stderr and done.stderr.startswith("holds")
    for table in ("flows", "queues", "queue_series"):
        assert (folder / "second" / f"{table}.parquet").read_bytes() == (
            folder / "first" / f"{table}.parquet"
        ).read_bytes()
    ran_on = "SELECT DISTINCT substrate FROM '{}/cells.parquet'"
    assert duckdb.sql(ran_on.format(folder / "second")).fetchall() == [("replay",)]
    assert json.loads((folder / "second" / "campaign.json").read_bytes())["substrate"]["name"] == "replay"
    again = qbed(folder, "run", "lab", "--out", "second", "--no-images")
    assert again.returncode != 0 and "the substrate or its dilation" in again.stderr


def test_the_substrates_samples_are_streamed(folder: Path) -> None:
    assert qbed(folder, "run", "lab", "--on", "replay", "--keep", "--no-images", "--out", "third").returncode == 0
    clock, *rows = map(json.loads, qbed(folder, "samples", "third").stdout.splitlines())
    assert clock == {"event": "clock", "substrate": "replay", "recorded": True}
    assert [row["time_ns"] for row in rows] == [100_000 * n for n in range(1, 101) for _ in range(2)]
    assert {row["port"] for row in rows} == {"s1>h1", "s1>h2"}


def test_two_substrates_are_compared(folder: Path) -> None:
    done = qbed(folder, "run", "lab", "--on", "virtual,replay", "--no-images", "--out", "both")
    assert done.returncode == 0, done.stderr
    gap = json.loads((folder / "both" / "gap.json").read_bytes())
    assert gap["broken"] == 0 and gap["substrate"] == "replay"
    assert {row["metric"] for row in gap["rows"]} >= {"goodput_bps"} and not any(
        row["difference"] for row in gap["rows"]
    )


def test_an_unsupported_command_is_refused(folder: Path) -> None:
    done = qbed(folder, "up", "lab", "--on", "replay")
    assert done.returncode == 1 and done.stderr.strip().endswith("a recording cannot be brought up")
    assert qbed(folder, "ps").stdout.startswith("LAB")
    done = qbed(folder, "run", "lab", "--on", "replay", "--set", "duration=11 ms", "--no-images", "--out", "other")
    assert done.returncode == 1 and "this plan was not recorded" in done.stderr
    done = qbed(folder, "run", "lab", "--on", "replays")
    assert done.returncode == 2 and "`replay`" in done.stderr
    done = qbed(folder, "run", "lab", "--on", "replay,virtual", "--no-images", "--out", "reversed")
    assert done.returncode == 0 and json.loads((folder / "reversed" / "gap.json").read_bytes())["reference"] == "replay"
    assert "4 cells in" in qbed(folder, "doctor", "--on", "replay").stdout
