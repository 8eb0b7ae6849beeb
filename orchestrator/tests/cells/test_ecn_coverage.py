# SPDX-License-Identifier: Apache-2.0
"""A queue that marks without ECN-capable flows: the plausibility check warns."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from campaigns import LAB
from synthetic import write_out

from qbed.cells.store_cell import store_cell
from qbed.network.load import load_lab
from qbed.plan.compile import compile_lab

SCHEME = "{scheme: droptail, buffer: 128 KB}"


def warnings(folder: Path, queue: str, hearing: list[bool], unmarked: int = 0) -> list[str]:
    """The warnings of a cell with flows h1>h3 and h2>h4 with or without ECN; other counters are consistent."""
    (folder / "lab.yml").write_text(LAB.replace(SCHEME, queue))
    plan = compile_lab(load_lab(folder / "lab.yml"), 1)
    (folder / "plan.json").write_text(plan.dumps())
    write_out(plan, folder)
    flows = folder / "out" / "flows.ndjson"
    rows = [json.loads(line) for line in flows.read_text().splitlines()]
    flows.write_text("".join(json.dumps(row | {"ecn": ecn}) + "\n" for row, ecn in zip(rows, hearing, strict=True)))
    counters = json.loads((folder / "out" / "counters.json").read_text())
    for row, described in zip(counters["queues"], plan.queues, strict=True):
        if described.role == "switch":
            row["xstats"] = (bytes(8) + unmarked.to_bytes(8, "little") + bytes(8)).hex()
    (folder / "out" / "counters.json").write_text(json.dumps(counters))
    row = store_cell(folder, plan, folder)
    assert row["contradictions"] == []
    found: list[str] = row["warnings"]
    return [text for text in found if "ECN" in text]


def test_step_marking_under_hosts_without_ecn(tmp_path: Path) -> None:
    found = warnings(tmp_path, "{scheme: ecn, buffer: 128 KB}", [False, False], unmarked=17)
    assert found[0] == (
        "s1>s2 signals by ECN (scheme ecn), but none of the 2 flows through it has ECN: 17 packets passed unmarked"
    )
    assert found[1].startswith("s2>h3 signals by ECN (scheme ecn), but the one flow through it has no ECN")
    assert len(found) == 3, "the queues on the acknowledgements' way have no signal for anybody"


@pytest.mark.parametrize("hearing", [[True, True], [True, False]])
def test_one_who_hears_is_enough_where_flows_meet(tmp_path: Path, hearing: list[bool]) -> None:
    found = warnings(tmp_path, "{scheme: ecn, buffer: 128 KB}", hearing)
    assert [text.partition(" ")[0] for text in found] == ([] if hearing[1] else ["s2>h4"])


@pytest.mark.parametrize(
    ("queue", "message"),
    [
        ("{scheme: droptail, buffer: 128 KB}", None),
        ("{scheme: codel, buffer: 128 KB}", None),
        ("{scheme: abq, buffer: 128 KB}", "scheme abq"),
        ("{qdisc: fq_codel limit 100}", None),
        ("{qdisc: red limit 400000 avpkt 1000 ecn}", "qdisc red limit 400000 avpkt 1000 ecn"),
    ],
)
def test_drops_are_accepted_unless_marks_were_requested(tmp_path: Path, queue: str, message: str | None) -> None:
    found = warnings(tmp_path, queue, [False, False])
    assert bool(found) == (message is not None)
    assert message is None or message in found[0]
