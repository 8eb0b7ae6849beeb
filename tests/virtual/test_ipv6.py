# SPDX-License-Identifier: Apache-2.0
"""Guests of large cells run without IPv6 if the plan cannot use it: equal results in less memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest

from qbed.substrates import CellError
from qbed.substrates.virtual import guest
from qbed.substrates.virtual.confinement import CONFINE_FD
from qbed.substrates.virtual.guest import command_line
from qbed.testing import CellOutput, write_plan

LAB = """
name: families
topology: {star: {hosts: 2}}
links: {default: {rate: 10 Gbit/s, delay: 5 us}}
switches: {default: {scheme: ecn, buffer: 1 MB, threshold: 20 packets}}
duration: 10 ms
workload:
  - flow: {from: h1, to: h2, size: 1 MB}
"""
RATE = "  - flow: {from: h2, to: h1, size: 100 KB, transport: rate}\nhosts: {h2: {controller: extent}}\n"
WITHOUT = "ipv6.disable=1"


@pytest.fixture(autouse=True)
def limit_of_three_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guest, "MANY_NODES", 3)


@pytest.mark.parametrize("more", [RATE, "capture: ['h1>s1']\n", "observe: {queues: every packet, statistics: 1 ms}\n"])
def test_results_equal_those_of_a_guest_with_ipv6(
    run_cell: Callable[..., CellOutput], monkeypatch: pytest.MonkeyPatch, more: str
) -> None:
    without = run_cell(LAB + more).digest()
    monkeypatch.setattr(guest, "may_use_ipv6", lambda plan: True)
    assert without == run_cell(LAB + more).digest()


def test_small_cells_have_ipv6(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guest, "MANY_NODES", 4)
    assert WITHOUT not in command_line(Path("/kernel"), write_plan(tmp_path, LAB), "cell", 3, CONFINE_FD)


def test_a_guest_without_ipv6_refuses_ipv6_addresses(
    run_cell: Callable[..., CellOutput], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guest, "may_use_ipv6", lambda plan: False)
    with pytest.raises(CellError, match=r"sysctl net/ipv6/.*No such file"):
        run_cell(LAB + "addressing: ipv6\n")


@pytest.mark.parametrize(
    ("more", "mode", "has_ipv6"),
    [
        ("", "cell", False),
        ("", "lab", True),  # users may start any program
        ("addressing: ipv6\n", "cell", True),
        ("addressing: both\n", "cell", True),
        ("routing: frr\n", "cell", True),
        ("programs: [{on: h1, run: ping -c 1 h2}]\n", "cell", True),
        ("hosts: {h1: {sysctls: {net/ipv6/conf/all/hop_limit: 3}}}\n", "cell", True),
    ],
)
def test_a_guest_has_ipv6_if_a_program_may_use_it(
    tmp_path: Path, more: str, mode: Literal["cell", "lab"], has_ipv6: bool
) -> None:
    arguments = command_line(Path("/kernel"), write_plan(tmp_path, LAB + more), mode, 3, CONFINE_FD)
    assert (WITHOUT not in arguments) == has_ipv6
