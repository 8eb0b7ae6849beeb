# SPDX-License-Identifier: Apache-2.0
"""BMv2 as the engine of a switch in containers: results like p4switch's, and one message for each failure.

The image is public and not built here: `docker pull` gets it, and QBED_IMAGES (`bmv2=NAME`) names another one.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import duckdb
import pytest

from qbed.base.locations import schemes_folder
from qbed.substrates.containers import bmv2
from qbed.substrates.containers.engine import Engine
from qbed.substrates.containers.images import images

from qbed_testing.container_labs import docker, environment, leftovers, qbed, write_lab

NAME = "qbed-t-bmv2"
LAB = """\
name: NAME
topology: {star: {hosts: 3}}
links: {default: {rate: 20 Mbit/s, delay: 2 ms}}
switches: {default: {kind: bmv2, scheme: stamp, buffer: 100 packets, engine: simple_switch_grpc}}
hosts: {default: {controller: {name: timely, signal: sum, bits: 8}}}
workload:
  - incast: {senders: 2, receiver: h3, size: 100 KB, transport: rate}
observe: {queues: 10 ms, flows: 10 ms}
duration: 200 ms
"""
CAMPAIGN = """\
question: Does BMv2 report the same queue lengths?
axes: {seed: [1]}
claims:
  - name: complete
    paper: Every flow completes.
    random: no
    sql: SELECT bool_and(status = 'complete') AS holds, count(*) AS flows FROM flows
  - name: queue
    paper: The queue length that the senders receive grows to about 36 packets.
    random: no
    sql: SELECT max(signal) BETWEEN 30 AND 40 AS holds, max(signal) AS packets FROM rates
gap: {goodput_bps: 10 %, fct_mean_ns: 10 %, flows_complete: 0}
"""


@pytest.fixture
def lab(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    request.addfinalizer(lambda: qbed(tmp_path, "down", "--all"))
    folder = write_lab(tmp_path, NAME, LAB)
    (folder / "campaign.yml").write_text(CAMPAIGN)
    return folder


@pytest.fixture
def image() -> str:
    """BMv2's image; the test is skipped if the machine does not have it."""
    name = images([bmv2.ROLE], build=False)[bmv2.ROLE]
    if not Engine().has_image(name):
        pytest.skip(f"there is no image of BMv2 here ({name})")
    return name


def use_invalid_program(lab: Path, renamed: tuple[str, ...] = ()) -> None:
    """Give the switch a program with an unknown primitive; the tables `renamed` get other names."""
    for suffix in ("json", "p4info.txtpb"):
        text = (schemes_folder() / "droptail" / "p4" / f"droptail.{suffix}").read_text()
        for table in renamed:
            text = text.replace(table, f"my_{table}")
        (lab / f"mine.{suffix}").write_text(text.replace('"mark_to_drop"', '"mark_to_keep"'))
    (lab / "lab.yml").write_text((lab / "lab.yml").read_text().replace("scheme: stamp", "program: ./mine.p4"))


def test_a_bmv2_switch_without_its_image_is_refused_with_the_remedy(
    lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QBED_IMAGES", f"{bmv2.ROLE}={(image := 'qbed-no-such:1')}")
    done = qbed(tmp_path, "up", str(lab), "--on", "containerlab", "--dilate", "1")
    assert (done.returncode, done.stdout) == (1, "")
    assert f"Docker has no image of BMv2: `docker pull {image}` brings it" in done.stderr
    assert leftovers(NAME, tmp_path) == []


@pytest.mark.usefixtures("image")
def test_bmv2_reports_the_same_queue_lengths(lab: Path, tmp_path: Path) -> None:
    arguments = ("--on", "virtual,containerlab", "--dilate", "20", "--out", "out", "--no-images")
    done = qbed(tmp_path, "run", str(lab), *arguments)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "out/gap.json").read_text())["broken"] == 0
    max_packets = [
        duckdb.sql(
            f"SELECT max_packets FROM '{tmp_path}/out/{substrate}/queues.parquet' WHERE port = 's1>h3'"
        ).fetchall()
        for substrate in ("virtual", "containerlab")
    ]
    assert max_packets[0][0][0] > 30 and max_packets[1][0][0] < 5  # BMv2's own queue is before the tap
    assert leftovers(NAME, tmp_path) == []


@pytest.mark.usefixtures("image")
@pytest.mark.parametrize("renamed", [(), ("ipv4_routes", "ipv6_routes", "next_hops")])
def test_a_program_that_bmv2_refuses_is_reported_with_the_reason(
    lab: Path, tmp_path: Path, renamed: tuple[str, ...]
) -> None:
    use_invalid_program(lab, renamed)
    done = qbed(tmp_path, "up", str(lab), "--on", "containerlab", "--dilate", "1")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "error: switch s1: BMv2 refuses the program mine or an entry of it: " in done.stderr, done.stderr
    assert "\n    | Unknown primitive action: mark_to_keep\n" in done.stderr, done.stderr
    assert leftovers(NAME, tmp_path) == []


@pytest.mark.usefixtures("image")
def test_a_cell_fails_if_bmv2_dies(lab: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "qbed", "run", str(lab), "--on", "containerlab", "--dilate", "200", "--no-images"]
    with subprocess.Popen(
        [*command, "--out", "out"], cwd=tmp_path, env=environment(tmp_path), stderr=subprocess.PIPE, text=True
    ) as run:
        deadline = time.monotonic() + 90
        while not list(tmp_path.glob("out/**/nodes/s1/p4runtime.sock")):
            assert time.monotonic() < deadline and run.poll() is None
            time.sleep(0.1)
        (container,) = docker("ps", "--filter", "label=clab-node-name=s1_bmv2", "--format", "{{.Names}}").split()
        docker("kill", container)
        assert run.stderr is not None
        stderr = run.stderr.read()
        assert run.wait(60) == 1, stderr
    # Before or after BMv2 received its program.
    assert re.search(r"switch s1: BMv2 |the container of s1_bmv2 has ended", stderr) and "Traceback" not in stderr, (
        stderr
    )
    assert leftovers(NAME, tmp_path) == []


@pytest.mark.usefixtures("image")
def test_a_running_lab_reports_that_bmv2_died(lab: Path, tmp_path: Path) -> None:
    text = (lab / "lab.yml").read_text().replace("scheme: stamp", "program: ./mine.p4")
    for suffix in ("json", "p4info.txtpb"):
        shutil.copy(schemes_folder() / "droptail" / "p4" / f"droptail.{suffix}", lab / f"mine.{suffix}")
    (lab / "lab.yml").write_text(text)
    done = qbed(tmp_path, "up", str(lab), "--on", "containerlab", "--dilate", "2")
    assert done.returncode == 0 and "s1: BMv2's clock is not dilated" in done.stderr, done.stderr
    assert "4 of 4 nodes " in qbed(tmp_path, "ps").stdout
    ping = qbed(tmp_path, "exec", NAME, "h1", "--", "ping", "-c", "2", "-i", "0.2", "h3")
    assert ping.returncode == 0 and " 0% packet loss" in ping.stdout, ping.stdout + ping.stderr
    docker("kill", f"clab-{NAME}-s1_bmv2")
    assert "4 of 4 nodes, s1_bmv2 has ended" in qbed(tmp_path, "ps").stdout
    assert qbed(tmp_path, "down", str(lab)).returncode == 0
    assert leftovers(NAME, tmp_path) == []
