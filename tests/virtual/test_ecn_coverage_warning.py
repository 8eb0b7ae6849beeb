# SPDX-License-Identifier: Apache-2.0
"""A warning appears if a queue marks flows that did not negotiate ECN."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from qbed.cells.store_cell import store_cell

LAB = """
name: coverage
topology: {dumbbell: {left: 2, right: 2}}
links: {default: {rate: 1 Gbit/s, delay: 5 us}}
switches: {default: {scheme: ecn, buffer: 128 KB, threshold: 20 packets}}
hosts: {default: {tcp: TCP, rto_min: 10 ms}}
workload: [{flows: {pairs: [[h1, h3], [h2, h4]], size: 1 MB}}]
duration: 50 ms
"""


@pytest.mark.parametrize(("tcp", "has_ecn"), [("cubic", False), ("dctcp", True)])
def test_marking_of_flows_without_ecn_is_warned_of(
    run_cell: Callable[..., Any], tmp_path: Path, tcp: str, has_ecn: bool
) -> None:
    cell = run_cell(LAB.replace("TCP", tcp))
    (tmp_path / "results").mkdir()
    row = store_cell(cell.folder, cell.plan, tmp_path / "results")
    assert (row["status"], row["contradictions"]) == ("complete", [])
    found = [
        text for text in row["warnings"] if text.startswith("s1>s2 signals by ECN (scheme ecn), but none of the 2")
    ]
    assert len(found) == (not has_ecn)
    assert has_ecn or int(found[0].partition(" ECN: ")[2].split()[0]) > 10
    assert (row["marked_packets"] > 0) == has_ecn
