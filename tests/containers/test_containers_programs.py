# SPDX-License-Identifier: Apache-2.0
"""Programs, windows, events, jitter and queue statistics in containers give results like in virtual time.

A running lab has its workload, jobs in the background and captures.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

from qbed_testing.container_labs import environment, qbed, write_lab

LAB = """\
name: NAME
topology: {star: {hosts: 3}}
links: {default: {rate: 20 Mbit/s, delay: 2 ms}, "s1>h2": {rate: 10 Mbit/s}, "h3>s1": {jitter: 6 ms, reordering: "on"}}
switches: {default: {qdisc: "fq_codel limit 100"}, "s1>h1": {scheme: ecn, buffer: 100 packets, threshold: 20 packets}}
hosts: {default: {tcp: cubic, kernel: qbed}}
workload:
  - flow: {from: h1, to: h2, size: unlimited, stop: 400 ms, label: bulk}
programs:
  - {on: h2, run: ./echo.py answer, start: before, stop: 420 ms, label: answers}
  - {on: h3, run: "./echo.py ask h2 --times {times}", arguments: {times: 20}, start: before, output: key=value,
     label: probe}
events:
  - {at: 200 ms, link: s1>h2, rate: 5 Mbit/s}
  - {at: 200 ms, queue: s1>h1, set: {threshold: 5 packets}}
  - {at: 300 ms, host: h1, tcp: reno}
observe:
  queues: 10 ms
  statistics: 10 ms
  windows: {before: {from: 50 ms, until: 200 ms}, behind: {from: 250 ms, until: 400 ms}}
duration: 450 ms
"""
ECHO = """\
#!/usr/bin/env python3
import os, socket, sys, time
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
if sys.argv[1] == "answer":
    sock.bind(("", 7007))
    while True:
        sock.sendto(*sock.recvfrom(2048))
sock.settimeout(0.1)
time.sleep(max(0, int(os.environ["QBED_EPOCH_NS"]) / 1e9 - time.monotonic()))
for number in range(int(sys.argv[4])):
    begin = time.monotonic()
    sock.sendto(b"%d" % number, (sys.argv[2], 7007))
    sock.recv(2048)
    print(f"number={number} rtt_ms={1e3 * (time.monotonic() - begin):.6f}", flush=True)
"""
Rows = Callable[[str], list[list[tuple[Any, ...]]]]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    folder = tmp_path_factory.mktemp("programs")
    request.addfinalizer(lambda: qbed(folder, "down", "--all"))
    found = write_lab(folder, "qbed-t-prog", LAB)
    (found / "echo.py").write_text(ECHO)
    return found


@pytest.fixture(scope="module")
def both(lab: Path) -> Rows:
    """A function that returns the rows of a SELECT for the run in virtual time and the run in containers."""
    out = lab.parent / "out"
    done = qbed(
        lab.parent, "run", str(lab), "--on", "virtual,containerlab", "--dilate", "50", "--out", "out", "--no-images",
        "--trust",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr

    def rows(select: str) -> list[list[tuple[Any, ...]]]:
        found = []
        for substrate in ("virtual", "containerlab"):
            with duckdb.connect() as connection:
                for table in (out / substrate).glob("*.parquet"):
                    connection.execute(f"CREATE VIEW {table.stem} AS SELECT * FROM '{table}'")
                found.append(connection.execute(select).fetchall())
        return found

    return rows


def test_the_output_of_programs_is_stored_in_a_table(both: Rows) -> None:
    virtual, containers = both("SELECT label, node, exit_status, stopped, records, stderr FROM programs ORDER BY 1")
    assert virtual == containers == [("answers", "h2", 143, True, 0, ""), ("probe", "h3", 0, False, 20, "")]
    for ((shortest, longest),) in both("SELECT min(numbers['rtt_ms']), max(numbers['rtt_ms']) FROM program_records"):
        assert 8 < shortest < 11 < longest < 60  # four times 2 ms, a jitter of 6 ms and queueing


def test_events_change_a_links_rate_and_a_hosts_congestion_control(both: Rows) -> None:
    for rows in both("SELECT span, goodput_bps / 1e6 FROM flow_windows WHERE label = 'bulk' ORDER BY span"):
        goodput: dict[str, float] = dict(rows)
        assert 8.5 < goodput["before"] < 9.7 and 4 < goodput["behind"] < 5.4, goodput
    virtual, containers = both("SELECT congestion_control FROM flows")
    assert virtual == containers == [("reno",)]


def test_windows_and_statistics_of_a_stock_qdisc(both: Rows) -> None:
    virtual, containers = both(
        "SELECT mean_packets, sent_bytes FROM queue_windows WHERE port = 's1>h2' AND span = 'before'"
    )
    assert containers[0] == pytest.approx(virtual[0], rel=0.3)
    virtual, containers = both("SELECT DISTINCT statistic FROM statistics WHERE port = 's1>h2' ORDER BY 1")
    assert virtual == containers and ("new_flow_count",) in containers
    for ((series, end),) in both(
        "SELECT (SELECT arg_max(value, time_ns) FROM statistics WHERE port = 's1>h2' AND statistic = 'new_flow_count'),"
        " xstats['new_flow_count'] FROM queues WHERE port = 's1>h2'"
    ):
        assert 0 < series <= end


@pytest.fixture
def up(lab: Path, request: pytest.FixtureRequest) -> Path:
    folder = lab.parent
    request.addfinalizer(lambda: qbed(folder, "down", "--all"))
    done = qbed(folder, "up", str(lab), "--on", "containerlab", "--dilate", "3", "--workload", "--trust")
    assert done.returncode == 0, done.stderr
    return folder


def test_a_running_lab_has_a_workload_jobs_and_captures(up: Path) -> None:
    name = "qbed-t-prog"
    for node in ("h1", "s1"):
        done = subprocess.run(
            [sys.executable, "-m", "qbed", "exec", name, node, "-i", "--", "cat"],
            cwd=up, env=environment(up), input="text\n", capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        assert (done.returncode, done.stdout) == (0, "text\n"), done.stderr
    commands = "export A=b; cd /etc\necho $A; pwd\n"
    shell = subprocess.run(
        [sys.executable, "-m", "qbed", "shell", name, "h1"],
        cwd=up, env=environment(up), input=commands, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert shell.stdout == "b\n/etc\n", shell.stderr
    started = [qbed(up, "exec", name, node, "-d", "--", "sleep", "1000") for node in ("h3", "s1")]
    assert [done.returncode for done in started] == [0, 0], started
    listed = qbed(up, "ps", name).stdout.splitlines()
    assert [line.split()[:2] for line in listed[1:]] == [["1", "h3"], ["2", "s1"]], listed
    assert qbed(up, "kill", name, "1").returncode == 0
    assert [line.split()[0] for line in qbed(up, "ps", name).stdout.splitlines()[1:]] == ["2"]
    assert f"no job 1 runs in the background of {name}" in qbed(up, "kill", name, "1").stderr
    captured = up / "packets.pcap"
    capture = subprocess.Popen(
        [sys.executable, "-m", "qbed", "capture", name, "h1>s1", "--out", str(captured)],
        cwd=up, env=environment(up), stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert capture.stderr is not None and "capturing at h1>s1" in capture.stderr.readline()
    assert qbed(up, "exec", name, "h1", "--", "ping", "-c", "2", "-i", "0.1", "h3").returncode == 0
    deadline = time.monotonic() + 20
    while captured.stat().st_size < 4 * 98 and time.monotonic() < deadline:
        time.sleep(0.1)
    capture.send_signal(signal.SIGINT)
    assert capture.wait(30) == 0
    assert captured.stat().st_size >= 4 * 98, "two echo requests and two replies"
    assert [line.split()[0] for line in qbed(up, "ps", name).stdout.splitlines()[1:]] == ["2"], "tcpdump has ended"
    links = json.loads(qbed(up, "exec", name, "h2", "--", "ip", "-j", "-s", "link", "show", "eth0").stdout)
    assert 300_000 < links[0]["stats64"]["rx"]["bytes"] < 500_000, "400 ms of the lab's own workload"
    done = qbed(up, "down", name)
    assert done.returncode == 0, done.stderr
