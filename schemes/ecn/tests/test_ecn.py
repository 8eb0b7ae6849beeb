# SPDX-License-Identifier: Apache-2.0
"""`scheme: ecn` in a lab: packets above the threshold are marked, and only ECN-capable ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from qbed.testing import CellOutput, assert_tcp_as_with_droptail, run_algorithm_test, store_tables

LAB = """
name: behaviour
topology: {star: {hosts: 3}}
links: {default: {rate: 1 Gbit/s, delay: 5 us}}
switches: {default: {scheme: ecn, buffer: 512 KB, threshold: THRESHOLD}}
hosts: {default: {tcp: dctcp}}
workload: [flows: {pairs: [[h1, h3], [h2, h3]], size: 2 MB}]
duration: 50 ms
"""


@pytest.fixture
def queue(run_cell: Callable[..., CellOutput], tmp_path: Path) -> Callable[[str], dict[str, Any]]:
    """The row of the shared queue in the table `queues`, by its threshold."""

    def measured(threshold: str) -> dict[str, Any]:
        folder = tmp_path / threshold.replace(" ", "-")
        folder.mkdir()
        row, table = store_tables(run_cell(LAB.replace("THRESHOLD", threshold)), folder)
        assert (row["status"], row["contradictions"]) == ("complete", [])
        return next(row for row in table("queues") if row["port"] == "s1>h3")

    return measured


def test_the_threshold_decides_how_long_the_queue_is(queue: Callable[[str], dict[str, Any]]) -> None:
    low, high = queue("5 packets"), queue("40 packets")
    assert low["marked_packets"] > 0 and high["marked_packets"] > 0
    assert low["dropped_packets"] == high["dropped_packets"] == 0
    assert low["max_packets"] < high["max_packets"]


def test_tcp_without_ecn_is_as_with_droptail(run_cell: Callable[..., CellOutput]) -> None:
    assert_tcp_as_with_droptail(run_cell, "ecn")


def test_the_algorithm_without_a_kernel() -> None:
    run_algorithm_test(Path(__file__).with_name("test_ecn_algorithm.c"))
