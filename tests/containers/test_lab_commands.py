# SPDX-License-Identifier: Apache-2.0
"""Each command for a lab that is up, on both substrates: the table of docs/interactive.md."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from qbed_testing.container_labs import environment, leftovers, write_lab
from qbed_testing.lab_commands import COMMANDS, PAGE, SUBSTRATES, Command, page

PCAP_HEADER_BYTES = 24


def test_the_table_is_current() -> None:
    assert page(PAGE.read_text()) == PAGE.read_text(), "make generate writes it"


@pytest.mark.parametrize("substrate", SUBSTRATES)
def test_each_command_works_or_is_refused_as_the_table_says(
    substrate: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    name = f"qbed-t-{substrate}"
    request.addfinalizer(lambda: run(tmp_path, "down", "--all"))
    lab = write_lab(tmp_path, name)
    done = run(tmp_path, "up", str(lab), "--on", substrate, "--workload")
    assert done.returncode == 0, done.stderr
    names = {"LAB": name, "LAB.yml": str(lab), "FILE": str(tmp_path / "packets.pcap")}
    for command in COMMANDS:
        arguments = [names.get(word, word) for word in command.shown.split()]
        if "capture" in arguments:
            capture(tmp_path, name, arguments, Path(names["FILE"]))
            continue
        done = run(tmp_path, *arguments, command=command)
        output = done.stdout + done.stderr
        if command.refused is not None and substrate != SUBSTRATES[0]:
            assert done.returncode == 1 and command.refused in output, (command, output)
        else:
            assert done.returncode == 0 and command.prints.replace("LAB", name) in output, (command, output)
    assert leftovers(name, tmp_path) == []


def run(folder: Path, *arguments: str, command: Command | None = None) -> subprocess.CompletedProcess[str]:
    """Run a `qbed` command, with a pipe or (`at_terminal`) in a pseudo-terminal."""
    argv = [sys.executable, "-m", "qbed", *arguments]
    if command is not None and command.at_terminal:
        argv = ["script", "--quiet", "--return", "--command", subprocess.list2cmdline(argv), "/dev/null"]
    stdin = "" if command is None else command.stdin
    return subprocess.run(
        argv, cwd=folder, env=environment(folder), input=stdin, capture_output=True, text=True, timeout=300, check=False
    )


def capture(folder: Path, lab: str, arguments: list[str], file: Path) -> None:
    """Capture a ping's packets; Ctrl-C ends the capture."""
    argv = [sys.executable, "-m", "qbed", *arguments]
    with subprocess.Popen(argv, cwd=folder, env=environment(folder), stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline()  # says that it has started
        assert run(folder, "exec", lab, "h1", "--", "ping", "-c", "2", "h2").returncode == 0
        deadline = time.monotonic() + 20
        while file.stat().st_size <= PCAP_HEADER_BYTES and time.monotonic() < deadline:
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert file.stat().st_size > PCAP_HEADER_BYTES
