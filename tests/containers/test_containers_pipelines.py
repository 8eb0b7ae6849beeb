# SPDX-License-Identifier: Apache-2.0
"""P4 switches in containers: results like in virtual time, and failures of interfaces and programs."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import duckdb
import pytest

from qbed.base.locations import schemes_folder

from qbed_testing.container_labs import STAR, docker, environment, leftovers, qbed, write_lab

NAME = "qbed-t-p4"
LABS = Path(__file__).parents[2] / "labs"
MIXED = """\
name: NAME
topology: {dumbbell: {left: 2, right: 1}}
links: {default: {rate: 20 Mbit/s, delay: 2 ms}}
switches:
  default: {scheme: stamp, buffer: 100 packets}
  s1: {kind: bmv2}
hosts: {default: {controller: {name: timely, signal: sum, bits: 8}}}
workload:
  - incast: {senders: 2, receiver: h3, size: 40 KB, transport: rate}
observe: {queues: 10 ms, flows: 10 ms}
duration: 150 ms
"""
CAMPAIGN = """\
question: Does a P4 switch give the same results on the wall clock, beside a Linux switch?
axes: {seed: [1]}
claims:
  - name: complete
    paper: Every flow completes.
    random: no
    sql: SELECT bool_and(status = 'complete') AS holds, count(*) AS flows FROM flows
  - name: stamped
    paper: Both kinds of switch stamp all 58 data packets on their way to the receiver.
    random: no
    sql: |
      SELECT bool_and(xstats['stamped'] = 58) AS holds, list(xstats['stamped']) AS stamped FROM queues
      WHERE port IN ('s1>s2', 's2>h3')
gap: {goodput_bps: 10 %, fct_mean_ns: 10 %, flows_complete: 0, queue_mean_packets: 15 % or 0.5, dropped_packets: 0}
"""
SCHEME_PER_SWITCH = """\
name: NAME
topology:
  explicit:
    nodes: {h1..h4: host, s1..s3: switch}
    links:
      - {ends: [h1..h2, s1]}
      - {ends: [s1, s2], rate: 15 Mbit/s}
      - {ends: [s2, s3], rate: 10 Mbit/s}
      - {ends: [s3, h3..h4], rate: 6 Mbit/s}
links: {default: {rate: 20 Mbit/s, delay: 1 ms}}
switches:
  default: {kind: bmv2, buffer: 100 packets}
  s1: {scheme: qcn, min_sampling: 100 %, max_sampling: 100 %, equilibrium: 5 packets}
  s2: {scheme: abq, threshold: 5 packets}
  s3:
    program: ./young.p4
    tables: {marking: [{match: {port: ">h4"}, action: mark_above, params: {packets: 0, young_packets: 0, idle_us: 1}}]}
    initial: {sent: {0..255: 100}}
    clones: {1: {ports: [">h3"], truncate: 64 B}}
    groups: {1: [">h3", ">h4"]}
hosts: {default: {tcp: dctcp, controller: {name: reaction_point, min_rate: 1 Mbit/s}}}
workload:
  - flow: {from: h1, to: h3, size: 60 KB, transport: rate}
  - flow: {from: h2, to: h4, size: 60 KB}
observe: {queues: 10 ms, flows: 10 ms}
duration: 180 ms
"""


def rows(query: str) -> list[Any]:
    return duckdb.sql(query).fetchall()


@pytest.fixture
def lab(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    request.addfinalizer(lambda: qbed(tmp_path, "down", "--all"))
    folder = write_lab(tmp_path, NAME, MIXED)
    (folder / "campaign.yml").write_text(CAMPAIGN)
    return folder


def test_a_p4_switch_gives_equal_results_in_containers_and_virtual_time(lab: Path, tmp_path: Path) -> None:
    arguments = ("--on", "virtual,containerlab", "--dilate", "20", "--out", "out", "--no-images")
    done = qbed(tmp_path, "run", str(lab), *arguments)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "out/gap.json").read_text())["broken"] == 0
    columns = "node, p4_program, sent_packets, parser_errors, drops"
    virtual, containers = (
        duckdb.sql(f"SELECT {columns} FROM '{tmp_path}/out/{substrate}/switches.parquet'").fetchall()
        for substrate in ("virtual", "containerlab")
    )
    assert virtual == containers and [row[:2] for row in virtual] == [("s1", "stamp")]
    assert virtual[0][2] > 100
    longest = duckdb.sql(
        f"SELECT max(max_packets) FROM '{tmp_path}/out/containerlab/queue_series.parquet' WHERE port = 's1>s2'"
    ).fetchone()
    assert longest is not None and longest[0] > 5
    assert leftovers(NAME, tmp_path) == []


def test_recirculation_and_a_user_supplied_program_work_in_containers(lab: Path, tmp_path: Path) -> None:
    """qcn's feedback and abq's held ACKs are recirculated; the lab file sets the tables of the third switch."""
    for suffix in ("json", "p4info.txtpb"):
        shutil.copy(LABS / "young-flows" / f"young.{suffix}", lab)
    (lab / "lab.yml").write_text(SCHEME_PER_SWITCH.replace("NAME", NAME))
    (lab / "campaign.yml").write_text("question: Are the results equal?\ngap: {flows_complete: 0}\n")
    arguments = ("--on", "virtual,containerlab", "--dilate", "20", "--out", "out", "--no-images")
    done = qbed(tmp_path, "run", str(lab), *arguments)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "out/gap.json").read_text())["broken"] == 0
    for run in ("virtual", "containerlab"):
        folder = tmp_path / "out" / run
        columns = "node, p4_program, recirculated_packets, parser_errors, cardinality(drops)"
        switches = {row[0]: row[1:] for row in rows(f"SELECT {columns} FROM '{folder}/switches.parquet'")}
        queues = {
            row[0]: row[1:] for row in rows(f"SELECT port, xstats, marked_packets FROM '{folder}/queues.parquet'")
        }
        assert [row[0] for row in switches.values()] == ["qcn", "abq", "young"]
        assert all(row[2:] == (0, 0) for row in switches.values())
        # 7 in virtual time; 5 or 6 in containers, where the switch's timing decides on the last ones
        least = 6 if run == "virtual" else 3
        assert switches["s1"][1] == queues["s1>s2"][0]["reflected"] >= least
        held = queues["s2>s3"][0]
        assert held["released"] == held["holds"] > 0 and switches["s2"][1] > 10 * held["holds"]
        assert queues["s3>h4"][1] > 0  # at more than 0 packets; the program's own threshold is 20
    assert leftovers(NAME, tmp_path) == []


def test_a_cell_fails_if_a_switch_loses_an_interface(lab: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "qbed", "run", str(lab), "--on", "containerlab", "--dilate", "200", "--no-images"]
    with subprocess.Popen(
        [*command, "--out", "out"], cwd=tmp_path, env=environment(tmp_path), stderr=subprocess.PIPE, text=True
    ) as run:
        deadline = time.monotonic() + 60
        while not list(tmp_path.glob("out/**/nodes/s1/console.log")):
            assert time.monotonic() < deadline and run.poll() is None
            time.sleep(0.1)
        (container,) = docker("ps", "--filter", "label=clab-node-name=s1", "--format", "{{.Names}}").split()
        docker("exec", container, "ip", "link", "delete", "eth1")
        assert run.stderr is not None
        stderr = run.stderr.read()
        assert run.wait(60) == 1, stderr
    # Either end of the link reports it first.
    assert " of link h2-s1 was removed" in stderr and "Traceback" not in stderr, stderr
    assert leftovers(NAME, tmp_path) == []


def test_a_program_that_cannot_be_compiled_is_reported(lab: Path, tmp_path: Path) -> None:
    for suffix in ("json", "p4info.txtpb"):
        shutil.copy(schemes_folder() / "droptail" / "p4" / f"droptail.{suffix}", lab / f"mine.{suffix}")
    text = (lab / "mine.json").read_text()
    (lab / "mine.json").write_text(text.replace('"mark_to_drop"', '"mark_to_keep"'))
    (lab / "lab.yml").write_text(STAR.replace("NAME", NAME).replace("scheme: droptail", "program: ./mine.p4"))
    done = qbed(tmp_path, "up", str(lab), "--on", "containerlab", "--dilate", "5")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    message = "program mine: actions[5] no_next_hop: primitive 0 mark_to_keep: not a primitive of v1model"
    assert f"error: {message}" in done.stderr
    assert leftovers(NAME, tmp_path) == []
