# SPDX-License-Identifier: Apache-2.0
"""Campaign runs and running labs in guests; they need the toolchain (`make setup`)."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import duckdb
import pytest

from qbed.substrates.toolchain import ToolchainError, find_toolchain

try:
    find_toolchain()
    BUILT = True
except ToolchainError:
    BUILT = False

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(not BUILT, reason="the toolchain is not built: make setup")]
LAB = """\
name: e2e
topology: {dumbbell: {left: 2, right: 2}}
links: {default: {rate: 1 Gbit/s, delay: 5 us}}
switches: {default: {scheme: droptail, buffer: 64 KB}}
hosts: {default: {tcp: reno, rto_min: 10 ms}}
workload:
  - flows: {pairs: [[h1, h3], [h2, h4]], size: 1 MB, spread: 50 us, label: bulk}
observe: {queues: 100 us, flows: 1 ms}
duration: 50 ms
"""
CAMPAIGN = """\
question: Are the results exact?
axes:
  buffer: {field: switches.default.buffer, values: [32 KB, 128 KB]}
  seed: [1, 2]
"""


def qbed(folder: Path, *arguments: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(folder / "state")}
    command = [sys.executable, "-m", "qbed", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=timeout)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / "lab.yml").write_text(LAB)
    (tmp_path / "lab" / "campaign.yml").write_text(CAMPAIGN)
    return tmp_path


def hashes(run: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(run.glob("*.parquet"))}


def test_two_runs_are_equal_files_even_on_a_busy_machine(folder: Path) -> None:
    assert (done := qbed(folder, "run", "lab", "--out", "a", "--no-images")).returncode == 0, done.stderr
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in os.sched_getaffinity(0)]
    try:
        assert (done := qbed(folder, "run", "lab", "--out", "b", "--no-images")).returncode == 0, done.stderr
    finally:
        for process in busy:
            process.kill()
            process.wait()
    assert hashes(folder / "a") == hashes(folder / "b") and len(hashes(folder / "a")) == 5


def test_queues_and_flows_are_within_computed_bounds(folder: Path) -> None:
    assert (done := qbed(folder, "run", "lab", "--out", "a", "--no-images")).returncode == 0, done.stderr
    assert duckdb.sql(f"SELECT DISTINCT status FROM '{folder}/a/cells.parquet'").fetchall() == [("complete",)]
    longest = duckdb.sql(
        f"SELECT arg_max(port, packet_ns) FROM '{folder}/a/queues.parquet' WHERE role = 'switch' GROUP BY cell"
    )
    assert set(longest.fetchall()) == {("s1>s2",)}
    slowdown = duckdb.sql(f"SELECT min(slowdown), count(*) FROM '{folder}/a/flows.parquet'").fetchall()[0]
    assert slowdown[0] >= 1 and slowdown[1] == 8
    overflow = duckdb.sql(
        f"SELECT max(max_bytes) <= 128000 FROM '{folder}/a/queues.parquet' WHERE role = 'switch'"
    ).fetchall()
    assert overflow == [(True,)]
    sums = duckdb.sql(
        f"""SELECT bool_and(s.byte_ns = q.byte_ns) FROM '{folder}/a/queues.parquet' q
        JOIN (SELECT cell, queue, sum(byte_ns) AS byte_ns FROM '{folder}/a/queue_series.parquet' GROUP BY ALL) s
        USING (cell, queue)"""
    ).fetchall()
    assert sums == [(True,)], "the series and the summary of a queue are equal"


@pytest.mark.parametrize("parts", [1, 2])
def test_a_killed_runner_ends_its_guests(folder: Path, parts: int) -> None:
    environment = {**os.environ}
    command = [sys.executable, "-m", "qbed", "run", "lab", "--out", "a", "--set", "duration=1000 s"]
    command += ["--set", "workload[0].flows.size=unlimited", "--set", f"parts={parts}"]
    runner = subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 30
    while len(guests_in(folder)) < parts and time.monotonic() < deadline:
        time.sleep(0.1)
    assert len(guests_in(folder)) >= parts
    runner.send_signal(signal.SIGKILL)
    runner.communicate()
    while guests_in(folder) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert guests_in(folder) == []


def guests_in(folder: Path) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if str((entry / "cwd").readlink()).startswith(f"{folder}/a/cells"):
                    found.append(entry.name)
            except OSError:
                continue
    return found


def test_lab_time_stops_between_commands(folder: Path) -> None:
    assert (done := qbed(folder, "up", "lab")).returncode == 0, done.stderr
    try:
        ping = qbed(folder, "exec", "e2e", "h1", "--", "ping", "-c", "2", "h3")
        assert ping.returncode == 0 and "2 received" in ping.stdout
        failing = qbed(folder, "exec", "e2e", "h1", "--", "sh", "-c", "echo out; echo err >&2; exit 7")
        assert (failing.returncode, failing.stdout, failing.stderr) == (7, "out\n", "err\n")
        clock = qbed(folder, "advance", "e2e", "1 ms").stdout
        time.sleep(0.3)
        later = qbed(folder, "advance", "lab", "1 ms").stdout
        assert round((float(later.split()[2]) - float(clock.split()[2])) * 1e9) == 1_000_000
        again = qbed(folder, "up", "lab")
        assert again.returncode == 1 and "is up already" in again.stderr
        unknown = qbed(folder, "exec", "e2e", "h9", "--", "true")
        assert unknown.returncode == 1 and "the lab e2e has no node `h9`; expected one of `h1`, `h2`" in unknown.stderr
        assert "the lab e2 is not up; did you mean `e2e`?" in qbed(folder, "advance", "e2", "1 ms").stderr
    finally:
        assert qbed(folder, "down", "e2e").returncode == 0
    assert "e2e" not in qbed(folder, "ps").stdout


def test_all_commands_count_from_the_labs_epoch(folder: Path) -> None:
    """`ps`, `advance` and `samples` count from the lab's epoch, the end of the set-up."""

    def shown() -> float:
        return float(re.search(r"([\d.]+) s ", qbed(folder, "ps").stdout).group(1))  # type: ignore[union-attr]

    assert (done := qbed(folder, "up", "lab")).returncode == 0, done.stderr
    try:
        assert shown() == 0
        assert qbed(folder, "advance", "e2e", "3 ms").stdout == "virtual time: 0.003000000 s\n"
        assert shown() == 0.003
        ping = qbed(folder, "exec", "e2e", "h1", "--", "ping", "-q", "-c", "4000", "-i", "0.0001", "h3")
        assert ping.returncode == 0, ping.stdout  # enough packets to flush the taps' buffers
        rows = [json.loads(line) for line in qbed(folder, "samples", "e2e").stdout.splitlines()]
        assert rows[0]["unit"] == "ns since the lab's epoch"
        times = {row["time_ns"] for row in rows[1:]}
        assert min(times) == 100_000 and 0.05 < max(times) / 1e9 <= shown() < 2
    finally:
        assert qbed(folder, "down", "e2e").returncode == 0


def test_an_interrupted_command_and_a_killed_keeper_leave_no_process(folder: Path) -> None:
    assert (done := qbed(folder, "up", "lab")).returncode == 0, done.stderr
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(folder / "state")}
    command = [sys.executable, "-m", "qbed", "exec", "e2e", "h1", "--", "ping", "10.0.0.5"]
    ping = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    assert ping.stdout is not None and "PING" in ping.stdout.readline()
    ping.send_signal(signal.SIGINT)
    rest, _ = ping.communicate(timeout=30)
    assert ping.returncode == 130 and "ping statistics" in rest
    row = qbed(folder, "ps").stdout.splitlines()[1].split()
    assert row[0] == "e2e" and "-" in row
    os.kill(int(row[1]), signal.SIGKILL)
    time.sleep(0.5)
    refused = qbed(folder, "exec", "e2e", "h1", "--", "true")
    assert refused.returncode == 1 and "is not up" in refused.stderr
    assert (done := qbed(folder, "up", "lab")).returncode == 0, done.stderr
    pending = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert pending.stdout is not None and "PING" in pending.stdout.readline()
    assert qbed(folder, "down", "--all").returncode == 0
    _, reason = pending.communicate(timeout=30)
    assert pending.returncode == 1 and "the lab was taken down by `qbed down` (" in reason


def test_doctor_boots_a_guest(folder: Path) -> None:
    done = qbed(folder, "doctor")
    assert "boots" in done.stdout
