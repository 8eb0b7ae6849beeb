# SPDX-License-Identifier: Apache-2.0
"""A guest whose virtual time follows the wall clock (`wall-clock=ORIGIN:DILATION`): every event still happens at its
own instant, so that a lab that nothing outside disturbs gives the same results; it only takes its real time."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path
from typing import Any

import pytest

from qbed.plan.model import Plan
from qbed.substrates.virtual.guest import command_line

LAB = """
name: wall
topology: {star: {hosts: 2}}
links: {default: {rate: 1 Gbit/s, delay: 20 us}}
switches: {default: {scheme: codel, buffer: 128 KB, target: 1 ms, interval: 10 ms}}
hosts: {default: {tcp: cubic, ecn: on, controller: {name: fixed, rate: 200 Mbit/s}}}
workload:
  - flows: {from: h1, to: h2, size: 2 MB, start: 1 ms}
  - udp: {from: h1, to: h2, rate: 100 Mbit/s, packet: 700 B}
  - flow: {from: h1, to: h2, size: 1 MB, transport: rate}
observe: {queues: every packet, flows: 1 ms}
duration: 100 ms
"""
AHEAD_NS = 500_000_000


def follow_the_wall(monkeypatch: pytest.MonkeyPatch, dilation: int) -> None:
    """Guests that are started from now on begin half a (paper) second before the epoch."""

    def slaved(kernel: Path, plan: Plan, mode: Any, gate_fd: int, confine_fd: int) -> list[str]:
        arguments = command_line(kernel, plan, mode, gate_fd, confine_fd)
        origin = time.monotonic_ns() + (AHEAD_NS - plan.epoch_ns) * dilation
        after = arguments.index("time-travel=inf-cpu") + 1
        return [*arguments[:after], f"wall-clock={origin}:{dilation}", *arguments[after:]]

    monkeypatch.setattr("qbed.substrates.virtual.guest.command_line", slaved)


def test_the_wall_clock_changes_how_long_it_takes_and_nothing_else(
    run_cell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = ["flows.ndjson", "flow_samples.bin", "taps.bin", "counters.json"]

    def results() -> tuple[dict[str, str], float]:
        begun = time.monotonic()
        observed = run_cell(LAB)
        took = time.monotonic() - begun
        assert [flow["status"] for flow in observed.flows()] == ["complete", "running", "complete"]
        return {name: hashlib.sha256((observed.out / name).read_bytes()).hexdigest() for name in files}, took

    expected, _ = results()
    for dilation in (1, 4):
        with monkeypatch.context() as patch:
            follow_the_wall(patch, dilation)
            found, took = results()
        assert found == expected
        # The lab's 100 ms and the half second before them, in real time.
        assert took >= dilation * 0.6
