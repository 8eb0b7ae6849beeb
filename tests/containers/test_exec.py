# SPDX-License-Identifier: Apache-2.0
"""Programs in nodes of real containers: each end is heard of, and nothing runs on that nobody wants."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from qbed_testing.container_labs import STAR, docker, environment, qbed, write_lab
from qbed_testing.terminal import COMMAND_RUNS, open_terminal

NAME = "qbed-t-exec"
COMMANDS = 100  # a socket holds their answers
NODES = pytest.mark.parametrize("node", ["h1", "s1"])  # on the machine's kernel, and on the lab's


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """Where the session is of one lab for all tests; what the last of them kills stays so."""
    folder = tmp_path_factory.mktemp("exec")
    request.addfinalizer(lambda: qbed(folder, "down", "--all"))
    lab = write_lab(folder, NAME, STAR.replace("kernel: qbed", "kernel: host"))
    done = qbed(folder, "up", str(lab), "--on", "containerlab", "--dilate", "1")
    assert done.returncode == 0, done.stderr
    return folder


def connect(here: Path, node: str) -> socket.socket:
    """The node's control socket, whatever the length of its path."""
    folder = os.open(here / "state/qbed" / NAME / "cell/nodes" / node, os.O_PATH)
    try:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(f"/proc/self/fd/{folder}/control.sock")
        return connection
    finally:
        os.close(folder)


@NODES
def test_each_end_is_told_whatever_begins_meanwhile(here: Path, node: str) -> None:
    draw = random.Random(1)
    with connect(here, node) as connection, connection.makefile("rb") as lines:
        connection.settimeout(20)
        for number in range(COMMANDS):
            command = {"command": "exec", "id": number, "node": node, "argv": ["true"]}
            connection.sendall(json.dumps(command).encode() + b"\n")
            time.sleep(draw.uniform(0, 0.005))  # one ends as another begins
        ended: set[int] = set()
        while len(ended) < COMMANDS:
            event = json.loads(lines.readline())
            if event["event"] == "exit":
                assert event["code"] == 0
                ended.add(event["id"])


@NODES
def test_a_command_that_is_interrupted_ends_with_all_that_it_started(here: Path, node: str) -> None:
    script = 'trap "" TERM; sleep 1000 & echo $$ $!; wait'
    command = [sys.executable, "-m", "qbed", "exec", NAME, node, "--", "sh", "-c", script]
    with subprocess.Popen(command, cwd=here, env=environment(here), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        numbers = process.stdout.readline().split()
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 130
    look = ["sh", "-c", "ls -d " + " ".join(f"/proc/{number}" for number in numbers)]
    until = time.monotonic() + 10
    while (there := qbed(here, "exec", NAME, node, "--", *look, timeout=20).stdout) and time.monotonic() < until:
        time.sleep(0.2)
    assert len(numbers) == 2 and there == ""


@NODES
def test_a_shell_at_a_terminal_is_one_and_goes_with_it(here: Path, node: str) -> None:
    with open_terminal(environment(here), "shell", NAME, node) as user:
        user.expect(r"\$ ")
        user.send_keys("stty sixe\x7f\x7fze\r")
        user.expect(r"\d+ \d+\r\n")
        user.expect(r"\$ ")
        user.resize(50, 132)
        user.send_keys("ping -c 1 h2; stty size\r")
        user.expect("1 received(?s:.*)\n50 132\r\n")
        user.expect(r"\$ ")
        user.send_keys("sleep 1000\r")
        user.expect(COMMAND_RUNS)
        time.sleep(0.5)  # or the key comes before the program
        user.send_keys("\x03")
        user.expect(r"\$ ")
        user.send_keys("exit 3\r")
        assert user.wait() == 3
    with open_terminal(environment(here), "shell", NAME, node) as user:
        user.expect(r"\$ ")
    user.wait()
    until = time.monotonic() + 60
    while "bash" in qbed(here, "exec", NAME, node, "--", "sh", "-c", "cat /proc/[0-9]*/comm").stdout.split():
        assert time.monotonic() < until


def test_a_node_whose_agent_was_killed_has_ended_whatever_it_had_running(here: Path) -> None:
    assert qbed(here, "exec", NAME, "h1", "-d", "--", "sleep", "1000").returncode == 0
    agent = re.search(r"^\S+ +(\d+) .*qbed-agent native", docker("top", f"clab-{NAME}-h1"), re.MULTILINE)
    assert agent is not None
    os.kill(int(agent.group(1)), signal.SIGKILL)
    done = qbed(here, "exec", NAME, "h1", "--", "true", timeout=20)
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
    until = time.monotonic() + 10
    while "sleep 1000" in (left := docker("top", f"clab-{NAME}-h1")) and time.monotonic() < until:
        time.sleep(0.1)
    assert "sleep 1000" not in left
    assert "the node is ended" in qbed(here, "exec", NAME, "h1", "--", "true", timeout=20).stderr
