# SPDX-License-Identifier: Apache-2.0
"""Programs of a lab file: start and stop times, files, exit statuses, and tables of their output."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from qbed.substrates import CellError
from qbed.testing import CellOutput, store_tables

LAB = """
name: mine
topology: {dumbbell: {left: 2, right: 2}}
links: {default: {rate: 100 Mbit/s, delay: 100 us}}
switches: {default: {scheme: droptail, buffer: 64 KB}}
hosts: {default: {tcp: cubic}}
duration: 1300 ms
"""
# Bash starts with few system calls.
SCRIPT = """#!/bin/bash
. ./lib/more.sh
echo "node=$QBED_NODE on=$(hostname_of_lab) argument=$1 random=$RANDOM time=$(date +%s%N)"
"""
PROGRAMS = """
workload: [flow: {from: h2, to: h4, size: 1 MB}]
programs:
  - {on: h3, run: iperf3 -s -1, start: before, label: server}
  - {on: h1, run: iperf3 -c h3 -t 1 -b 10M -J, start: 10 ms, output: json}
  - {on: h2..h4, run: "./say.sh {number}", files: [lib], start: 20 ms, output: key=value}
  - {on: s1, run: [sh, -c, "echo begun; sleep 100 & wait"], start: 30 ms, stop: 50 ms, label: waits}
  - {on: h4, run: sh -c "exit 3", status: any, label: three}
"""


@pytest.fixture
def write_files(tmp_path: Path) -> Callable[[int], None]:
    """write_files(cells): write the programs' files beside the lab files of the next cells."""

    def write_for_cells(cells: int) -> None:
        for cell in range(cells):
            lib = tmp_path / f"cell-{cell}" / "lib"
            lib.mkdir(parents=True)
            (lib / "more.sh").write_text("hostname_of_lab() { grep -c h3 /etc/hosts; }\n")
            (lib.parent / "say.sh").write_text(SCRIPT)

    return write_for_cells


def test_programs_run_at_their_times_with_equal_results(
    run_cell: Callable[..., CellOutput], write_files: Callable[[int], None], tmp_path: Path
) -> None:
    write_files(2)
    first, second = run_cell(LAB + PROGRAMS), run_cell(LAB + PROGRAMS)
    printed = [{path.name: path.read_text() for path in cell.out.glob("*.stdout")} for cell in (first, second)]
    assert printed[0] == printed[1]
    assert first.digest() == second.digest()
    row, table = store_tables(first, tmp_path / "cell-0")
    assert (row["status"], row["contradictions"], row["warnings"]) == ("complete", [], [])
    programs = {(row["label"], row["node"]): row for row in table("programs")}
    assert {key: program["exit_status"] for key, program in programs.items()} == {
        ("server", "h3"): 0, ("iperf3", "h1"): 0, ("say.sh", "h2"): 0, ("say.sh", "h3"): 0, ("say.sh", "h4"): 0,
        ("waits", "s1"): 143, ("three", "h4"): 3,
    }  # fmt: skip
    assert programs["server", "h3"]["start_ns"] == -1_000_000_000
    assert programs["iperf3", "h1"]["start_ns"] == 10_000_000 < programs["iperf3", "h1"]["end_ns"]
    waits = programs["waits", "s1"]
    assert (waits["stopped"], waits["stdout"], waits["stdout_bytes"]) == (True, "begun\n", 6)
    assert waits["start_ns"] == 30_000_000 and 50_000_000 <= waits["end_ns"] < 51_000_000
    records = [row for row in table("program_records") if row["label"] == "say.sh"]
    numbers = [dict(row["numbers"]) for row in records]
    assert [row["argument"] for row in numbers] == [0, 1, 2] and all(row["on"] == 1 for row in numbers)
    assert [dict(row["texts"])["node"] for row in records] == ["h2", "h3", "h4"]
    (summary,) = [row for row in table("program_records") if row["label"] == "iperf3" and row["path"] == ""]
    assert 1e6 < dict(summary["numbers"])["end.sum_received.bytes"] < 1.4e6
    assert (first.out / "program-1-h1.stdout").stat().st_size == programs["iperf3", "h1"]["stdout_bytes"]


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (
            "{on: h1, run: iperf3 -c h3 --wrong}",
            r"node h1: iperf3 \(iperf3\) ended with status 1; .*unrecognized option",
        ),
        ("{on: h1, run: [sh, -c, 'kill -9 $$'], label: mine}", r"node h1: mine \(sh\) ended with status 137"),
        ("{on: h1, run: ./bad}", r"node h1: bad: ./bad: No such file or directory"),
    ],
)
def test_a_failing_program_fails_its_cell(
    run_cell: Callable[..., Any], tmp_path: Path, program: str, message: str
) -> None:
    (tmp_path / "cell-0").mkdir()
    (tmp_path / "cell-0" / "bad").write_text("#!/no/such/interpreter\n")
    with pytest.raises(CellError, match=message):
        run_cell(f"{LAB}programs: [{program}]\n")


def test_a_missing_program_is_reported_before_the_run(run_cell: Callable[..., Any]) -> None:
    with pytest.raises(CellError, match="node h1 runs no-such-program, which is not here; install it"):
        run_cell(f"{LAB}programs: [{{on: h1, run: no-such-program}}]\n")


LOOPBACK = """#!/usr/bin/env python3
import socket
listener = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(listener.getsockname())
server, _ = listener.accept()
client.setblocking(False)
sent = client.send(b"q" * (1 << 20))
client.close()
received = 0
while part := server.recv(1 << 20):
    received += len(part)
print(f"sent={sent} received={received}")
"""


def test_loopback_traffic_is_not_counted_twice(run_cell: Callable[..., CellOutput], tmp_path: Path) -> None:
    (tmp_path / "cell-0").mkdir()
    (tmp_path / "cell-0" / "loopback.py").write_text(LOOPBACK)
    flow = "workload: [flow: {from: h1, to: h3, size: 100 KB}]\n"
    program = "programs: [{on: h3, run: ./loopback.py, output: key=value}]"
    row, table = store_tables(run_cell(LAB + flow + program), tmp_path / "cell-0")
    (record,) = table("program_records")
    numbers = dict(record["numbers"])
    assert numbers["sent"] == numbers["received"] > 100_000  # in more than one packet of 64 KB
    assert (row["status"], row["contradictions"]) == ("complete", [])


def test_memory_of_the_agent_is_mapped_at_once_and_not_that_of_programs(running_lab: Callable[..., Any]) -> None:
    with running_lab(LAB) as lab:
        status, output = lab.run("h1", "grep", "-h", "VmLck", "/proc/1/status", "/proc/self/status")
    assert status == 0
    agent_kb, program_kb = (int(line.split()[1]) for line in output.splitlines())
    assert agent_kb > 1000 and program_kb == 0
