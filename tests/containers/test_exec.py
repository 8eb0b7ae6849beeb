# SPDX-License-Identifier: Apache-2.0
"""Programs in nodes of containers: each exit is reported, and interrupted programs end with their children."""

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
COMMANDS = 100  # a socket's buffer holds their replies
NODES = pytest.mark.parametrize("node", ["h1", "s1"])  # on the machine's kernel and on a guest's


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """The folder of the session of one running lab for all tests; the last test kills a node."""
    folder = tmp_path_factory.mktemp("exec")
    request.addfinalizer(lambda: qbed(folder, "down", "--all"))
    lab = write_lab(folder, NAME, STAR.replace("kernel: qbed", "kernel: host"))
    done = qbed(folder, "up", str(lab), "--on", "containerlab", "--dilate", "1")
    assert done.returncode == 0, done.stderr
    return folder


def connect(here: Path, node: str) -> socket.socket:
    """Connect to a node's control socket; its path may exceed the limit of socket addresses."""
    folder = os.open(here / "state/qbed" / NAME / "cell/nodes" / node, os.O_PATH)
    try:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(f"/proc/self/fd/{folder}/control.sock")
        return connection
    finally:
        os.close(folder)


@NODES
def test_each_exit_is_reported_while_other_commands_start(here: Path, node: str) -> None:
    draw = random.Random(1)
    with connect(here, node) as connection, connection.makefile("rb") as lines:
        connection.settimeout(20)
        for number in range(COMMANDS):
            command = {"command": "exec", "id": number, "node": node, "argv": ["true"]}
            connection.sendall(json.dumps(command).encode() + b"\n")
            time.sleep(draw.uniform(0, 0.005))  # one ends while another starts
        ended: set[int] = set()
        while len(ended) < COMMANDS:
            event = json.loads(lines.readline())
            if event["event"] == "exit":
                assert event["code"] == 0
                ended.add(event["id"])


@NODES
def test_an_interrupted_command_ends_with_its_children(here: Path, node: str) -> None:
    script = 'trap "" TERM; sleep 1000 & echo $$ $!; wait'
    command = [sys.executable, "-m", "qbed", "exec", NAME, node, "--", "sh", "-c", script]
    with subprocess.Popen(command, cwd=here, env=environment(here), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pids = process.stdout.readline().split()
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 130
    command_in_node = ["sh", "-c", "ls -d " + " ".join(f"/proc/{pid}" for pid in pids)]
    deadline = time.monotonic() + 10
    while (
        remaining := qbed(here, "exec", NAME, node, "--", *command_in_node, timeout=20).stdout
    ) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert len(pids) == 2 and remaining == ""


@NODES
def test_a_shell_on_a_terminal_is_interactive_and_ends_with_it(here: Path, node: str) -> None:
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
        time.sleep(0.5)  # the key must not arrive before the program runs
        user.send_keys("\x03")
        user.expect(r"\$ ")
        user.send_keys("exit 3\r")
        assert user.wait() == 3
    with open_terminal(environment(here), "shell", NAME, node) as user:
        user.expect(r"\$ ")
    user.wait()
    deadline = time.monotonic() + 60
    while "bash" in qbed(here, "exec", NAME, node, "--", "sh", "-c", "cat /proc/[0-9]*/comm").stdout.split():
        assert time.monotonic() < deadline


def test_killing_a_nodes_agent_ends_its_programs(here: Path) -> None:
    assert qbed(here, "exec", NAME, "h1", "-d", "--", "sleep", "1000").returncode == 0
    agent = re.search(r"^\S+ +(\d+) .*qbed-agent native", docker("top", f"clab-{NAME}-h1"), re.MULTILINE)
    assert agent is not None
    os.kill(int(agent.group(1)), signal.SIGKILL)
    done = qbed(here, "exec", NAME, "h1", "--", "true", timeout=20)
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
    deadline = time.monotonic() + 10
    while "sleep 1000" in (processes := docker("top", f"clab-{NAME}-h1")) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert "sleep 1000" not in processes
    assert "the node is ended" in qbed(here, "exec", NAME, "h1", "--", "true", timeout=20).stderr
