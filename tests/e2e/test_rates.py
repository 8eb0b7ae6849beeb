# SPDX-License-Identifier: Apache-2.0
"""A campaign with axes of rate controllers, and claims and figures over their rates."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

pytestmark = pytest.mark.e2e
LAB = """\
name: rates
topology: {dumbbell: {left: 2, right: 2}}
links: {default: {rate: 10 Gbit/s, delay: 5 us}}
switches: {default: {scheme: droptail, buffer: 50 packets}}
hosts: {default: {controller: {name: fixed, rate: 1 Gbit/s, signal: max}}}
workload:
  - flows: {pairs: [[h1, h3], [h2, h4]], size: 2 MB, transport: rate}
observe: {queues: 100 us, flows: 100 us}
duration: 15 ms
"""
CAMPAIGN = """\
question: Do two paced flows share a link?
axes:
  rate: {field: hosts.default.controller.rate, values: [2 Gbit/s, 4 Gbit/s, 8 Gbit/s]}
  unit: {field: hosts.default.controller.unit, values: [packets, time]}
claims:
  - name: paced
    paper: A flow below its share has the configured rate, of which 1384 of 1500 bytes are payload.
    source: none
    random: no
    sql: |
      WITH flow AS (
        SELECT goodput_bps * 1500 / 1384 / 1e9 AS gbps, regexp_extract(rate, '[0-9]+')::INT AS rate_gbps FROM flows)
      SELECT count(*) = 8 AND max(abs(gbps / rate_gbps - 1)) < 0.03 AS holds, max(gbps) AS maximum FROM flow
      WHERE rate_gbps < 8
  - name: sampled
    paper: Samples have the configured rate.
    source: none
    random: no
    sql: |
      SELECT count(DISTINCT rate_bps) = 3 AND count(*) > 200
        AND bool_and(rate_bps = 1e9 * regexp_extract(rate, '[0-9]+')::INT) AS holds, count(*) AS rows FROM rates
  - name: repaired
    paper: Packets that exceed the buffer are dropped and retransmitted.
    source: none
    random: no
    sql: |
      SELECT bool_and((dropped_packets > 0) = (rate = '8 Gbit/s')) AND bool_and(flows_complete = 2)
        AND bool_and(retransmits >= dropped_packets) AS holds, max(dropped_packets) AS drops FROM cells
figures:
  - {kind: queue, queue: s1>s2, title: Queue of the bottleneck}
  - kind: line
    name: rates
    title: Rates of controllers
    x_title: time (ms)
    y_title: rate (Gbit/s)
    sql: |
      SELECT time_ns / 1e6 AS x, 'flow ' || flow || ' at ' || rate AS series, rate_bps / 1e9 AS y FROM rates
      ORDER BY series, x
  - {kind: goodput}
"""


def test_axes_claims_and_figures_of_rate_controllers(tmp_path: Path) -> None:
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / "lab.yml").write_text(LAB)
    (tmp_path / "lab" / "campaign.yml").write_text(CAMPAIGN)
    command = [sys.executable, "-m", "qbed", "run", "lab", "--out", "run"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    run = tmp_path / "run"
    verdicts = {claim["name"]: claim["verdict"] for claim in json.loads((run / "claims.json").read_text())}
    assert verdicts == dict.fromkeys(("paced", "sampled", "repaired"), "holds")
    cells = duckdb.sql(f"SELECT status, contradictions FROM '{run}/cells.parquet'").fetchall()
    assert cells == [("complete", [])] * 6
    assert {path.name for path in (run / "figures").glob("*.png")} >= {"rates.png"}
    assert "Rates of controllers" in (run / "report.html").read_text()
