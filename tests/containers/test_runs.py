# SPDX-License-Identifier: Apache-2.0
"""Campaigns in containers: cells, evidence, the gap to virtual time, and recovery from a killed run."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import duckdb
import pytest

from qbed_testing.container_labs import STAR, docker, environment, leftovers, qbed, write_lab

DILATION = "20"
CAMPAIGN = """\
question: Are the results equal on the wall clock?
axes: {seed: [1, 2]}
claims:
  - name: complete
    paper: Every flow completes.
    random: no
    sql: SELECT bool_and(status = 'complete') AS holds FROM flows
gap: {goodput_bps: 10 %, fct_mean_ns: 10 %, flows_complete: 0, timeouts: 0}
"""


@pytest.fixture
def lab(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    request.addfinalizer(lambda: qbed(tmp_path, "down", "--all"))
    folder = write_lab(tmp_path, "qbed-t-run")
    (folder / "campaign.yml").write_text(CAMPAIGN)
    return folder


def container_names() -> str:
    return docker("ps", "-a", "--filter", "label=containerlab", "--format", "{{.Names}}")


def test_a_campaign_on_both_substrates_and_the_gap_between_them(lab: Path, tmp_path: Path) -> None:
    arguments = ("--on", "virtual,containerlab", "--dilate", DILATION, "--out", "out", "--no-images")
    done = qbed(tmp_path, "run", str(lab), *arguments)
    assert done.returncode == 0, done.stderr
    rows = duckdb.sql(
        f"SELECT substrate, dilation, status, flows_complete FROM '{tmp_path}/out/*/cells.parquet' ORDER BY ALL"
    ).fetchall()
    assert rows == [("containerlab", int(DILATION), "complete", 1)] * 2 + [("virtual", 1, "complete", 1)] * 2
    gap = json.loads((tmp_path / "out/gap.json").read_text())
    assert gap["broken"] == 0 and {row["metric"] for row in gap["rows"]} >= {"goodput_bps", "fct_mean_ns"}
    evidence = json.loads(
        duckdb.sql(f"SELECT evidence FROM '{tmp_path}/out/containerlab/cells.parquet'").fetchall()[0][0]
    )
    assert set(evidence["wall"]["nodes"]) == {"h1", "h2", "s1"} and evidence["wall"]["late_share_of_rtt"] < 0.1
    series = duckdb.sql(f"SELECT max(time_ns) FROM '{tmp_path}/out/containerlab/queue_series.parquet'").fetchall()
    assert series == [(150_000_000,)]  # in the lab's time
    assert leftovers("qbed-t-run", tmp_path) == []


def test_rates_probes_and_exchanges_between_two_agents_are_as_in_virtual_time(tmp_path: Path, lab: Path) -> None:
    rate = STAR.replace("kernel: qbed", "controller: {name: fixed, rate: 5 Mbit/s}")
    rate = rate.replace("50 KB, label: bulk", "50 KB, transport: rate") + "addressing: both\n"
    workloads = "  - flow: {from: h2, to: h1, stop: 50 ms, transport: rate, family: 6}\n"
    workloads += "  - probes: {pairs: [[h1, h2], [h2, h1]], interval: 5 ms, stop: 100 ms, dscp: EF}\n"
    workloads += (
        "  - requests: {pairs: [[h1, h2], [h2, h1]], request: 100 B, response: 1 KB, exchanges: 3, start: 100 ms}\n"
    )
    rate = rate.replace("observe", f"{workloads}observe")
    (lab / "lab.yml").write_text(rate.replace("NAME", "qbed-t-run"))
    arguments = ("--on", "virtual,containerlab", "--dilate", DILATION, "--out", "out", "--no-images", "--seeds", "1")
    done = qbed(tmp_path, "run", str(lab), *arguments)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "out/gap.json").read_text())["broken"] == 0

    def rows(table: str, columns: str) -> list[list[tuple[Any, ...]]]:
        runs = [tmp_path / "out" / substrate / f"{table}.parquet" for substrate in ("virtual", "containerlab")]
        return [duckdb.sql(f"SELECT {columns} FROM '{run}' ORDER BY ALL").fetchall() for run in runs]

    virtual, containers = rows(
        "flows", "flow, src_port, dst_port, status, received_bytes, segments_sent, segments_received, retransmits"
    )
    probed = [[row[3:] for row in rows if row[0] > 1] for rows in (virtual, containers)]
    assert probed == [[("complete", 1280, 20, 20, 0)] * 2] * 2
    virtual, containers = virtual[:2], containers[:2]
    assert virtual == containers and [row[3] for row in virtual] == ["complete", "complete"]
    virtual, containers = rows("rates", "DISTINCT flow, rate_bps")
    assert virtual == containers == [(0, 5_000_000), (1, 5_000_000)]
    virtual, containers = rows("probes", "src, probe, dscp, lost, forward_ns, reverse_ns, rtt_ns")
    assert len(virtual) == 40 and [row[:4] for row in virtual] == [row[:4] for row in containers]
    shortest = 2 * (2_000_000 + (64 + 42) * 800)  # of two links, at 800 ns a byte
    for _, _, _, _, forward, back, rtt in containers:
        assert min(forward, back) > 0.99 * shortest and forward + back <= rtt
    virtual, containers = rows(
        "exchanges", "client, exchange, server, status, request_bytes, response_bytes, end_ns, latency_ns"
    )
    assert [row[:6] for row in virtual] == [row[:6] for row in containers]
    assert {row[3] for row in virtual} == {"complete"} and len(virtual) == 6
    shortest = sum(2 * (2_000_000 + (size + 66) * 800) for size in (100, 1000))
    assert all(row[7] > 0.99 * shortest for row in containers)
    ends = duckdb.sql(f"SELECT end_ns FROM '{tmp_path}/out/containerlab/exchanges.parquet'").fetchall()
    assert ends == sorted(ends), "exchanges of both agents are sorted by their end"


def test_a_killed_run_keeps_its_finished_cells_and_resumes(lab: Path, tmp_path: Path) -> None:
    arguments = ["run", str(lab), "--on", "containerlab", "--dilate", DILATION, "--out", "out", "--no-images"]
    process = subprocess.Popen(
        [sys.executable, "-m", "qbed", *arguments], cwd=tmp_path, env=environment(tmp_path), stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 90
    while not ((tmp_path / "out/cells/000000/cell.json").exists() and "qbed-t-run" in container_names()):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.1)
    streamed = qbed(tmp_path, "samples", "out")  # samples of the second cell, which is starting
    assert json.loads(streamed.stdout.splitlines()[0])["dilation"] == int(DILATION)
    process.send_signal(signal.SIGKILL)
    process.wait()
    time.sleep(0.5)  # the worker dies with its runner
    assert re.search(r"qbed-t-run-[0-9a-f]{8} .*a cell of `qbed run`", qbed(tmp_path, "ps").stdout)
    done = qbed(tmp_path, "down", "--all")
    assert done.returncode == 0, done.stderr
    assert leftovers("qbed-t-run", tmp_path) == []
    before = (tmp_path / "out/cells/000000/cell.json").stat().st_mtime_ns
    done = qbed(tmp_path, *arguments)
    assert done.returncode == 0 and "1 cells are finished already" in done.stderr, done.stderr
    assert (tmp_path / "out/cells/000000/cell.json").stat().st_mtime_ns == before
    assert qbed(tmp_path, *arguments[:5], "7", *arguments[6:]).returncode == 2  # another dilation is another run


def test_undilated_hosts_on_the_machines_kernel(lab: Path, tmp_path: Path) -> None:
    probes = "  - probes: {from: h1, to: h2, interval: 100 ms, stop: 2 s, dscp: EF}\n"
    (lab / "lab.yml").write_text(STAR.replace("NAME", "qbed-t-run").replace("observe", f"{probes}observe"))
    settings = ("--set", "hosts.default.kernel=host", "--set", "links.default.delay=50 ms", "--set", "duration=3 s")
    arguments = ("--on", "virtual,containerlab", "--dilate", "1", "--out", "out", "--no-images")
    done = qbed(tmp_path, "run", str(lab), *arguments, *settings)
    assert done.returncode == 0, done.stderr
    evidence = json.loads(
        duckdb.sql(f"SELECT evidence FROM '{tmp_path}/out/containerlab/cells.parquet'").fetchall()[0][0]
    )
    assert evidence["wall"]["host_kernel"] == ["h1", "h2"]
    probed = duckdb.sql(
        f"SELECT probe, forward_ns, reverse_ns FROM '{tmp_path}/out/containerlab/probes.parquet' ORDER BY ALL"
    )
    found = [row for row in probed.fetchall() if None not in row]
    assert len({probe for probe, _, _ in found}) >= 19 and min(min(delays) for _, *delays in found) > 0.99 * 100_000_000
    assert json.loads((tmp_path / "out/gap.json").read_text())["broken"] == 0
