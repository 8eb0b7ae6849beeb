# SPDX-License-Identifier: Apache-2.0
"""A guest with virtual time that follows the wall clock (`wall-clock=ORIGIN:DILATION`).

Events happen at the same virtual times, so results are equal; only the duration of the run differs.
"""

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
    """Let guests follow the wall clock, and start half a second of lab time before the epoch."""

    def with_wall_clock(kernel: Path, plan: Plan, *rest: Any) -> list[str]:
        arguments = command_line(kernel, plan, *rest)
        origin = time.monotonic_ns() + (AHEAD_NS - plan.epoch_ns) * dilation
        after = arguments.index("time-travel=inf-cpu") + 1
        return [*arguments[:after], f"wall-clock={origin}:{dilation}", *arguments[after:]]

    monkeypatch.setattr("qbed.substrates.virtual.guest.command_line", with_wall_clock)


def test_the_wall_clock_changes_only_the_duration(run_cell: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    files = ["flows.ndjson", "flow_samples.bin", "taps.bin", "counters.json"]

    def results() -> tuple[dict[str, str], float]:
        begun = time.monotonic()
        cell = run_cell(LAB)
        took = time.monotonic() - begun
        assert [flow["status"] for flow in cell.flows()] == ["complete", "running", "complete"]
        return {name: hashlib.sha256((cell.out / name).read_bytes()).hexdigest() for name in files}, took

    expected, _ = results()
    for dilation in (1, 4):
        with monkeypatch.context() as patch:
            follow_the_wall(patch, dilation)
            found, took = results()
        assert found == expected
        # The lab's 100 ms and the half second before them, dilated.
        assert took >= dilation * 0.6
