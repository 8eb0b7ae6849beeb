# SPDX-License-Identifier: Apache-2.0
"""Merges the results of a cell's nodes into one cell folder (docs/formats.md section 5)."""

from __future__ import annotations

import heapq
import json
from pathlib import Path

from qbed.plan.model import Plan
from qbed.substrates import CellError
from qbed.substrates.containers import NAME
from qbed.substrates.containers.folder import NODES, OUT
from qbed.substrates.containers.placement import Placement
from qbed.substrates.merge import COUNTERS, merge, merged_counters, read_json, write_rows
from qbed.telemetry.console import console_tail
from qbed.telemetry.records import read_done, read_rows
from qbed.telemetry.wall import FILE, FRAMES, NODE_FILE

SHOWN = 3


def gather(folder: Path, plan: Plan, placement: Placement) -> None:
    """Merge `folder/nodes/*/out` into `folder/out`; `CellError` if a node did not come to its end."""
    parts = [folder / NODES / node.name / OUT for node in plan.nodes]
    out = folder / OUT
    out.mkdir(exist_ok=True)
    end_ns = _ends(folder, plan, parts)
    merge(out, plan, parts, range(len(parts)))
    frames = (read_rows(part / FRAMES) for part in parts if (part / FRAMES).exists())
    write_rows(out / FRAMES, heapq.merge(*frames, key=lambda row: (row["time_ns"], row["node"])))
    counted = [read_json(part / COUNTERS) for part in parts]
    counters = merged_counters(plan, counted, range(len(parts)), placement.host_kernel)
    (out / COUNTERS).write_text(json.dumps(counters))
    wall = {
        "substrate": NAME,
        "dilation": placement.dilation,
        "host_kernel": [plan.nodes[node].name for node in placement.host_kernel],
        "nodes": {node.name: read_json(part / NODE_FILE) for node, part in zip(plan.nodes, parts, strict=True)},
    }
    (out / FILE).write_text(json.dumps(wall))
    (out / "done.json").write_text(json.dumps({"status": "complete", "end_ns": end_ns}))


def _ends(folder: Path, plan: Plan, parts: list[Path]) -> int:
    """When the last node ended; `CellError` names those that did not."""
    wrong: list[str] = []
    end_ns = 0
    for node, part in zip(plan.nodes, parts, strict=True):
        done = read_done(part / "done.json")
        if done is not None and done.status == "complete" and done.end_ns is not None:
            end_ns = max(end_ns, done.end_ns)
        else:
            last = console_tail(folder / NODES / node.name / "console.log")[-1:]
            wrong.append(
                f"{node.name}: {(done and done.error) or 'has left no result'}" + "".join(f" ({x})" for x in last)
            )
    if wrong:
        more = f" and {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""
        raise CellError("; ".join(wrong[:SHOWN]) + more)
    return end_ns
