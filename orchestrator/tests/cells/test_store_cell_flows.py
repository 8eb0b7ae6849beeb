# SPDX-License-Identifier: Apache-2.0
"""Totals over the flows of a cell."""

from __future__ import annotations

import json
from pathlib import Path

from campaigns import LAB
from synthetic import write_out

from qbed.cells.store_cell import store_cell
from qbed.network.load import load_lab
from qbed.plan.compile import compile_lab


def test_flows_without_a_size_that_run_to_the_end_are_counted_apart(tmp_path: Path) -> None:
    (tmp_path / "lab.yml").write_text(LAB)
    plan = compile_lab(load_lab(tmp_path / "lab.yml"), 1)
    (tmp_path / "plan.json").write_text(plan.dumps())
    write_out(plan, tmp_path)
    flows = tmp_path / "out" / "flows.ndjson"
    rows = [json.loads(line) for line in flows.read_text().splitlines()]
    assert len(rows) == 2
    names = ("flows", "flows_complete", "flows_unlimited")

    def totals(*changes: dict[str, object]) -> list[int]:
        changed = zip(rows, changes, strict=True)
        flows.write_text("".join(json.dumps(row | change) + "\n" for row, change in changed))
        found = store_cell(tmp_path, plan, tmp_path)
        return [found[name] for name in names]

    running: dict[str, object] = {"status": "running", "end_ns": None}
    assert totals({}, {}) == [2, 2, 0]
    assert totals({}, running) == [2, 1, 0]  # it has a size and did not complete
    assert totals({}, running | {"size_bytes": None}) == [2, 1, 1]
    assert totals({"size_bytes": None}, running | {"size_bytes": None}) == [2, 1, 1]  # the first was stopped before
