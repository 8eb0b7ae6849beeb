# SPDX-License-Identifier: Apache-2.0
"""A lab that is up, looked at: shell, capture, standard input, programs in the background, its own workload."""

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


def qbed(environment: dict[str, str], *arguments: str, said: str | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "qbed", *arguments]
    return subprocess.run(command, env=environment, input=said, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def lab(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A lab that is up, under another name than its own, with its workload to come."""
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


def test_time_stops_as_a_command_ends(lab: Path, environment: dict[str, str]) -> None:
    before = clock(environment)
    assert qbed(environment, "exec", "mine", "h2", "--", "sleep", "0.5").returncode == 0
    assert 0.5 <= clock(environment) - before < 0.502


def test_a_command_gets_what_comes_by_standard_input(lab: Path, environment: dict[str, str]) -> None:
    done = qbed(environment, "exec", "mine", "h1", "-i", "--", "wc", "-c", said="x" * 100_000)
    assert (done.returncode, done.stdout) == (0, "100000\n")
    assert qbed(environment, "exec", "mine", "h1", "--", "wc", "-c", said="unread").stdout == "0\n"


def test_a_shell_keeps_folder_and_variables(lab: Path, environment: dict[str, str]) -> None:
    lines = "cd /usr/bin\nexport WHO='a b'\n\npwd; echo \"$WHO\"\nfalse\necho $?$?; (exit 5)\n"
    done = qbed(environment, "shell", "mine", "h1", said=lines)
    assert (done.returncode, done.stdout, done.stderr) == (5, "/usr/bin\na b\n00\n", "")
    assert qbed(environment, "shell", "mine", "h1", said="true\nexit\nfalse\n").returncode == 0
    assert "has no node `h9`" in qbed(environment, "shell", "mine", "h9", said="true\n").stderr


def test_background_programs_are_listed_and_ended(lab: Path, environment: dict[str, str]) -> None:
    qbed(environment, "exec", "mine", "h3", "-d", "--", "sleep", "1000")
    (row,) = qbed(environment, "ps", "mine").stdout.splitlines()[1:]
    number, node, *_, command, argument = row.split()
    assert (node, command, argument) == ("h3", "sleep", "1000")
    assert qbed(environment, "kill", "mine", number).returncode == 0
    assert len(qbed(environment, "ps", "mine").stdout.splitlines()) == 1
    again = qbed(environment, "kill", "mine", number)
    assert again.returncode == 1
    assert again.stderr == f"error: no job {number} runs in the background; `qbed ps LAB` lists them\n"


def test_packets_are_captured_while_others_run_and_the_workload_is_among_them(
    lab: Path, environment: dict[str, str]
) -> None:
    assert "leads `s1>s3`; did you mean" in qbed(environment, "capture", "mine", "s1>s3", "--out", "x").stderr
    file = lab / "packets.pcap"
    command = [sys.executable, "-m", "qbed", "capture", "mine", "s1>s2", "--out", str(file)]
    capture = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    assert capture.stderr is not None and "capturing at s1>s2" in capture.stderr.readline()
    assert qbed(environment, "exec", "mine", "h1", "--", "ping", "-c", "3", "-i", "0.01", "h3").returncode == 0
    assert qbed(environment, "advance", "mine", "1500 ms").returncode == 0
    until = time.monotonic() + 30
    while time.monotonic() < until and (not file.exists() or file.stat().st_size < 100_000):
        time.sleep(0.05)
    capture.send_signal(signal.SIGINT)
    capture.communicate(timeout=60)
    assert capture.returncode == 0
    protocols = [packet.data[23] for packet in read_pcap(file)]
    assert protocols.count(1) == 6 and protocols.count(6) > 100_000 / 1448
    assert len(qbed(environment, "ps", "mine").stdout.splitlines()) == 1


PROMPT = r"h2 (\d+\.\d{6}) s / \$ "


def test_a_shell_at_a_terminal_is_one(lab: Path, environment: dict[str, str]) -> None:
    with open_terminal(environment, "shell", "mine", "h2") as user:
        begun = float(user.expect(PROMPT)[1])
        assert abs(begun - clock(environment)) < 0.001
        user.send_keys("echo $TERM; stty sixe\x7f\x7fze\r")  # a line can be edited
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
        user.send_keys("\x03")  # Ctrl-C ends it, not the shell
        user.expect(PROMPT)
        before = clock(environment)
        user.send_keys("false\rexit 3\r")
        assert user.wait() == 3
        assert clock(environment) - before < 0.01


def test_who_reads_keys_has_time_as_outside(lab: Path, environment: dict[str, str]) -> None:
    before = clock(environment)
    script = "stty -icanon; read -t 1 -n 1 || echo late; read -n 1; echo [$REPLY]"
    with open_terminal(environment, "exec", "-t", "mine", "h2", "--", "bash", "-c", script) as user:
        user.expect("late")
        user.send_keys("x")
        user.expect(r"\[x\]")
        assert user.wait() == 0
    assert clock(environment) - before >= 1.0
    piped = qbed(environment, "exec", "-t", "mine", "h2", "--", "true", said="")
    assert piped.returncode == 2 and "there is no terminal here; -i gives it what comes by a pipe" in piped.stderr


@pytest.mark.parametrize("ignore_hangup", [False, True])
def test_a_terminal_that_is_closed_takes_its_shell_along(
    lab: Path, environment: dict[str, str], ignore_hangup: bool
) -> None:
    with open_terminal(environment, "shell", "mine", "h1", ignore_hangup=ignore_hangup) as user:
        user.expect(r"\$ ")
    user.wait()
    until = time.monotonic() + 60
    while "bash" in qbed(environment, "exec", "mine", "h1", "--", "ps", "-e").stdout:
        assert time.monotonic() < until


def test_tc_on_a_node_knows_the_schemes(lab: Path, environment: dict[str, str]) -> None:
    said = qbed(environment, "exec", "mine", "s2", "--", "tc", "-j", "-s", "qdisc", "show", "dev", "eth0")
    (queue,) = json.loads(said.stdout)
    assert queue["kind"] == "ecn" and queue["options"]["threshold_packets"] == 20
    assert queue["unmarked"] == 0


def test_samples_flow_while_nothing_happens_and_have_every_packet(lab: Path, environment: dict[str, str]) -> None:
    def rows() -> list[dict[str, Any]]:
        return [json.loads(line) for line in qbed(environment, "samples", "mine").stdout.splitlines()[1:]]

    assert qbed(environment, "advance", "mine", "1 s").returncode == 0
    before = rows()
    assert qbed(environment, "advance", "mine", "100 ms").returncode == 0
    idle = [row for row in rows()[len(before) :] if row.get("port") == "s2>s1"]
    assert len(idle) == 10 and {row["enqueued"] for row in idle} == {0} and len({r["time_ns"] for r in idle}) == 10
    assert qbed(environment, "exec", "mine", "h1", "--", "ping", "-c", "2", "-i", "0.01", "h3").returncode == 0
    packets = [row for row in rows()[len(before) :] if row["sample"] == "packet"]
    assert [(row["port"], row["op"], row["bytes"]) for row in packets] == [
        ("s1>s2", op, 98) for _ in range(2) for op in ("enqueue", "dequeue")
    ]
    assert [row for row in before if row["sample"] == "flow"]


def lab_folder(environment: dict[str, str]) -> Path:
    return Path(environment["XDG_RUNTIME_DIR"]) / "qbed" / "mine" / "cell"
