# SPDX-License-Identifier: Apache-2.0
"""Commands in a running lab: shell, capture, standard input, background programs, workload and samples."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from qbed_testing.pcap import read_pcap
from qbed_testing.terminal import COMMAND_RUNS, open_terminal

LAB = """
name: look
topology: {dumbbell: {left: 2, right: 2}}
links: {default: {rate: 1 Gbit/s, delay: 100 us}}
switches: {default: {scheme: droptail, buffer: 64 KB}, s2: {scheme: ecn, threshold: 20 packets}}
hosts: {default: {tcp: cubic}}
workload: [flow: {from: h1, to: h3, size: 100 KB}]
observe: {queues: 10 ms, ports: {"s1>s2": every packet}, flows: 500 us}
duration: 1 s
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path_factory.mktemp("state"))}


def qbed(environment: dict[str, str], *arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "qbed", *arguments]
    return subprocess.run(command, env=environment, input=stdin, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def lab(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A running lab with another name (`--name`) and its workload (`--workload`)."""
    folder = tmp_path_factory.mktemp("look")
    (folder / "lab.yml").write_text(LAB)
    done = qbed(environment, "up", str(folder), "--name", "mine", "--workload")
    assert done.returncode == 0, done.stderr
    yield folder
    assert qbed(environment, "down", "mine").returncode == 0


def clock(environment: dict[str, str]) -> float:
    found = re.search(r"^mine .*?([\d.]+) s ", qbed(environment, "ps").stdout, re.MULTILINE)
    assert found is not None
    return float(found[1])


def test_lab_time_stops_when_a_command_ends(lab: Path, environment: dict[str, str]) -> None:
    before = clock(environment)
    assert qbed(environment, "exec", "mine", "h2", "--", "sleep", "0.5").returncode == 0
    assert 0.5 <= clock(environment) - before < 0.502


def test_a_command_reads_standard_input_with_i(lab: Path, environment: dict[str, str]) -> None:
    done = qbed(environment, "exec", "mine", "h1", "-i", "--", "wc", "-c", stdin="x" * 100_000)
    assert (done.returncode, done.stdout) == (0, "100000\n")
    assert qbed(environment, "exec", "mine", "h1", "--", "wc", "-c", stdin="unread").stdout == "0\n"


def test_a_shell_keeps_its_folder_and_variables(lab: Path, environment: dict[str, str]) -> None:
    lines = "cd /usr/bin\nexport NAME='a b'\n\npwd; echo \"$NAME\"\nfalse\necho $?$?; (exit 5)\n"
    done = qbed(environment, "shell", "mine", "h1", stdin=lines)
    assert (done.returncode, done.stdout, done.stderr) == (5, "/usr/bin\na b\n00\n", "")
    assert qbed(environment, "shell", "mine", "h1", stdin="true\nexit\nfalse\n").returncode == 0
    assert "has no node `h9`" in qbed(environment, "shell", "mine", "h9", stdin="true\n").stderr


def test_background_programs_are_listed_and_killed(lab: Path, environment: dict[str, str]) -> None:
    qbed(environment, "exec", "mine", "h3", "-d", "--", "sleep", "1000")
    (row,) = qbed(environment, "ps", "mine").stdout.splitlines()[1:]
    number, node, *_, command, argument = row.split()
    assert (number, node, command, argument) == ("1", "h3", "sleep", "1000")
    assert qbed(environment, "kill", "mine", number).returncode == 0
    assert len(qbed(environment, "ps", "mine").stdout.splitlines()) == 1
    again = qbed(environment, "kill", "mine", number)
    assert again.returncode == 1
    assert again.stderr == f"error: no job {number} runs in the background; `qbed ps LAB` lists them\n"


def test_a_capture_has_the_packets_of_commands_and_workload(lab: Path, environment: dict[str, str]) -> None:
    assert "leads `s1>s3`; did you mean" in qbed(environment, "capture", "mine", "s1>s3", "--out", "x").stderr
    file = lab / "packets.pcap"
    command = [sys.executable, "-m", "qbed", "capture", "mine", "s1>s2", "--out", str(file)]
    capture = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    assert capture.stderr is not None and "capturing at s1>s2" in capture.stderr.readline()
    assert qbed(environment, "exec", "mine", "h1", "--", "ping", "-c", "3", "-i", "0.01", "h3").returncode == 0
    assert qbed(environment, "advance", "mine", "1500 ms").returncode == 0
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and (not file.exists() or file.stat().st_size < 100_000):
        time.sleep(0.05)
    capture.send_signal(signal.SIGINT)
    capture.communicate(timeout=60)
    assert capture.returncode == 0
    protocols = [packet.data[23] for packet in read_pcap(file)]
    assert protocols.count(1) == 6 and protocols.count(6) > 100_000 / 1448
    assert len(qbed(environment, "ps", "mine").stdout.splitlines()) == 1


def test_a_capture_that_gets_sigterm_ends_its_tcpdump(lab: Path, environment: dict[str, str]) -> None:
    file = lab / "ended.pcap"
    command = [sys.executable, "-m", "qbed", "capture", "mine", "h1>s1", "--out", str(file)]
    capture = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    assert capture.stderr is not None and "capturing at h1>s1" in capture.stderr.readline()
    assert "tcpdump" in qbed(environment, "ps", "mine").stdout
    capture.send_signal(signal.SIGTERM)
    capture.communicate(timeout=60)
    assert capture.returncode == 0
    assert len(qbed(environment, "ps", "mine").stdout.splitlines()) == 1


PROMPT = r"h2 (\d+\.\d{6}) s / \$ "


def test_a_shell_on_a_terminal_is_interactive(lab: Path, environment: dict[str, str]) -> None:
    with open_terminal(environment, "shell", "mine", "h2") as user:
        begun = float(user.expect(PROMPT)[1])
        assert abs(begun - clock(environment)) < 0.001
        user.send_keys("echo $TERM; stty sixe\x7f\x7fze\r")  # edits the line
        user.expect("xterm\r\n30 100\r\n")
        user.expect(PROMPT)
        user.resize(50, 132)
        user.send_keys("ping -c 1 h3; sleep 1; stty size\r")
        user.expect("1 received(?s:.*)\n50 132\r\n")
        passed = float(user.expect(PROMPT)[1]) - begun
        assert 1.0 < passed < 1.01
        user.send_keys("cat >/mnt/typed\r")
        user.expect(COMMAND_RUNS)
        user.send_keys("one\rtwo\r\x04")
        user.expect(PROMPT)
        assert (lab_folder(environment) / "typed").read_text() == "one\ntwo\n"
        user.send_keys("sleep 1000000000\r")
        user.expect(COMMAND_RUNS)
        user.send_keys("\x03")  # Ctrl-C ends the command, not the shell
        user.expect(PROMPT)
        before = clock(environment)
        user.send_keys("false\rexit 3\r")
        assert user.wait() == 3
        assert clock(environment) - before < 0.01


def test_a_program_that_reads_keys_runs_in_wall_clock_time(lab: Path, environment: dict[str, str]) -> None:
    before = clock(environment)
    script = "stty -icanon; read -t 1 -n 1 || echo late; read -n 1; echo [$REPLY]"
    with open_terminal(environment, "exec", "-t", "mine", "h2", "--", "bash", "-c", script) as user:
        user.expect("late")
        user.send_keys("x")
        user.expect(r"\[x\]")
        assert user.wait() == 0
    assert clock(environment) - before >= 1.0
    piped = qbed(environment, "exec", "-t", "mine", "h2", "--", "true", stdin="")
    assert piped.returncode == 2 and "there is no terminal here; -i gives it what comes by a pipe" in piped.stderr


@pytest.mark.parametrize("ignore_hangup", [False, True])
def test_closing_a_terminal_ends_its_shell(lab: Path, environment: dict[str, str], ignore_hangup: bool) -> None:
    with open_terminal(environment, "shell", "mine", "h1", ignore_hangup=ignore_hangup) as user:
        user.expect(r"\$ ")
    user.wait()
    deadline = time.monotonic() + 60
    while "bash" in qbed(environment, "exec", "mine", "h1", "--", "ps", "-e").stdout:
        assert time.monotonic() < deadline


def test_tc_on_a_node_shows_schemes(lab: Path, environment: dict[str, str]) -> None:
    done = qbed(environment, "exec", "mine", "s2", "--", "tc", "-j", "-s", "qdisc", "show", "dev", "eth0")
    (queue,) = json.loads(done.stdout)
    assert queue["kind"] == "ecn" and queue["options"]["threshold_packets"] == 20
    assert queue["unmarked"] == 0


def test_samples_continue_in_an_idle_lab_and_have_every_packet(lab: Path, environment: dict[str, str]) -> None:
    seen: list[dict[str, Any]] = []

    def new_rows() -> list[dict[str, Any]]:
        rows = [json.loads(line) for line in qbed(environment, "samples", "mine").stdout.splitlines()[1:]]
        known = len(seen)
        assert rows[:known] == seen
        seen[:] = rows
        return rows[known:]

    assert qbed(environment, "advance", "mine", "1 s").returncode == 0
    assert [row for row in new_rows() if row["sample"] == "flow"]
    assert qbed(environment, "advance", "mine", "100 ms").returncode == 0
    idle = [row for row in new_rows() if row.get("port") == "s2>s1"]
    assert len(idle) == 10 and {row["enqueued"] for row in idle} == {0} and len({r["time_ns"] for r in idle}) == 10
    assert qbed(environment, "exec", "mine", "h1", "--", "ping", "-c", "2", "-i", "0.01", "h3").returncode == 0
    packets = [row for row in new_rows() if row["sample"] == "packet"]
    assert [(row["port"], row["op"], row["bytes"]) for row in packets] == [
        ("s1>s2", op, 98) for _ in range(2) for op in ("enqueue", "dequeue")
    ]
    assert qbed(environment, "exec", "mine", "h1", "--", "sleep", "0.0999").returncode == 0
    assert {row["sample"] for row in new_rows()} >= {"queue"}


def test_time_does_not_advance_for_a_program_that_listens(lab: Path, environment: dict[str, str]) -> None:
    waits = "mkfifo /tmp/never; read line </tmp/never"
    command = [sys.executable, "-m", "qbed", "exec", "mine", "h4", "-l", "--", "sh", "-c", waits]
    before = clock(environment)
    listening = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        wait_until_it_runs(environment, "h4: sh")
        time.sleep(0.5)
        assert clock(environment) - before <= 0.001
    finally:
        listening.send_signal(signal.SIGINT)
        listening.communicate(timeout=60)
    assert "-l is for neither -d nor -t" in qbed(environment, "exec", "mine", "h4", "-l", "-d", "--", "true").stderr


def wait_until_it_runs(environment: dict[str, str], what: str) -> None:
    deadline = time.monotonic() + 30
    while what not in qbed(environment, "ps").stdout:
        assert time.monotonic() < deadline


def test_the_pace_of_a_lab_is_set_and_shown(lab: Path, environment: dict[str, str]) -> None:
    assert qbed(environment, "pace", "mine", "manual").stdout == "mine: manual\n"
    assert re.search(r"^mine .* manual +virtual ", qbed(environment, "ps").stdout, re.MULTILINE)
    before = clock(environment)
    assert qbed(environment, "exec", "mine", "h1", "--", "echo", "a").stdout == "a\n"
    command = [sys.executable, "-m", "qbed", "exec", "mine", "h1", "--", "sleep", "0.5"]
    with subprocess.Popen(command, env=environment) as sleeping:
        wait_until_it_runs(environment, "h1: sleep")
        time.sleep(0.5)
        assert sleeping.poll() is None
        assert clock(environment) - before <= 0.001
        assert qbed(environment, "advance", "mine", "600 ms").returncode == 0
    assert sleeping.returncode == 0
    assert qbed(environment, "pace", "mine", "real").returncode == 0
    begin = time.monotonic()
    assert qbed(environment, "exec", "mine", "h1", "--", "sleep", "1.5").returncode == 0
    assert time.monotonic() - begin >= 1.4, "faster than real time"
    assert qbed(environment, "pace", "mine", "fast").stdout == "mine: fast\n"
    wrong = qbed(environment, "pace", "mine", "rael")
    assert wrong.returncode == 2
    assert "expected fast, real or manual, not rael; did you mean `real`?" in wrong.stderr


def test_links_are_changed_listed_and_restored(lab: Path, environment: dict[str, str]) -> None:
    def round_trip_ms() -> float:
        ping = qbed(environment, "exec", "mine", "h2", "--", "ping", "-c", "1", "-W", "1", "h4").stdout
        found = re.search(r"time=([\d.]+) ms", ping)
        return float(found[1]) if found else 0

    planned = round_trip_ms()
    assert 0.6 < planned < 0.7
    before = clock(environment)
    changed = qbed(environment, "set", "mine", "s1-s2", "delay=20ms", "rate=50mbit")
    assert changed.stdout.endswith("s: s1-s2 delay=20ms rate=50mbit\n"), changed.stderr
    assert clock(environment) == before
    assert 40.3 < round_trip_ms() < 40.5
    assert qbed(environment, "set", "mine", "s1>s2", "loss=100%").returncode == 0
    assert round_trip_ms() == 0
    listed = [line.partition(": ")[2] for line in qbed(environment, "set", "mine").stdout.splitlines()]
    assert listed == ["s1-s2 delay=20ms rate=50mbit", "s1>s2 loss=100%"]
    inspected = qbed(environment, "inspect", str(lab)).stdout.splitlines()[-2:]
    assert inspected == [f"changed by `qbed set` in mine: {text}" for text in listed]
    assert qbed(environment, "set", "mine", "--undo").stdout == "undone: s1>s2 loss=100%\n"
    assert 40.3 < round_trip_ms() < 40.5
    assert qbed(environment, "set", "mine", "s1-s2", "state=down").returncode == 0
    assert round_trip_ms() == 0
    for _ in range(2):
        assert qbed(environment, "set", "mine", "--undo").returncode == 0
    assert abs(round_trip_ms() - planned) < 0.01
    empty = qbed(environment, "set", "mine", "--undo")
    assert (empty.returncode, empty.stderr) == (1, "error: no link of mine was changed by `qbed set`\n")
    wrong = qbed(environment, "set", "mine", "s1-s2", "rat=1mbit")
    assert wrong.returncode == 2 and "did you mean `rate`?" in wrong.stderr


def lab_folder(environment: dict[str, str]) -> Path:
    return Path(environment["XDG_RUNTIME_DIR"]) / "qbed" / "mine" / "cell"
