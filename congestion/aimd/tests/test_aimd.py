# SPDX-License-Identifier: Apache-2.0
"""`tcp: aimd` in a lab: its parameters decide the window's growth and reduction."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from qbed.testing import CellOutput, run_algorithm_test, store_tables

LAB = """
name: behaviour
topology: {star: {hosts: 2}}
links: {default: {rate: 1 Gbit/s, delay: 1 ms}, h1-s1: {rate: 100 Mbit/s}}
switches: {default: {scheme: droptail, buffer: 20 packets}}
hosts: {default: {tcp: aimd}}
workload: [{flow: {from: h2, to: h1, size: unlimited}}]
observe: {flows: 1 ms}
duration: 1 s
"""


@pytest.fixture
def windows(run_cell: Callable[..., CellOutput], tmp_path: Path) -> Callable[[str], list[int]]:
    """The windows in segments, one a millisecond, of a flow with these parameters, after slow start."""

    def measured(parameters: str) -> list[int]:
        text = LAB + (f"congestion: {{aimd: {parameters}}}\n" if parameters else "")
        folder = tmp_path / str(abs(hash(parameters)))
        folder.mkdir()
        row, table = store_tables(run_cell(text), folder)
        assert (row["status"], row["contradictions"]) == ("complete", [])
        return [sample["cwnd"] for sample in table("tcp_info") if sample["cwnd"] and sample["time_ns"] > 200_000_000]

    return measured


def test_the_decrease_decides_what_a_loss_leaves(windows: Callable[[str], list[int]]) -> None:
    half, tenth = windows(""), windows("{decrease: 10 %}")
    assert 0.4 < min(half) / max(half) < 0.6
    assert 0.8 < min(tenth) / max(tenth) < 0.95


def test_the_increase_decides_how_often_the_queue_overflows(windows: Callable[[str], list[int]]) -> None:
    """Each loss reduces the window from above its middle value to below it."""
    losses = []
    for increase in (1, 4):
        found = windows(f"{{increase: {increase}}}")
        middle = (min(found) + max(found)) / 2
        losses.append(sum(before >= middle > after for before, after in pairwise(found)))
    assert 2 <= losses[0] < losses[1] / 2


OUTAGE_LAB = """
name: outage
topology: {star: {hosts: 2}}
links: {default: {rate: 1 Gbit/s, delay: 1 ms}}
switches: {default: {scheme: droptail, buffer: 100 packets}}
hosts: {default: {tcp: aimd}}
workload: [{flow: {from: h2, to: h1, size: 10 KB}}]
events: [{at: 4500 us, link: h1-s1, state: down}, {at: 100 ms, link: h1-s1, state: up}]
duration: 3 s
"""


def statistics(rows: list[dict[str, Any]]) -> dict[int, dict[str, int]]:
    """The statistics of the only flow, by their time."""
    assert {(row["flow"], row["congestion_control"]) for row in rows} == {(0, "aimd")}
    found: dict[int, dict[str, int]] = {}
    for row in rows:
        found.setdefault(row["time_ns"], {})[row["statistic"]] = row["value"]
    return found


@pytest.mark.parametrize("outages", [0, 1])
def test_the_statistics_of_a_flow_at_its_end(outages: int, run_cell: Callable[..., CellOutput], tmp_path: Path) -> None:
    """An outage loses all of the flow's packets: one timeout is one reduction. Without it there is none."""
    text = OUTAGE_LAB if outages else OUTAGE_LAB.replace("events:", "# ")
    row, table = store_tables(run_cell(text), tmp_path)
    assert (row["status"], row["contradictions"]) == ("complete", [])
    (flow,) = table("flows")
    assert (flow["status"], flow["timeouts"]) == ("complete", outages)
    ((time_ns, values),) = statistics(table("flow_statistics")).items()
    assert time_ns >= flow["end_ns"] and values["reductions"] == outages


def test_the_statistics_over_time(run_cell: Callable[..., CellOutput], tmp_path: Path) -> None:
    """Each loss recovery begins with a reduction, and between two samples without one the window grows by the added
    segments.
    """
    _, table = store_tables(run_cell(LAB), tmp_path)
    found = statistics(table("flow_statistics"))
    samples = table("tcp_info")
    recovering = [sample["state"] == "recovery" and sample["ssthresh"] for sample in samples]
    recoveries = sum(bool(after) and before != after for before, after in pairwise(recovering))
    assert found[max(found)]["reductions"] == recoveries > 3
    compared = 0
    for before, after in pairwise(samples):
        (first, then), both = (found[sample["time_ns"]] for sample in (before, after)), (before, after)
        if first["reductions"] == then["reductions"] and all(
            sample["state"] == "open" and sample["ssthresh"] and sample["cwnd"] >= sample["ssthresh"] for sample in both
        ):
            assert after["cwnd"] - before["cwnd"] == then["added_segments"] - first["added_segments"]
            compared += after["cwnd"] > before["cwnd"]
    assert compared > 20


def test_the_algorithm_without_a_kernel() -> None:
    run_algorithm_test(Path(__file__).with_name("test_aimd_algorithm.c"))
